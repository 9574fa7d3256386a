"""Adds what the other agents of an env observe to each agent's observation, for a centralised critic."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from sample_factory.config.flags import ConfigError
from sample_factory.envs.protocol import EnvAround, EnvConfig, MultiAgentEnv, ObservationRows, StepResult
from sample_factory.spaces.actions import ACTION_MASK, action_layout
from sample_factory.spaces.agent_kinds import AgentKinds, KindSpaces
from sample_factory.spaces.observations import Indices, image_layout, is_image

# Keys of added entries; the first two after a group's prefix.
CHOICES, VALUES = "action", "action_values"
STATE = "state"


class _Group(NamedTuple):
    """The agents of one kind, and their team mates of one kind.

    agents: [n] int. mates: [n, m] int, in the order of the env; an agent with fewer than m mates sees zeros
    for the rest, where `exists`, [n, m] bool, is False.
    prefix: beginning of the keys that show the mates.
    observed: keys of the mates' observations.
    actions: columns of the mates' last actions, by key; empty: these are not shown.
    """

    agents: np.ndarray
    mates: np.ndarray
    exists: np.ndarray
    prefix: str
    observed: tuple[str, ...]
    actions: Mapping[str, tuple[int, ...]]


class TeamView(NamedTuple):
    """Further entries of the observations of an env's agents.

    Entries: others/KEY is the observation KEY of all team mates, in the order of the env: vectors are
    concatenated, images are stacked; others/present has a 1 for each mate that acts. On request
    others/action and others/action_values have the last discrete and continuous actions of the mates, or
    `state` replaces all these entries. With several kinds of agents, others_0/KEY shows mates of kind 0, and
    so on. Mates that do not act are zeros, and so are actions before the first one of an episode.

    kinds: of the agents, with these entries. keys: of these entries.
    """

    kinds: AgentKinds
    keys: tuple[str, ...]
    groups: tuple[_Group, ...]
    has_state: bool

    def wrap(self, env: MultiAgentEnv, env_config: EnvConfig) -> MultiAgentEnv:
        """Returns the env with these entries. It has the agents from which the view was made."""
        return TeamViewEnv(env, self)


def view_of_team(kinds: AgentKinds, teams: Sequence[int], with_actions: bool = False) -> TeamView:
    """Returns the view in which each agent sees its team mates. teams: the team of each agent.

    Raises ConfigError if no agent has a mate, or if the env has an observation of such a name.
    """
    groups: list[_Group] = []
    added: list[dict[str, gym.spaces.Box]] = [{} for _ in kinds.spaces]
    for own, other in itertools.product(range(len(kinds.spaces)), repeat=2):
        group = _group(kinds, teams, own, other, with_actions)
        if group is not None:
            groups.append(group)
            added[own] |= _entries(group, kinds.spaces[other])
    if not groups:
        raise ConfigError(
            "--centralized_critic=True needs an env with agents that play together; here each plays alone"
        )
    return TeamView(*_with_entries(kinds, added), tuple(groups), has_state=False)


def view_of_state(kinds: AgentKinds, space: gym.spaces.Box | None) -> TeamView:
    """Returns the view in which each agent sees the state of the env. space: of the state.

    Raises ConfigError if the env reports no state, or has an observation of that name.
    """
    if space is None:
        raise ConfigError(
            "--centralized_critic_sees=state needs a PettingZoo env with state() and state_space, which this "
            "env does not have; use observations or actions"
        )
    stored = gym.spaces.Box(-np.inf, np.inf, space.shape, np.float32) if space.dtype != np.uint8 else space
    return TeamView(*_with_entries(kinds, [{STATE: stored}] * len(kinds.spaces)), (), has_state=True)


class TeamViewEnv(EnvAround):
    """A MultiAgentEnv with the entries of a TeamView."""

    def __init__(self, env: MultiAgentEnv, view: TeamView):
        super().__init__(env)
        self.kinds = view.kinds
        self._view = view
        self._everyone = np.ones(self.num_agents, bool)
        sizes = [action_layout(spaces.action).num_action_values for spaces in self.kinds.spaces]
        self._actions = np.zeros((self.num_agents, max(sizes)), np.float32)  # in the last step

    def reset(self, seed: int | None, into: ObservationRows) -> np.ndarray | None:
        active = self._env.reset(seed, self._own_entries(into))
        self._actions[:] = 0
        self._write(active, into)
        return active

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        result = self._env.step(actions, self._own_entries(into))
        begins = np.logical_or(result.terminated, result.truncated)
        self._actions[:] = np.where(begins[:, None], 0, actions)
        self._write(result.active, into)
        return result

    def _own_entries(self, into: ObservationRows) -> ObservationRows:
        """Returns the rows without the added entries."""
        added = self._view.keys
        arrays, of_agent = (
            [{key: array for key, array in one.items() if key not in added} for one in several]
            for several in ([into.arrays], into.arrays_of_agent or [])
        )
        return ObservationRows(arrays[0], into.buffers, into.step, of_agent or None)

    def _write(self, active: np.ndarray | None, into: ObservationRows) -> None:
        """Writes the added entries of all agents; the env has written their own observations."""
        if self._view.has_state:
            state = self.env.state()
            for agent in range(self.num_agents):
                into.arrays_of(agent)[STATE][into.buffers[agent], into.step] = state
            return
        for group in self._view.groups:
            is_present = group.exists & (self._everyone if active is None else active)[group.mates]
            rows = into.arrays_of(int(group.agents[0]))
            buffers = into.buffers[group.agents]
            for key, values in self._shown(group, into):
                values[~is_present] = 0
                row = rows[group.prefix + key]
                row[buffers, into.step] = values.reshape(len(buffers), *row.shape[2:])
            rows[f"{group.prefix}present"][buffers, into.step] = is_present

    def _shown(self, group: _Group, into: ObservationRows) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the entries of a group by key without prefix, as copies [n, m, *shape]."""
        observed = into.arrays_of(int(group.mates.flat[0]))
        buffers = into.buffers[group.mates]
        for key in group.observed:
            yield key, observed[key][buffers, into.step]
        for key, columns in group.actions.items():
            yield key, self._actions[group.mates][..., columns]


def _group(
    kinds: AgentKinds, teams: Sequence[int], own: int, other: int, with_actions: bool
) -> _Group | None:
    """Returns what agents of kind `own` see of mates of kind `other`; None if there are no such mates."""
    agents = [agent for agent, kind in enumerate(kinds.of_agent) if kind == own]
    candidates = [agent for agent, kind in enumerate(kinds.of_agent) if kind == other]
    mates = [
        [mate for mate in candidates if mate != agent and teams[mate] == teams[agent]] for agent in agents
    ]
    most = max(map(len, mates))
    if not most:
        return None
    spaces = kinds.spaces[other]
    return _Group(
        np.array(agents),
        # An agent of that kind in place of a mate that does not exist: what it observes is then cleared.
        np.array([of_agent + candidates[:1] * (most - len(of_agent)) for of_agent in mates]),
        np.array([[i < len(of_agent) for i in range(most)] for of_agent in mates]),
        "others/" if len(kinds.spaces) == 1 else f"others_{other}/",
        tuple(key for key in spaces.observation.spaces if key != ACTION_MASK),
        _action_columns(spaces.action) if with_actions else {},
    )


def _entries(group: _Group, mates: KindSpaces) -> dict[str, gym.spaces.Box]:
    """Returns the spaces of the entries that show a group's mates."""
    num_mates = group.mates.shape[1]
    entries = {key: _joined(mates.observation[key], num_mates) for key in group.observed}
    for key, columns in group.actions.items():
        values = gym.spaces.Box(-np.inf, np.inf, (len(columns),), np.float32)
        one = Indices(action_layout(mates.action).discrete_sizes) if key == CHOICES else values
        entries[key] = _joined(one, num_mates)
    entries["present"] = gym.spaces.Box(0, 1, (num_mates,), np.float32)
    return {group.prefix + key: box for key, box in entries.items()}


def _action_columns(space: gym.Space[Any]) -> dict[str, tuple[int, ...]]:
    """Returns the columns of the discrete and of the continuous part of an action, if it has them."""
    layout = action_layout(space)
    parts = {CHOICES: layout.discrete_actions, VALUES: layout.box_actions}
    return {key: columns for key, columns in parts.items() if columns}


def _joined(box: gym.spaces.Box, num: int) -> gym.spaces.Box:
    """Returns the space of `num` observations in one: a stack of images, or a vector."""
    if isinstance(box, Indices):
        return Indices(np.tile(box.sizes, num))
    shape: tuple[int, ...] = (num * math.prod(box.shape),)
    if is_image(box):
        layout = image_layout(box.shape)
        if layout.is_stack:
            shape = (num * box.shape[0], *box.shape[1:])
        else:
            shape = (num, 1, *box.shape) if layout.is_plane else (num, *box.shape)
    # Zeros stand for absent mates.
    low, high = (np.tile(bound.ravel(), num) for bound in (np.minimum(box.low, 0), np.maximum(box.high, 0)))
    return gym.spaces.Box(low.reshape(shape), high.reshape(shape), shape, box.dtype.type)


def _with_entries(
    kinds: AgentKinds, added: Sequence[dict[str, gym.spaces.Box]]
) -> tuple[AgentKinds, tuple[str, ...]]:
    """Returns the kinds with further entries, and the keys of all these. added: by kind.

    Raises ConfigError if an env has such an entry of its own.
    """
    spaces = []
    for (observation, action), entries in zip(kinds.spaces, added):
        taken = entries.keys() & observation.spaces.keys()
        if taken:
            raise ConfigError(
                f"--centralized_critic=True adds the observation {', '.join(sorted(taken))}, and the env has "
                "one of that name; rename it"
            )
        spaces.append(KindSpaces(gym.spaces.Dict({**observation.spaces, **entries}), action))
    keys = tuple(dict.fromkeys(key for entries in added for key in entries))
    return AgentKinds(tuple(spaces), kinds.of_agent), keys
