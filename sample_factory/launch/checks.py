"""Checks of what needs the env, the machine or registered parts; config/consistency.py has the others."""

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sample_factory.config.algorithms import BUILT_IN, algorithm_info, registered_algorithm
from sample_factory.config.config import Config
from sample_factory.config.effects import Facts, without_effect
from sample_factory.config.flags import NEVER, ConfigError
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import EnvInfo, probe_env_info
from sample_factory.envs.levels import FIXED
from sample_factory.envs.packages import is_installed, missing_package
from sample_factory.exchange.topology import Topology
from sample_factory.mainloop.level_choice import DRAWN_ALIKE, registered_level_choice
from sample_factory.models import network_registry
from sample_factory.models.encoder_choice import (
    MIN_SMALL_SIDE,
)
from sample_factory.models.network_registry import (
    users_parts,
)
from sample_factory.models.policy_spec import PolicySpec, probe_state_size, state_size
from sample_factory.runtime.child import call_in_child
from sample_factory.runtime.failures import Failure
from sample_factory.runtime.gpu import name_of_gpu, why_no_gpu
from sample_factory.runtime.local_ray import find_cluster
from sample_factory.runtime.log import log
from sample_factory.runtime.queues import check_transport
from sample_factory.sampling.matchmaking.matchmaking import registered_matchmaking
from sample_factory.spaces.actions import ACTION_MASK, action_layout
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import Indices, image_layout, is_image


def check_names(config: Config) -> tuple[Any, Any]:
    """Returns the factories that --algo and --matchmaking name; "module:attribute" is returned as it is.

    Raises ConfigError for a name that is not registered, including names of networks and their parts, and for
    an encoder that does not read what --centralized_critic adds.
    """
    network_registry.check_names(config.model)
    encoder = config.model.encoder_custom
    if config.model.centralized_critic and encoder in network_registry.READ_ONLY_OWN_KEYS:
        raise ConfigError(
            f"--centralized_critic=True needs an encoder that reads every observation, and {encoder} reads "
            "only those of its family; choose another --encoder_custom"
        )
    return registered_algorithm(config.run.algo), registered_matchmaking(config.selfplay.matchmaking)


def check_machine(config: Config, is_training: bool = False) -> None:
    """Checks that this machine offers the GPUs, the priority and the kind of queue that the flags name.

    is_training: whether to check all flags in effect, also saved ones; otherwise only the typed flags.

    Raises ConfigError for GPUs or a priority that the machine does not offer, ImportError if the package
    faster-fifo is missing for --queue=faster_fifo.
    """
    why = call_in_child("gpu_probe", why_no_gpu) if config.run.device == "gpu" else None
    if why is not None:
        raise ConfigError(f"--device=gpu, but {why}. Use --device=cpu or auto")
    check_transport(config.sampling.queue)
    if not config.sampling.serial_mode:
        used = vars(config.sampling) if is_training else config.typed
        gpus = () if used.get("inline_samplers") else used.get("actor_worker_gpus", ())
        check_workers(used.get("default_niceness", 0), "--actor_worker_gpus", gpus)


def check_workers(niceness: int, flag: str, gpus: Sequence[int]) -> None:
    """Raises ConfigError if processes of this account cannot get the niceness or the GPUs.

    flag: name of the flag that sets the GPUs. gpus: indices of the GPUs.
    """
    try:
        for index in gpus:
            name_of_gpu(index)
        if niceness < 0:
            call_in_child("niceness_probe", os.nice, (niceness,))
    except ValueError as error:
        raise ConfigError(f"{flag}: {error}") from None
    except Failure as failure:
        raise ConfigError(
            f"--default_niceness={niceness}: this account may not raise priorities ({failure.text})"
        ) from None


def check_cluster(config: Config) -> None:
    """Checks that nodes can be started, if --num_nodes is more than 1: raises ImportError if the package ray
    or zstandard is missing, CommandFailed if the Ray cluster cannot be reached."""
    if config.cluster.num_nodes == 1:
        return
    for package in ("ray", "zstandard"):
        if not is_installed(package):
            raise missing_package(f"--num_nodes={config.cluster.num_nodes}", package, "ray")
    cluster = find_cluster(config.cluster.ray_address)
    if cluster is not None:
        cluster.check()


def probe_env(config: Config, family: EnvFamily, cfg: Any = None) -> EnvInfo:
    """Makes the env in a child process, tries it out, and returns its properties. Raises ConfigError for bad
    input, Failure for any other fault of the env.

    cfg: flags that the env gets as attributes, in place of those of `config`.
    """
    return probe_env_info(family, config.namespace() if cfg is None else cfg)


def check_env(config: Config, info: EnvInfo) -> None:
    """Raises ConfigError for flags of a training that contradict the spaces or the kinds of agents of the
    env, e.g. for a number of policies that is not a multiple of the number of kinds."""
    check_normalized_keys(config, info)
    learning = config.learning
    has_box = any(action_layout(spaces.action).box_actions for spaces in info.kinds.spaces)
    if has_box and learning.exploration_loss == "symmetric_kl" and learning.exploration_loss_coeff:
        raise ConfigError(
            "--exploration_loss=symmetric_kl needs discrete actions, and this env has continuous ones: there "
            "is no uniform distribution over all numbers; use --exploration_loss=entropy"
        )
    num_policies, num_kinds = config.sampling.num_policies, len(info.kinds.spaces)
    if num_policies % num_kinds:
        raise ConfigError(
            f"--num_policies={num_policies}: the env has {num_kinds} kinds of agents with different spaces "
            f"({info.kinds}), and policy p plays kind p % {num_kinds}; use {num_kinds} or {2 * num_kinds}"
        )
    if config.population.with_pbt and num_kinds > 1:
        raise ConfigError(
            "--with_pbt=True copies weights between policies, but the agents of this env have different "
            "spaces, so its policies have different networks; use --with_pbt=False"
        )
    if learning.shared_reward and len({*info.teams}) == len(info.teams):
        raise ConfigError(
            f"--shared_reward={learning.shared_reward:g} needs an env with agents that play together; here "
            "each plays alone"
        )
    if config.selfplay.selfplay_past_share > 0:
        _check_past_selves(config, info)


def check_alternation(config: Config, topology: Topology) -> None:
    """Raises ConfigError if, with --async_rl=False, the trajectories of an iteration cannot be divided
    equally among the agents."""
    trajectories, num_agents = topology.trajectories_per_batch, topology.num_agents
    if config.sampling.async_rl or trajectories % num_agents == 0:
        return
    batch = config.learning.batch_size * config.learning.num_batches_per_iteration
    unit = num_agents * topology.rollout
    raise ConfigError(
        f"--async_rl=False: batch_size * num_batches_per_iteration = {batch} must be a multiple of "
        f"agents * rollout = {num_agents} * {topology.rollout} = {unit}, so that every agent contributes "
        "equally many rollouts to each iteration; the nearest that works is "
        f"{max(unit, round(batch / unit) * unit)}. With --async_rl=True any number works"
    )


def _check_past_selves(config: Config, info: EnvInfo) -> None:
    """Raises ConfigError unless agents play against each other, so that a past self can be an opponent."""
    flag = f"--selfplay_past_share={config.selfplay.selfplay_past_share}"
    num_copies = len({*info.teams}) if info.are_copies else 1
    if info.num_agents <= num_copies:
        has = f"{config.run.env} has one{' in each copy' * (num_copies > 1)}"
        raise ConfigError(
            f"{flag} needs an env with several agents, and {has}: past selves would have no agent to play; "
            "use --selfplay_past_share=0"
        )
    if num_copies > 1:
        raise ConfigError(
            f"{flag}: of all agents in {num_copies} copies, one would learn, and be compared with opponents "
            "that it never meets; make one copy in each env (--vector_env_copies=1)"
        )


def check_levels(config: Config, info: EnvInfo) -> None:
    """Raises ConfigError if --level_choice names no way to choose levels, or a way that does not work here,
    e.g. fixed with fewer envs than levels, or sequence without --train_for_env_steps.

    config: must have a number for --num_envs_per_worker.
    """
    choice, count = config.env.level_choice, len(info.levels)
    if not count:
        return
    registered_level_choice(choice)  # raises
    if choice == "sequence" and config.monitoring.train_for_env_steps >= NEVER:
        raise ConfigError(
            "--level_choice=sequence divides --train_for_env_steps among the levels, which has no limit "
            "here; give it one"
        )
    has_nodes = config.cluster.num_nodes > 1
    if choice not in DRAWN_ALIKE and has_nodes:
        raise ConfigError(
            f"--level_choice={choice}: envs on other machines get no values of the run; use "
            f"--level_choice={' or '.join(DRAWN_ALIKE)} with --num_nodes"
        )
    num_envs = config.sampling.num_workers * config.sampling.envs_per_worker
    if choice == FIXED and num_envs < count and not has_nodes:
        raise ConfigError(
            f"--level_choice=fixed: each of the {num_envs} envs (--num_workers times --num_envs_per_worker) "
            f"plays one level, and there are {count}; make as many envs, or use --level_choice=uniform"
        )


def check_simulator(config: Config, info: EnvInfo) -> None:
    """For a training in a simulator of many envs: raises ConfigError for flags that would make several
    simulators in one process, or a simulator in a process that does not compute actions."""
    sampling = config.sampling
    if not info.is_simulator:
        return
    has = f"make_env returns a simulator of {info.num_agents:,} envs"
    other = "--vector_env_copies=N makes" if "vector_env_copies" in config.flat() else "make_env can choose"
    for flag in ("worker_num_splits", "num_envs_per_worker", "node_envs_per_worker"):
        value = config.flat()[flag]
        if value is not None and value > 1:
            raise ConfigError(
                f"--{flag}={value}: {has}, and each worker steps one; use --{flag}=1. {other} another number "
                "of envs"
            )
    if sampling.inline_samplers == 0 and not sampling.serial_mode:
        raise ConfigError(
            f"--inline_samplers=0: {has}, and the process that steps them also computes their actions; leave "
            f"it out, or use --inline_samplers={sampling.num_workers}"
        )


def check_normalized_keys(config: Config, info: EnvInfo) -> None:
    """Raises ConfigError if --normalize_input_keys names a key that is no observation, or an observation that
    is an index (Discrete)."""
    named = config.model.normalize_input_keys
    observed = {key: space for kind in info.kinds.spaces for key, space in kind.observation.spaces.items()}
    # An evaluation needs no observations that only the critic gets.
    unknown = [key for key in named if key not in observed and key not in config.model.critic_only_keys]
    if unknown:
        raise ConfigError(
            f"--normalize_input_keys: the env has no observation {', '.join(unknown)}; it has "
            f"{', '.join(observed)}"
        )
    indices = [key for key in named if isinstance(observed.get(key), Indices)]
    if indices:
        raise ConfigError(
            f"--normalize_input_keys: {', '.join(indices)} is Discrete or MultiDiscrete, and an index is "
            "never normalised; leave it out"
        )


def check_critic_only_keys(config: Config, kinds: AgentKinds) -> None:
    """Raises ConfigError if --critic_only_keys of a training names a key that is no observation, or leaves
    the actor nothing to observe."""
    keys = config.model.critic_only_keys
    own = [[key for key in kind.observation.spaces if key != ACTION_MASK] for kind in kinds.spaces]
    observed = list(dict.fromkeys(itertools.chain(*own)))
    for key in keys:
        if key == ACTION_MASK:
            raise ConfigError(f"--critic_only_keys: {ACTION_MASK} is for the actor; leave it out")
        if key not in observed:
            raise ConfigError(
                f"--critic_only_keys: the env has no observation {key}; it has {', '.join(observed)}"
            )
    for names in own:
        if set(names) <= set(keys):
            raise ConfigError(
                f"--critic_only_keys {' '.join(keys)} leaves the actor nothing to observe: the env has "
                f"{', '.join(names)}; leave one of them out"
            )


def flags_without_effect(config: Config, kinds: AgentKinds, parsed: Config | None = None) -> list[str]:
    """Returns a line for each typed flag that has no effect in an env with these agents, except for flags
    about which `parse_config` has logged a line.

    parsed: the configuration as `parse_config` returned it, without defaults for the env's observations; None
        if that is `config`.
    """
    known = without_effect(config if parsed is None else parsed)
    return [line for line in without_effect(config, _facts(kinds)) if line not in known]


def log_flags_without_effect(config: Config, kinds: AgentKinds, parsed: Config | None = None) -> None:
    """Logs a warning for each typed flag that has no effect in an env with these agents. `parsed`: the
    configuration as `parse_config` returned it; None if that is `config`."""
    for line in flags_without_effect(config, kinds, parsed):
        log.warning("%s", line)


def _facts(kinds: AgentKinds) -> Facts:
    """Returns the properties of an env by which flags may have no effect, e.g. {"observations": ["image"],
    "actions": ["discrete"], "agents": ["single"]}."""
    observed = [item for kind in kinds.spaces for item in kind.observation.spaces.items()]
    boxes = [box for key, box in observed if key != ACTION_MASK]
    layouts = [action_layout(kind.action) for kind in kinds.spaces]
    has = {
        "image observations": any(map(is_image, boxes)),
        "vector observations": not all(map(_is_picture, boxes)),
        "continuous actions": any(layout.box_actions for layout in layouts),
        "discrete actions": any(layout.discrete_actions for layout in layouts),
        "several agents": len(kinds.of_agent) > 1,
        "single agents": len(kinds.of_agent) == 1,
    }
    facts: dict[str, list[str]] = {}
    for text, is_so in has.items():
        value, name = text.split()
        facts[name] = facts.get(name, []) + [value] * is_so
    return facts


def _is_picture(box: Any) -> bool:
    """Returns whether an observation space is always encoded as an image: bytes, and not small in height or
    width."""
    is_bytes = is_image(box) and box.dtype == np.uint8
    return is_bytes and min(image_layout(box.shape).size[1:]) >= MIN_SMALL_SIDE


def probe_networks(config: Config, policies: Sequence[PolicySpec], algorithm: Any) -> int:
    """Tries out a network and an algorithm of the user's own, if there are any. Returns the number of floats
    in the recurrent state of an agent.

    Raises ConfigError or Failure if the network or the algorithm cannot be used.
    """
    size = recurrent_state_size(config, policies)
    if algorithm not in {info.factory for info in BUILT_IN.values()}:
        needs_costs = algorithm_info(config.run.algo).needs_costs
        args = (config.run.algo, algorithm, policies[0], config.learning, needs_costs)
        _try_out(config, "algorithm_probe", _probe_algorithm, args)
    return size


def recurrent_state_size(config: Config, policies: Sequence[PolicySpec]) -> int:
    """Returns the number of floats in the recurrent state of an agent; tries out a network of the user's own.
    Raises ConfigError or Failure if the network cannot be used."""
    if not users_parts(config.model):
        return state_size(config.model, policies[0].has_critic)
    size: int = _try_out(config, "network_probe", probe_state_size, (policies,))
    return size


def _try_out(config: Config, name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Calls a function that loads torch, and returns its result: in a child process, since the parent never
    loads torch; in serial mode, in this process.
    Raises ConfigError if the function raises one, Failure for any other exception."""
    if not config.sampling.serial_mode:
        return call_in_child(name, function, args, from_template=True)
    try:
        return function(*args)
    except ConfigError:
        raise
    except Exception as error:
        raise Failure.of(error, name) from error


def _probe_algorithm(*args: Any) -> None:
    """In a child, or in serial mode: checks an algorithm by `probe_algorithm`, whose import loads torch."""
    from sample_factory.learning.algorithm_check import probe_algorithm

    probe_algorithm(*args)
