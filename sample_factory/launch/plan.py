"""The plan of a training: every check and every choice, in one pass, before any worker starts."""

import functools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sample_factory.config.config import Config
from sample_factory.config.consistency import check_training
from sample_factory.config.observation_defaults import critic_keys, follow_observation, privileged_keys
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import EnvInfo, make_adapted_env
from sample_factory.envs.wrappers.team_view import ADDED, view_of_state, view_of_team
from sample_factory.exchange.run_plan import ActingPlan, EnvPlan, Note, RunPlan, SamplingPlan
from sample_factory.exchange.topology import make_topology
from sample_factory.launch.arrangement import arrange
from sample_factory.launch.checks import (
    check_alternation,
    check_cluster,
    check_critic_only_keys,
    check_env,
    check_levels,
    check_machine,
    check_names,
    check_simulator,
    flags_without_effect,
    probe_env,
    probe_networks,
)
from sample_factory.launch.notes import (
    describe_networks,
    note_bounds,
    note_expectation,
    note_levels,
    note_limits,
)
from sample_factory.launch.start_from import transfer_files
from sample_factory.mainloop.level_choice import DRAWN_ALIKE
from sample_factory.mainloop.levels import LevelsObserver
from sample_factory.mainloop.observing import follows_episodes, make_observers
from sample_factory.models.encoder_choice import MIN_SMALL_SIDE
from sample_factory.models.policy_spec import PolicySpec, make_policy_spec
from sample_factory.sampling.matchmaking.matchmaking import CheckedMatchmaking
from sample_factory.spaces.actions import ACTION_MASK, action_layout
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import image_layout, is_image

MAX_RANDOM_ROLLOUTS = 8  # decorrelation: upper limit of the random first steps of an env, in rollouts
MAX_RANDOM_SECONDS = 10.0  # for the random first steps of all envs of a worker


def plan_run(config: Config, family: EnvFamily, info: EnvInfo | None = None) -> RunPlan:
    """Returns the plan of a training, without its evaluations.

    config: the configuration that `parse_config` returned.
    info: properties of the env; None: the env is tried out in a child process, and so is a network of the
        user's own.

    Raises ConfigError for flags that cannot be used, ImportError if a package for --num_nodes (ray,
    zstandard) or --queue (faster-fifo) is missing, CommandFailed if the Ray cluster cannot be reached, and
    Failure if the env, or a network or algorithm of the user's own, cannot be made.
    """
    algorithm, matchmaking = check_names(config)
    check_machine(config, is_training=True)
    check_cluster(config)
    transfer_from = transfer_files(config)
    observers = make_observers(config)
    if info is None:
        info = probe_env(config, family)
    followed, notes = with_defaults_for(config, info.kinds, info.is_simulator)
    lines = flags_without_effect(followed, info.kinds, config)
    notes += [Note(line, is_warning=True) for line in lines]
    notes += note_bounds(followed, info.kinds)
    central, family, info = with_centralized_critic(followed, family, info)
    check_training(central)
    check_critic_only_keys(central, info.kinds)
    check_env(central, info)
    check_simulator(central, info)
    complete, num_inline_samplers, more_notes = arrange(central, info)
    topology = make_topology(complete, info, num_inline_samplers)
    check_alternation(complete, topology)
    check_levels(complete, info)
    kinds = [topology.kind_of_policy(policy_id) for policy_id in range(topology.num_policies)]
    policies = [make_policy_spec(complete, *info.kinds.spaces[kind]) for kind in kinds]
    notes += [
        *more_notes,
        *note_levels(complete, info),
        *describe_networks(complete, info),
        *note_limits(complete),
        *note_expectation(config),
    ]
    seed = random.SystemRandom().randrange(2**31) if config.run.seed is None else config.run.seed
    sampling = SamplingPlan(
        envs=plan_envs(complete, family, matchmaking, seed, follows_episodes(observers), info),
        acting=plan_acting(complete, policies, seed),
        info=info,
        topology=topology,
        state_size=probe_networks(complete, policies, algorithm),
        flags=complete.sampling,
        niceness=complete.sampling.default_niceness,
        silent_seconds=complete.monitoring.heartbeat_reporting_interval,
    )
    if info.levels and complete.env.level_choice not in DRAWN_ALIKE:
        name = f"--level_choice={complete.env.level_choice}"
        observers = {**observers, name: LevelsObserver(info.levels, complete)}
    return RunPlan(
        config=complete,
        family=family,
        sampling=sampling,
        algorithm=algorithm,
        transfer_from=transfer_from,
        observers=observers,
        notes=tuple(notes),
    )


def plan_envs(
    config: Config,
    family: EnvFamily,
    matchmaking: Any,
    seed: int,
    reports_infos: bool = False,
    info: EnvInfo | None = None,
) -> EnvPlan:
    """Returns how the rollout workers of a training make and step their envs.

    matchmaking: the factory that --matchmaking names.
    seed: seed of the run, from which the envs' seeds are made.
    reports_infos: whether an observer reads the infos of episodes.
    info: properties of the env, found by trying it out; None: the envs are not compared with them.
    """
    sampling = config.sampling
    cfg = config.namespace()
    decorrelates = sampling.decorrelate_envs_on_one_worker and not sampling.benchmark
    return EnvPlan(
        make_env=functools.partial(make_adapted_env, family, cfg),
        cfg=cfg,
        matchmaking=functools.partial(CheckedMatchmaking, config.selfplay.matchmaking, matchmaking),
        seed=seed,
        mix_policies=sampling.pbt_mix_policies_in_one_env,
        past_share=config.selfplay.selfplay_past_share,
        reward_scale=config.learning.reward_scale,
        reward_clip=config.learning.reward_clip,
        shared_reward=config.learning.shared_reward,
        sharers=info.teams if info is not None and config.learning.shared_reward else (),
        max_random_steps=MAX_RANDOM_ROLLOUTS * config.learning.rollout if decorrelates else 0,
        # A serial run must be repeatable, so it depends on no time.
        max_random_seconds=math.inf if sampling.serial_mode else MAX_RANDOM_SECONDS,
        pause_seconds=0.0 if sampling.benchmark else sampling.decorrelate_experience_max_seconds,
        reports_infos=reports_infos,
        teams=() if info is None else info.teams_that_meet,
        kinds=None if info is None else info.kinds,
    )


def plan_acting(config: Config, policies: Sequence[PolicySpec], seed: int) -> ActingPlan:
    """Returns how the policy workers of a training answer requests."""
    return ActingPlan(
        dict(enumerate(policies)),
        seed,
        cuda_graphs=config.run.cuda_graphs,
        experiment_dir=config.experiment_dir,
        max_past_selves=config.selfplay.selfplay_max_opponents,
    )


def with_defaults_for(
    config: Config, kinds: AgentKinds, is_simulator: bool = False
) -> tuple[Config, list[Note]]:
    """Returns the configuration with the defaults of flags for pictures or vectors, whichever the agents
    observe, and lines for the log. Small boards and tables count as vectors.

    is_simulator: whether the env is a batched simulator, for which there are further defaults.
    Raises ConfigError if a default contradicts a flag.
    """
    if not config.open_flags:
        return config, []
    spaces = [item for kind in kinds.spaces for item in kind.observation.spaces.items()]
    boxes = [box for key, box in spaces if key != ACTION_MASK]
    is_picture = [is_image(box) and min(image_layout(box.shape).size[1:]) >= MIN_SMALL_SIDE for box in boxes]
    observed = "pictures" if any(is_picture) else "vectors"
    layouts = [action_layout(kind.action, scales=True) for kind in kinds.spaces]
    is_continuous = any(layout.box_actions for layout in layouts)
    has_other_bounds = any(layout.is_scaled for layout in layouts)
    groups = [key for key, _ in spaces if key != ACTION_MASK] if is_simulator else None
    may_choose_critic_keys = "critic_only_keys" in config.open_flags
    config, chosen = follow_observation(
        config, observed, len(kinds.of_agent), is_continuous, has_other_bounds, groups
    )
    if not chosen:
        return config, []
    values = (" ".join(map(str, value)) if isinstance(value, tuple) else value for value in chosen.values())
    listed = ", ".join(f"{flag} {value}" for flag, value in zip(chosen, values))
    memory = "" if config.model.may_remember else "; --use_rnn=True adds a memory"
    keys = ", ".join(key for key, _ in spaces if key != ACTION_MASK)
    actions = " and continuous actions" if is_continuous and "async_rl" in chosen else ""
    if is_simulator:
        observed = f"a batched simulator of {len(kinds.of_agent):,} envs"
    text = f"Defaults for {observed}{actions}, since the env observes {keys}: {listed}"
    notes = [Note(f"{text}{memory}")]
    if (
        is_continuous
        and "ppo_epochs" in chosen
        and config.sampling.async_rl
        and "async_rl" not in config.typed
    ):
        text = (
            "Continuous actions are learned better if sampling and learning alternate (--async_rl=False), "
            "which other flags, or so many agents, do not allow here by default"
        )
        notes.append(Note(text, is_warning=True))
    privileged = " ".join(privileged_keys(groups or ()))
    keys = " ".join(filter(None, (*critic_keys(groups or ()), privileged)))
    if keys and not config.model.critic_only_keys and config.typed.get("actor_critic_share_weights"):
        text = f"--actor_critic_share_weights=True: the actor observes {keys}, too"
        notes.append(Note(text, is_warning=True))
    elif privileged and may_choose_critic_keys and config.model.actor_critic_custom is None:
        text = f"The actor observes {privileged}; --critic_only_keys {keys} leaves it to the critic"
        notes.append(Note(text, is_warning=True))
    return config, notes


def with_centralized_critic(
    config: Config, family: EnvFamily, info: EnvInfo
) -> tuple[Config, EnvFamily, EnvInfo]:
    """Returns config, family and info of a run in which the critic of each agent also observes the agent's
    team mates, or the state of the env. Without --centralized_critic, the config loses keys that an earlier
    run has added for it; family and info are returned unchanged.

    Raises ConfigError if the env has no teams, or no state.
    """
    # cfg.json also lists the keys that --centralized_critic added in that run: these are dropped. Keys that
    # were typed, or that the env has, stay; `check_critic_only_keys` refuses those that are misspelled.
    named = {*config.typed.get("critic_only_keys", ())}
    named = named.union(*(kind.observation.spaces for kind in info.kinds.spaces))
    keys = tuple(key for key in config.model.critic_only_keys if key in named or not ADDED.match(key))
    if config.model.centralized_critic:
        sees = config.model.centralized_critic_sees
        view = (
            view_of_state(info.kinds, info.state_space)
            if sees == "state"
            else view_of_team(info.kinds, info.teams, with_actions=sees == "actions")
        )
        keys = tuple(dict.fromkeys(keys + view.keys))
        family = replace(family, wrap=view.wrap)
        info = info._replace(kinds=view.kinds)
    if keys != config.model.critic_only_keys:
        config = config.choose("the env, for --centralized_critic", {"critic_only_keys": keys})
    return config, family, info
