"""The plan of a run: every check and every choice, in one pass, before any worker starts."""

import random
from dataclasses import replace

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.observation_defaults import follow_observation
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.wrappers.team_view import ADDED, view_of_state, view_of_team
from sample_factory.exchange.run_plan import Note, RunPlan
from sample_factory.exchange.topology import make_topology
from sample_factory.launch.arrangement import arrange
from sample_factory.launch.checks import (
    check_critic_only_keys,
    check_env,
    check_machine,
    check_names,
    describe_networks,
    flags_without_effect,
    probe_env,
    probe_networks,
)
from sample_factory.launch.start_from import transfer_files
from sample_factory.mainloop.observing import follows_episodes, make_observers
from sample_factory.models.encoder_choice import MIN_SMALL_SIDE
from sample_factory.models.network_registry import READ_ONLY_OWN_KEYS
from sample_factory.models.policy_spec import make_policy_spec
from sample_factory.spaces.actions import ACTION_MASK, action_layout
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import image_layout, is_image

FAR = 10.0  # numbers of actions above it, or below its inverse, are far from the 1 of a new network


def plan_run(
    config: Config,
    family: EnvFamily,
    num_episodes: int | None = None,
    info: EnvInfo | None = None,
    state_size: int | None = None,
) -> RunPlan:
    """Returns the plan of a training, without its evaluations, or of an evaluation.

    num_episodes: of an evaluation. None: a training.
    info, state_size: the properties of the env and the size of a recurrent state, if the caller knows them.
        Otherwise an env, and a network of the user's own, are tried out in child processes.

    Raises ConfigError with what is wrong and what would be right, ImportError for a missing package,
    CommandFailed if the Ray cluster cannot be reached, and ChildFailed if the env, or a network or algorithm
    of the user's own, cannot be made.
    """
    trains = num_episodes is None
    algorithm, matchmaking = check_names(config)
    check_machine(config)
    transfer_from = transfer_files(config)
    observers = make_observers(config) if trains else {}
    if info is None:
        info = probe_env(config, family)
    parsed = config
    config, notes = with_defaults_for(config, info.kinds)
    lines = flags_without_effect(config, info.kinds, parsed)
    notes += [Note(line, is_warning=True) for line in lines]
    if trains:
        notes += note_bounds(config, info.kinds)
        config, family, info = with_centralized_critic(config, family, info)
        check_critic_only_keys(config, info.kinds)
    check_env(config, info)
    config, num_inline_samplers, more_notes = arrange(config, info)
    topology = make_topology(config, info, num_episodes, num_inline_samplers)
    kinds = [topology.kind_of_policy(policy_id) for policy_id in range(topology.num_policies)]
    policies = tuple(make_policy_spec(config, *info.kinds.spaces[kind]) for kind in kinds)
    if not trains:
        policies = tuple(policy.to_act() for policy in policies)
    notes += [*more_notes, *describe_networks(config, info)]
    if state_size is None:
        state_size = probe_networks(config, policies, algorithm)
    return RunPlan(
        config=config,
        family=family,
        info=info,
        topology=topology,
        policies=policies,
        state_size=state_size,
        seed=random.SystemRandom().randrange(2**31) if config.run.seed is None else config.run.seed,
        algorithm=algorithm,
        matchmaking=matchmaking,
        transfer_from=transfer_from,
        observers=observers,
        reports_infos=follows_episodes(observers),
        notes=tuple(notes),
    )


def with_defaults_for(config: Config, kinds: AgentKinds) -> tuple[Config, list[Note]]:
    """Returns the configuration with the defaults for the observations of the agents, and lines for the log.

    Boards of a few fields, and tables, count as vectors. Raises ConfigError if a default contradicts a flag.
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
    config, chosen = follow_observation(
        config, observed, len(kinds.of_agent), is_continuous, has_other_bounds
    )
    if not chosen:
        return config, []
    values = (" ".join(map(str, value)) if isinstance(value, tuple) else value for value in chosen.values())
    listed = ", ".join(f"{flag} {value}" for flag, value in zip(chosen, values))
    memory = "" if config.model.may_remember else "; --use_rnn=True adds a memory"
    keys = ", ".join(key for key, _ in spaces if key != ACTION_MASK)
    actions = " and continuous actions" if is_continuous and "async_rl" in chosen else ""
    text = f"Defaults for {observed}{actions}, since the env observes {keys}: {listed}"
    notes = [Note(text, f"Defaults for {observed}{memory}")]
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
    return config, notes


def note_bounds(config: Config, kinds: AgentKinds) -> list[Note]:
    """Returns a line for the log if a new policy would start far from where the actions have their bounds."""
    model = config.model
    is_chosen = model.scale_actions or "scale_actions" in config.typed or config.resumed is not None
    if is_chosen or model.actor_critic_custom is not None:
        return []
    for kind in kinds.spaces:
        layout = action_layout(kind.action, scales=True)
        for center, half_range in zip(layout.centers, layout.half_ranges):
            if max(abs(center), half_range) > FAR or half_range < 1 / FAR:
                low, high = center - half_range, center + half_range
                text = (
                    f"An action has the bounds {low:g} and {high:g}, and a policy starts with numbers of "
                    "about -1 to 1: --scale_actions=True lets it start between the bounds"
                )
                return [Note(text, is_warning=True)]
    return []


def with_centralized_critic(
    config: Config, family: EnvFamily, info: EnvInfo
) -> tuple[Config, EnvFamily, EnvInfo]:
    """Returns config, family and info of a run in which each agent also observes its team mates, for its
    critic only; the same ones without --centralized_critic.

    Raises ConfigError if the env has no teams, or no state, or the encoder would not read the entries.
    """
    # cfg.json also lists the keys that --centralized_critic added in that run: these are dropped. Keys that
    # were typed, or that the env has, stay; `check_critic_only_keys` refuses those that are misspelled.
    named = {*config.typed.get("critic_only_keys", ())}
    named = named.union(*(kind.observation.spaces for kind in info.kinds.spaces))
    keys = tuple(key for key in config.model.critic_only_keys if key in named or not ADDED.match(key))
    if config.model.centralized_critic:
        encoder = config.model.encoder_custom
        if encoder in READ_ONLY_OWN_KEYS:
            raise ConfigError(
                f"--centralized_critic=True needs an encoder that reads every observation, and {encoder} "
                "reads only those of its family; choose another --encoder_custom"
            )
        sees = config.model.centralized_critic_sees
        view = (
            view_of_state(info.kinds, info.state_space)
            if sees == "state"
            else view_of_team(info.kinds, info.teams, with_actions=sees == "actions")
        )
        keys = tuple(dict.fromkeys(keys + view.keys))
        family = replace(family, wrap=view.wrap)
        info = info._replace(kinds=view.kinds)
    return replace(config, model=replace(config.model, critic_only_keys=keys)), family, info
