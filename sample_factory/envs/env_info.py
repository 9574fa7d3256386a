"""Finds out what a run has to know about its env, in a throw-away process, which also tries the env out."""

import copy
import functools
import math
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym

from sample_factory.config.flags import ConfigError
from sample_factory.envs.abilities import (
    OwnsProcess,
    PlaysInTeams,
    ScriptedPlayers,
    find_ability,
    find_reward_shaping,
    max_episode_steps,
)
from sample_factory.envs.adapters.adapt import adapt, is_pettingzoo
from sample_factory.envs.adapters.list_style import spaces_by_agent
from sample_factory.envs.adapters.old_gym import OLD_API_NOTE, OldGymEnv
from sample_factory.envs.adapters.simulator import is_simulator
from sample_factory.envs.contract import same_layout
from sample_factory.envs.conventions import convention_of
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_trial import random_steps, try_out
from sample_factory.envs.levels import Level, at_level, find_levels
from sample_factory.envs.protocol import (
    EnvConfig,
    EnvContractError,
    MultiAgentEnv,
    named_faults,
)
from sample_factory.envs.wrappers.frame_stack import ActionRepeat, stack_frames
from sample_factory.envs.wrappers.level_switch import LevelSwitch
from sample_factory.runtime.child import run_in_child
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.failures import Failure
from sample_factory.runtime.log import log
from sample_factory.spaces.actions import ACTION_MASK, action_layout
from sample_factory.spaces.agent_kinds import AgentKinds

PROBE_TIMEOUT_SECONDS = 120.0
# Number of copies in the trial of an env, if make_env has a parameter for that number. Not 2 or 3: the
# adapter would take an action space of that length, e.g. MultiDiscrete([4, 4]), for one entry per copy.
FEW_COPIES = 7


class OwnSpaces(NamedTuple):
    """The spaces of one agent as the env's author wrote them, before they are converted for storage."""

    observation: gym.Space[Any]
    action: gym.Space[Any]


class EnvInfo(NamedTuple):
    """Properties that all envs of a run share.

    frameskip: number of env frames in an env step.
    reward_shaping: the initial coefficients, see RewardShaping.
    max_episode_steps: steps after which an episode ends at the latest; None if not known.
    receives_training_info: whether the env has the ability TrainingInfo.
    step_seconds: duration of one env step, with all agents; None if it was not measured.
    num_simulators: number of the env's simulator processes.
    teams: the team of each agent, [num_agents].
    state_space: space of what a PettingZoo env's `state()` returns; None without this method.
    are_copies: whether the env is a VectorEnv, whose teams are copies that never meet.
    is_simulator: whether the env is a batched simulator, see adapters/simulator.py.
    repeats_first_states: see Convention.
    scripted_players: names of the scripted players, see ScriptedPlayers.
    render_fps: pictures per second in the env's `metadata`; None without them.
    levels: names of the env's levels, see --levels. keeps_level: whether the env begins its episodes itself,
        so that it cannot change its level.
    """

    kinds: AgentKinds
    frameskip: int
    reward_shaping: Mapping[str, Any] = {}
    max_episode_steps: int | None = None
    receives_training_info: bool = False
    step_seconds: float | None = None
    num_simulators: int = 0
    teams: tuple[int, ...] = ()
    state_space: gym.spaces.Box | None = None
    are_copies: bool = False
    is_simulator: bool = False
    repeats_first_states: bool = False
    scripted_players: tuple[str, ...] = ()
    render_fps: float | None = None
    levels: tuple[str, ...] = ()
    keeps_level: bool = False

    @property
    def num_agents(self) -> int:
        return len(self.kinds.of_agent)

    @property
    def copy_of_agent(self) -> tuple[int, ...]:
        """For each agent, the index of the copy of the env in which it plays, [num_agents]. An env frame of a
        copy counts once for all of its agents; an env without copies is copy 0."""
        return self.teams if self.are_copies else (0,) * self.num_agents

    @property
    def teams_that_meet(self) -> tuple[int, ...]:
        """The team of each agent, [num_agents], if an env has several teams that play each other; else
        empty."""
        return () if self.are_copies or len(set(self.teams)) < 2 else self.teams


def env_info(env: MultiAgentEnv, cfg: Any) -> EnvInfo:
    """Returns the EnvInfo of an existing env. Raises UnsupportedSpace for an unsupported action space, and
    EnvContractError for an action mask of the wrong size."""
    for spaces in env.kinds.spaces:
        sizes = action_layout(spaces.action).discrete_sizes
        mask = spaces.observation.spaces.get(ACTION_MASK)
        if mask is not None and math.prod(mask.shape) != sum(sizes):
            raise EnvContractError(
                f"observation {ACTION_MASK!r} has {math.prod(mask.shape)} numbers; it should have "
                f"{sum(sizes)}, one for each choice of {' '.join(str(spaces.action).split())}"
            )
    process = find_ability(env.env, OwnsProcess)
    are_copies = isinstance(env.env, gym.vector.VectorEnv)
    return EnvInfo(
        env.kinds,
        cfg.env_frameskip or 1,
        find_reward_shaping(env.env).get_default_reward_shaping(),
        max_episode_steps(env.env),
        receives_training_info=env.training_info.has_receiver,
        num_simulators=0 if type(process) is OwnsProcess else process.num_processes,
        teams=_teams(env),
        # PettingZoo leaves it to the env whether it has this attribute.
        state_space=getattr(env.env, "state_space", None) if is_pettingzoo(env.env) else None,
        are_copies=are_copies,
        is_simulator=are_copies and is_simulator(env.env),
        repeats_first_states=convention_of(env.env).repeats_first_states,
        scripted_players=tuple(find_ability(env.env, ScriptedPlayers).scripted_players()),
        render_fps=_render_fps(env.env),
        keeps_level=env.training_info.resets_itself,
    )


def _render_fps(env: Any) -> float | None:
    metadata = getattr(env, "metadata", None)
    fps: float | None = metadata.get("render_fps") if isinstance(metadata, Mapping) else None
    return fps


def _teams(env: MultiAgentEnv) -> tuple[int, ...]:
    """Returns the team of each agent, [num_agents]. Raises EnvContractError unless the env names a team for
    each agent."""
    num_agents = env.num_agents
    teams = find_ability(env.env, PlaysInTeams).teams()
    if teams is None:
        # Each agent of a VectorEnv is a copy of an env.
        teams = range(num_agents) if isinstance(env.env, gym.vector.VectorEnv) else [0] * num_agents
    if len(teams) != num_agents:
        raise EnvContractError(
            f"teams() returned {teams}; it should have an entry for each of {num_agents} agents"
        )
    return tuple(teams)


def make_adapted_env(
    family: EnvFamily, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> MultiAgentEnv:
    """Makes an env of the family, ready to be stepped: adapted, with images stacked as --env_framestack says,
    and playing the levels of --levels. Runs in the process that will step the env.

    Raises Failure if the env cannot be made or adapted, and ConfigError for wrong levels.
    """
    levels = find_levels(family, cfg)
    if levels:
        make = functools.partial(make_level, family, cfg, env_config, render_mode)
        adapted: MultiAgentEnv = LevelSwitch(levels, make, cfg.level_choice, env_config)
    else:
        adapted = _make_adapted(family, cfg, env_config, render_mode)
    return adapted if family.wrap is None else family.wrap(adapted, env_config)


def make_level(
    family: EnvFamily, cfg: Any, env_config: EnvConfig, render_mode: str | None, level: Level
) -> MultiAgentEnv:
    """Makes the adapted env of one level. Raises Failure if the env cannot be made or adapted, and
    ConfigError for wrong values of flags; both messages have the name of the level."""
    try:
        return _make_adapted(*at_level(family, cfg, level), env_config, render_mode)
    except Failure as failure:
        raise Failure.of(failure, f"level {level.name}", str(failure)) from failure
    except ConfigError as error:
        raise ConfigError(f"level {level.name}: {error}") from error


def _make_adapted(
    family: EnvFamily, cfg: Any, env_config: EnvConfig, render_mode: str | None
) -> MultiAgentEnv:
    with named_faults(family.env_name, "make"):
        env = family.make(cfg, env_config, render_mode or family.render_mode)
    try:
        adapted = adapt(env, cfg.env_both_ends)
        if family.action_repeat > 1:
            adapted = ActionRepeat(adapted, family.action_repeat, cfg.env_frameskip or 1)
        adapted = stack_frames(adapted, cfg.env_framestack)
    except (TypeError, ValueError) as error:  # no env, or one with a space that is not supported
        text = " ".join(str(error).split())
        raise Failure.of(error, f"env {family.env_name!r}", text, permanent=True) from None
    return adapted


class EnvProbe:
    """In a child process, before a run: makes an env, tries it out, describes it as an EnvInfo, and closes
    it."""

    def __init__(self, family: EnvFamily, cfg: Any, context: ChildContext):
        self._family = family
        self._cfg = cfg
        # An env that is made in any number is tried out in few copies: thousands take memory and time.
        self._num_copies = cfg.vector_env_copies if family.takes("num_envs") else None
        if self._num_copies is not None:
            cfg = copy.copy(cfg)
            cfg.vector_env_copies = min(FEW_COPIES, self._num_copies)
        self._few_cfg = cfg
        self._env: Any = make_adapted_env(family, cfg, EnvConfig(0, 0, 0))
        context.cleanup.callback(self._close)

    def run(self) -> Any:
        """Tries the env out, and returns its EnvInfo. Raises Failure for any fault of the env."""
        env, name = self._env, self._family.env_name
        with named_faults(name, "make"):
            info = self._with_all_copies(env_info(env, self._cfg))
            info = info._replace(frameskip=info.frameskip * self._family.action_repeat)
        if info.is_simulator and "jax" in sys.modules:  # compiles a step for minutes, and again for the run
            next(random_steps(env, name))
        elif not info.num_simulators:  # a step would start it
            seconds = try_out(env, name)
            is_whole = self._num_copies is None or self._num_copies <= FEW_COPIES  # not few of its copies
            info = info._replace(step_seconds=seconds if is_whole and not info.is_simulator else None)
        if isinstance(env.env, OldGymEnv) and env.env.has_old_api:
            log.info(OLD_API_NOTE, name)
        return self._with_levels(info, env.kinds)

    def _with_levels(self, info: EnvInfo, kinds: AgentKinds) -> EnvInfo:
        """Returns the EnvInfo with the names of all levels, after making an env of each further level, one at
        a time. Raises Failure for a level that cannot be made, or has other spaces than the first level."""
        levels = find_levels(self._family, self._few_cfg)
        limit = info.max_episode_steps
        for level in levels[1:]:
            self._close()
            self._env = make_level(self._family, self._few_cfg, EnvConfig(0, 0, 0), None, level)
            if not same_layout(self._env.kinds, kinds):
                text = f"level {levels[0].name} has {kinds}, and level {level.name} has {self._env.kinds}"
                advice = "all levels of a run should have the same spaces and agents"
                raise Failure(f"env {self._family.env_name!r}", f"{text}; {advice}", permanent=True)
            if max_episode_steps(self._env.env) != limit:
                info = info._replace(max_episode_steps=None)
        return info._replace(levels=tuple(level.name for level in levels))

    def _with_all_copies(self, info: EnvInfo) -> EnvInfo:
        """Returns the EnvInfo of the env with as many copies as the run will make, from `info` of the few
        copies that the probe makes. Raises EnvContractError unless make_env made as many copies as it was
        asked for."""
        if self._num_copies is None:
            return info
        few, count = min(FEW_COPIES, self._num_copies), self._num_copies
        if not info.are_copies or info.num_agents != few:
            raise EnvContractError(
                f"make_env(num_envs={few}) returned an env of {info.num_agents} agents; it should return a "
                f"vector env of {few} copies"
            )
        kinds = AgentKinds(info.kinds.spaces, info.kinds.of_agent[:1] * count)
        return info._replace(kinds=kinds, teams=tuple(range(count)))

    def _close(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            with named_faults(self._family.env_name, "close"):
                env.close()


class _SpacesProbe(EnvProbe):
    """In a child process: makes an env, returns its spaces as its author wrote them, and closes it."""

    def run(self) -> list[OwnSpaces]:
        """Returns the spaces of the first agent of each kind."""
        spaces = own_spaces(self._env)
        of_agent = self._env.kinds.of_agent
        return [spaces[of_agent.index(kind)] for kind in sorted({*of_agent})]


def probe_env_info(family: EnvFamily, cfg: Any) -> EnvInfo:
    """In the parent: makes an env of the family in a child process, tries it out, and returns its EnvInfo.

    Raises Failure, with the child's traceback, for any fault of the env.
    """
    info: EnvInfo = _run_probe(EnvProbe, family, cfg)
    return info


def probe_own_spaces(family: EnvFamily, cfg: Any, policy_id: int) -> OwnSpaces:
    """In the parent: makes an env in a child process, and returns the spaces of the agents that a policy
    plays. With K kinds of agents, policy p plays kind p % K. Raises Failure, with the child's traceback, if
    the env cannot be made."""
    spaces: list[OwnSpaces] = _run_probe(_SpacesProbe, family, cfg)
    return spaces[policy_id % len(spaces)]


def _run_probe(probe: type[EnvProbe], family: EnvFamily, cfg: Any) -> Any:
    timeout = max(PROBE_TIMEOUT_SECONDS, cfg.reset_timeout_seconds)
    return run_in_child(f"env {family.env_name!r}", probe, (family, cfg), timeout)


def own_spaces(env: MultiAgentEnv) -> list[OwnSpaces]:
    """Returns the spaces of each agent of an adapted env, as the env's author wrote them."""
    own = env.env
    if isinstance(own, gym.vector.VectorEnv):
        return [OwnSpaces(own.single_observation_space, own.single_action_space)] * env.num_agents
    if is_pettingzoo(own):
        return [
            OwnSpaces(own.observation_space(name), own.action_space(name)) for name in own.possible_agents
        ]
    observation_spaces, action_spaces = (
        spaces_by_agent(own, name, env.num_agents) for name in ("observation_space", "action_space")
    )
    return list(map(OwnSpaces, observation_spaces, action_spaces))
