"""The section of population-based training."""

from dataclasses import dataclass

from sample_factory.config.flags import flag

MAX_BATCH_GROWTH = 1.5  # how much larger than at first a batch may become
# Tags of its summaries, those of v1 and one more: how the names of what evolves begin, and the policy whose
# weights were taken over.
FLAG_TAG, SHAPING_TAG, REPLACED_BY_TAG = "zz_pbt/cfg_", "zz_pbt/rew_", "zz_pbt/replaced_by"


@dataclass(frozen=True)
class PbtFlags:
    """Population-based training: policies take over each other's weights, and their settings evolve."""

    with_pbt: bool = flag(False, "population-based training; needs --num_policies of at least 2")
    pbt_period_env_steps: int = flag(
        5_000_000, "env frames of a policy between decisions about it", at_least=1
    )
    pbt_start_mutation: int = flag(20_000_000, "env frames of a policy before the first decision", at_least=0)
    pbt_replace_fraction: float = flag(
        0.3,
        "share of the worst policies that may be replaced, and of the best ones that replace them",
        above=0,
        at_most=0.5,
    )
    pbt_mutation_rate: float = flag(0.15, "chance that one setting changes", at_least=0, at_most=1)
    pbt_replace_reward_gap: float = flag(
        0.1,
        "a policy is replaced by one whose objective is better by this share of the larger one",
        at_least=0,
    )
    pbt_replace_reward_gap_absolute: float = flag(1e-6, "and by this much", at_least=0)
    pbt_optimize_batch_size: bool = flag(False, "let the batch size evolve too")
    pbt_optimize_gamma: bool = flag(False, "let the discount evolve too")
    pbt_target_objective: str = flag("true_objective", "statistic of the episodes to maximise")
    pbt_perturb_min: float = flag(1.05, "least factor by which a setting changes", above=1)
    pbt_perturb_max: float = flag(1.5, "largest factor by which a setting changes", above=1)
