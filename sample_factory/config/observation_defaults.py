"""Defaults that follow the observation, for envs of users: one set for vectors, one for pictures, and one for
batched simulators, whatever they observe.

They stand above the defaults of the flags, and below the defaults of the env's family and of the algorithm,
a --cfg file, the saved flags of a run, and the command line. A built-in family that knows its envs has none.
"""

import dataclasses
import functools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sample_factory.config.config import Config
from sample_factory.config.consistency import check_consistency
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.config.sections import FLAGS
from sample_factory.runtime.gpu import may_have_gpu

_SMALL_TASKS: Mapping[str, Any] = {
    "use_rnn": False,
    "encoder_mlp_layers": (64, 64),
    "adaptive_stddev": False,
    "with_vtrace": False,
    "gae_lambda": 0.95,
    "max_grad_norm": 0.5,
    "adam_eps": 1e-5,
    "rollout": 64,
    "batch_size": 256,
    "num_batches_per_iteration": 8,
}
# Learning from vectors is limited by samples, not by compute, so each sample is used many times.
VECTORS: Mapping[str, Any] = {
    **_SMALL_TASKS,
    "nonlinearity": "tanh",
    "ppo_epochs": 10,
    "learning_rate": 1e-3,
    "ppo_clip_ratio": 0.2,
    "exploration_loss_coeff": 0.0,
}
# About the settings of PPO for Atari games (Schulman et al. 2017, table 5). Pictures set the pace of learning
# where there are vectors too.
PICTURES: Mapping[str, Any] = {
    **_SMALL_TASKS,
    "encoder_subtype": "auto",
    "nonlinearity": "relu",
    "ppo_epochs": 4,
    "learning_rate": 2.5e-4,
    "ppo_clip_ratio": 0.1,
    "exploration_loss_coeff": 0.01,
}
# One worker steps all copies of a simulator, in the process that infers.
_ONE_WORKER = {"num_workers": 1, "num_envs_per_worker": 1, "worker_num_splits": 1, "inline_samplers": 1}
# About the settings of rsl_rl and rl_games. The size of a minibatch follows from the number of copies.
SIMULATORS: Mapping[str, Any] = {
    **{flag: value for flag, value in _SMALL_TASKS.items() if flag != "batch_size"},
    **_ONE_WORKER,
    "encoder_mlp_layers": (256, 128, 64),
    "nonlinearity": "elu",
    "initial_stddev": 1.0,
    "rollout": 24,
    "num_batches_per_iteration": 4,
    "ppo_epochs": 5,
    "learning_rate": 1e-3,
    "lr_schedule": "kl_adaptive_minibatch",
    "lr_schedule_kl_threshold": 0.01,
    "ppo_clip_ratio": 0.2,
    "exploration_loss_coeff": 0.0,
    "max_grad_norm": 1.0,
}
SETS: Mapping[str, Mapping[str, Any]] = {
    "vectors": VECTORS,
    "pictures": PICTURES,
    "simulators": SIMULATORS,
}
# What a simulator calls the observations for its critic -> what it calls those for its actor. A group of the
# name "critic" is for the critic beside any other.
ACTOR_GROUPS: Mapping[str, Collection[str]] = {
    "privileged_state": ("state",),  # MuJoCo Playground
    "states": ("obs",),  # rl_games
}
# Groups that simulators have for a teacher, a critic or a bonus, not for the policy that is used in the end.
PRIVILEGED_GROUPS = frozenset({"teacher", "privileged", "privileged_obs", "privileged_state", "rnd_state"})
# The flags that such a set, the number of agents, or the bounds of their actions may choose.
FOLLOWING = frozenset(
    {"async_rl", "critic_only_keys", "node_workers", "sample_ahead", "scale_actions"}.union(*SETS.values())
)
# Flags that describe a memory: whoever sets one of them wants one.
_MEMORY_FLAGS = ("rnn_type", "rnn_num_layers", "gtrxl_memory", "gtrxl_heads")
_MANY_PASSES = ("APPO",)  # algorithms with clipped losses, which many passes over the same samples need
# These flags depend on each other: whoever sets one of them chooses the others too.
_BELONG_TOGETHER = {"rollout", "recurrence", "batch_size", "num_batches_per_iteration"}
# In an iteration, where sampling and learning alternate by default: their number has to suit the agents.
_MOST_BATCHES = 4 * _SMALL_TASKS["num_batches_per_iteration"]
# In an iteration with a simulator: samples of few copies, at least; rollouts of all copies, at most.
_FEWEST_SAMPLES = 1024
_MOST_ROLLOUTS = 4


def follow_observation(
    config: Config,
    observed: str,
    num_agents: int,
    is_continuous: bool,
    has_other_bounds: bool,
    groups: Collection[str] | None = None,
) -> tuple[Config, dict[str, Any]]:
    """Chooses defaults for open flags by what the env observes. Returns the new configuration, and flag ->
    value of the flags that were chosen.

    For --explain, the lowest layer in `Config.choices` records what other flags would have got here.

    observed: "vectors" or "pictures".
    num_agents: number of agents of an env.
    is_continuous: whether the agents have continuous actions.
    has_other_bounds: whether some of these actions have bounds other than -1 and 1.
    groups: keys of the observations of a batched simulator; None for any other env.

    Raises ConfigError if a default contradicts a flag that was set.
    """
    choose = functools.partial(
        _chosen,
        observed=observed,
        num_agents=num_agents,
        is_continuous=is_continuous,
        has_other_bounds=has_other_bounds,
        groups=groups,
    )
    chosen = choose(config)
    layer = f"defaults for {observed if groups is None else 'simulators'}"
    followed = dataclasses.replace(config.choose(layer, chosen), open_flags=frozenset())
    for flag in FOLLOWING & config.choices.keys():
        left_out = config.choose("", {flag: FLAGS[flag].default})
        others = choose(dataclasses.replace(left_out, open_flags=config.open_flags | {flag}))
        if flag in others:
            followed = followed.could_choose(layer, {flag: others[flag]})
    check_consistency(followed)
    return followed, chosen


def _chosen(
    config: Config,
    observed: str,
    num_agents: int,
    is_continuous: bool,
    has_other_bounds: bool,
    groups: Collection[str] | None,
) -> dict[str, Any]:
    """Returns flag -> default, for those of `config.open_flags` that get one; see `follow_observation`."""
    kept: set[str] = set()
    if groups is None and not config.open_flags.issuperset(_BELONG_TOGETHER):
        kept |= _BELONG_TOGETHER
    if not config.open_flags.issuperset(_MEMORY_FLAGS):
        kept |= {"use_rnn"}
    if config.run.algo not in _MANY_PASSES:
        kept |= {"ppo_epochs"}
    changeable = config.open_flags - kept
    defaults = dict(SETS[observed] if groups is None or observed == "pictures" else SIMULATORS)
    learns_better = is_continuous or (observed == "pictures" and not may_have_gpu(config.run.device))
    may_alternate = learns_better and changeable >= {"async_rl", "ppo_epochs"}
    if groups is not None:
        defaults |= _ONE_WORKER | _for_simulator(config, changeable, num_agents, groups, defaults)
    elif "num_batches_per_iteration" in changeable and (may_alternate or not config.sampling.async_rl):
        defaults |= _alternation(config, num_agents)
    if has_other_bounds and config.model.actor_critic_custom is None:  # which has a scale of its own
        defaults["scale_actions"] = True
    return {flag: value for flag, value in defaults.items() if flag in changeable}


def critic_keys(groups: Collection[str]) -> tuple[str, ...]:
    """Returns the keys of a simulator's observations that, judged by their names, are for the critic only."""
    names = {key: key.partition("/")[0] for key in groups}
    others = {*names.values()} - {"critic"}
    return tuple(
        key
        for key, name in names.items()
        if (others if name == "critic" else others & {*ACTOR_GROUPS.get(name, ())})
    )


def privileged_keys(groups: Collection[str]) -> tuple[str, ...]:
    """Returns the keys of a simulator's observations that the actor gets by default although their names mark
    them as privileged; empty if the actor gets no others."""
    of_actor = [key for key in groups if key not in critic_keys(groups)]
    privileged = tuple(key for key in of_actor if key.partition("/")[0] in PRIVILEGED_GROUPS)
    return privileged if len(privileged) < len(of_actor) else ()


def _for_simulator(
    config: Config,
    changeable: Collection[str],
    num_agents: int,
    groups: Collection[str],
    usual: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns flag -> default, for the flags that depend on a simulator's number of copies, on its
    observations, or on flags that are set.

    changeable: flags that may get a default. num_agents: number of copies. usual: the defaults for the kind
    of observation.
    """
    sampling, model = config.sampling, config.model
    num_workers = 1 if "num_workers" in changeable else sampling.num_workers
    chosen: dict[str, Any] = {"inline_samplers": num_workers}
    if config.cluster.num_nodes > 1:
        chosen["node_workers"] = num_workers
    if "worker_num_splits" not in changeable:  # refused if there are several, with a line about simulators
        chosen["num_envs_per_worker"] = sampling.worker_num_splits
    chosen |= _iteration(config, changeable, num_workers * num_agents, usual)
    may_share = model.actor_critic_share_weights and "actor_critic_share_weights" not in changeable
    if model.actor_critic_custom is None and not may_share and (keys := critic_keys(groups)):
        chosen["critic_only_keys"] = keys
    return chosen


def _iteration(
    config: Config, changeable: Collection[str], together: int, usual: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns flag -> default, for the flags that decide how many samples of a simulator the learner trains
    on at a time: --rollout, --batch_size and --num_batches_per_iteration. Flags that are not changeable keep
    their values, and the others are chosen to fit them.

    An iteration is one rollout of all copies, as in rsl_rl and rl_games, or several if the copies are few. If
    sampling and learning can alternate, --async_rl=False is added, and for iterations of a single SGD step
    the --lr_schedule of `config`, since the usual one may need a KL divergence. Without a GPU, --sample_ahead
    is added if the learner then makes up for the lag: with it, a simulator and a learner that use few cores
    each work at the same time (measured in BATCHED.md).

    changeable: flags that may get a default. together: number of copies of all workers. usual: the defaults
        for the kind of observation.
    """
    learning, sampling = config.learning, config.sampling
    rollout, num_batches, epochs = (
        usual[flag] if flag in changeable else getattr(learning, flag)
        for flag in ("rollout", "num_batches_per_iteration", "ppo_epochs")
    )
    if "rollout" in changeable:
        rollout = _nearest_rollout(learning, "batch_size" not in changeable, together, rollout)
    alternates = sampling.num_policies == 1 and not sampling.sampler_only and config.cluster.num_nodes == 1
    if "batch_size" in changeable:
        unit = math.lcm(together, num_batches * sampling.learners_per_policy)
        num_trajectories = unit * math.ceil(_FEWEST_SAMPLES / (rollout * unit))
        batch_size = num_trajectories // num_batches * rollout
    else:
        batch_size = learning.batch_size
        of_batch = max(1, batch_size // rollout)
        unit = math.lcm(together, of_batch) // of_batch  # minibatches in which all copies have equal shares
        fitting = unit * math.ceil(_FEWEST_SAMPLES / (batch_size * unit))
        most = max(_FEWEST_SAMPLES, _MOST_ROLLOUTS * rollout * together)
        if "num_batches_per_iteration" not in changeable:
            alternates &= num_batches % unit == 0
        elif fitting * batch_size <= most:
            num_batches = fitting
        else:
            alternates = False
    with_vtrace = usual["with_vtrace"] if "with_vtrace" in changeable else learning.with_vtrace
    is_alternating = "async_rl" in changeable or not sampling.async_rl
    is_lag_allowed = epochs * num_batches < sampling.max_policy_lag
    may_sample_ahead = is_alternating and is_lag_allowed and config.run.algo == "APPO" and not with_vtrace
    chosen = {"rollout": rollout, "batch_size": batch_size, "num_batches_per_iteration": num_batches}
    if alternates:
        chosen["async_rl"] = False
        if epochs * num_batches == 1:  # before the only step there is no KL divergence
            chosen["lr_schedule"] = learning.lr_schedule
        elif may_sample_ahead and not may_have_gpu(config.run.device):
            chosen["sample_ahead"] = True
    return chosen


def _nearest_rollout(learning: LearningFlags, fits_batch: bool, together: int, usual: int) -> int:
    """Returns the length of a rollout near the usual length that consists of whole chunks of --recurrence.

    fits_batch: whether the length must also divide --batch_size. Then lengths are preferred with which all
        copies have equal shares in whole minibatches after few rollouts.
    together: number of copies of all workers. usual: the usual length.
    """
    chunk = max(1, learning.recurrence)
    lengths: Sequence[int] = range(chunk, chunk + 2 * usual, chunk)
    if fits_batch:
        lengths = [length for length in lengths if learning.batch_size % length == 0]

    def cost(length: int) -> float:
        num_rollouts = math.lcm(together, learning.batch_size // length) // together if fits_batch else 1
        return num_rollouts * max(length / usual, usual / length)

    return min(lengths, key=cost, default=chunk)


def _alternation(config: Config, num_agents: int) -> dict[str, Any]:
    """Returns flags with which sampling and learning alternate; an empty dict if other flags rule this
    out, or if an iteration would need more than _MOST_BATCHES minibatches and --async_rl=False is not given.

    Many passes over samples of an earlier policy learn continuous control badly, see "Default flags" in
    configs/README.md. With pictures and without a GPU, samples wait for a learner that makes many passes, and
    are up to five iterations old when it gets them. Sampling at the same time would gain nothing there, since
    both need all cores. All agents contribute equally many trajectories to each iteration, so their number
    decides how many minibatches it can have.
    """
    sampling = config.sampling
    if sampling.num_policies > 1 or sampling.sampler_only or config.cluster.num_nodes > 1:
        return {}
    envs_per_worker = sampling.num_envs_per_worker or sampling.worker_num_splits
    # Trajectories in one rollout of all agents, at least.
    together = sampling.num_workers * envs_per_worker * num_agents
    of_batch = _SMALL_TASKS["batch_size"] // _SMALL_TASKS["rollout"]
    unit = math.lcm(together, of_batch) // of_batch
    num_batches = unit * max(1, round(_SMALL_TASKS["num_batches_per_iteration"] / unit))
    if sampling.async_rl and num_batches > _MOST_BATCHES:
        return {}
    return {"async_rl": False, "num_batches_per_iteration": num_batches}
