"""The sections of population-based training and self-play."""

import functools
from dataclasses import dataclass

from sample_factory.config.flags import AtLeast, Not, flag

MAX_BATCH_GROWTH = 1.5  # limit of an evolved batch size, as a multiple of --batch_size
# TensorBoard tags, v1's and one more: prefixes of the evolved flags and of the evolved reward shaping, and
# the policy that a policy has taken over.
FLAG_TAG = "zz_pbt/cfg_"
SHAPING_TAG = "zz_pbt/rew_"
REPLACED_BY_TAG = "zz_pbt/replaced_by"
_pbt_flag = functools.partial(flag, only_with={"with_pbt": (True,)})
_past_flag = functools.partial(flag, only_with={"selfplay_past_share": Not((0,))})


@dataclass(frozen=True)
class PbtFlags:
    """Population-based training: policies take over each other's weights, and their settings evolve."""

    with_pbt: bool = flag(
        False,
        "population-based training; needs --num_policies of at least 2",
        only_with={"train_for_env_steps": AtLeast(("pbt_start_mutation", "pbt_period_env_steps"))},
    )
    pbt_period_env_steps: int = _pbt_flag(
        5_000_000, "env frames of a policy between two decisions about it", at_least=1
    )
    pbt_start_mutation: int = _pbt_flag(
        20_000_000, "env frames of a policy before the first decision about it", at_least=0
    )
    pbt_replace_fraction: float = _pbt_flag(
        0.3,
        "fraction of the policies, the worst, that may be replaced by as many of the best",
        above=0,
        at_most=0.5,
    )
    pbt_mutation_rate: float = _pbt_flag(
        0.15, "probability that a setting of a policy changes in a decision about it", between=(0, 1)
    )
    pbt_replace_reward_gap: float = _pbt_flag(
        0.1, "replace a policy only if the other one's objective is better by this fraction", at_least=0
    )
    pbt_replace_reward_gap_absolute: float = _pbt_flag(
        1e-6, "replace a policy only if the other one's objective is better by this much", at_least=0
    )
    pbt_optimize_batch_size: bool = _pbt_flag(False, "the batch size evolves too")
    pbt_optimize_gamma: bool = _pbt_flag(False, "the discount factor evolves too")
    pbt_target_objective: str = _pbt_flag(
        "true_objective", "statistic of the episodes that the population maximises", metavar="NAME"
    )
    pbt_perturb_min: float = _pbt_flag(
        1.05, "smallest factor by which a setting changes in a mutation", above=1
    )
    pbt_perturb_max: float = _pbt_flag(
        1.5, "largest factor by which a setting changes in a mutation", above=1
    )


@dataclass(frozen=True)
class SelfplayFlags:
    """Self-play: in a multi-agent env, policies also play against frozen past selves."""

    matchmaking: str = flag(
        "random",
        "who plays the agents of an env: random, a name given to register_matchmaking, or module:attribute",
        names_code=True,
    )
    selfplay_past_share: float = flag(
        0.0,
        "fraction of the matches in which one agent plays against frozen past selves; 0: none",
        between=(0, 1),
    )
    selfplay_sampling: str = _past_flag(
        "uniform",
        "draw past selves with equal probability, or those more often that are hard to beat",
        choices=("uniform", "prioritized"),
    )
    selfplay_priority_exponent: float = flag(
        2.0,
        "prioritized sampling: exponent p of a past self's weight (1 - win rate)^p",
        above=0,
        only_with={"selfplay_past_share": Not((0,)), "selfplay_sampling": ("prioritized",)},
    )
    selfplay_max_opponents: int = _past_flag(
        16,
        "past selves of each policy in use; each takes the memory of a model in each policy worker",
        between=(1, 100),
    )
    selfplay_snapshot_env_steps: int = _past_flag(
        1_000_000, "env frames of a policy between the milestones that become past selves", at_least=1
    )
