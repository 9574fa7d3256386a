"""Adds what an agent's team mates observe to its own observation, for a centralised critic."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from sample_factory.config.flags import ConfigError
from sample_factory.envs.protocol import (
    EnvAround,
    EnvConfig,
    MultiAgentEnv,
    ObservationRows,
    StepResult,
    check_array,
)
from sample_factory.spaces.actions import ACTION_MASK, action_layout
from sample_factory.spaces.agent_kinds import AgentKinds, KindSpaces
from sample_factory.spaces.observations import Indices, image_layout, is_image

# Keys of added entries: PREFIX, with several kinds of agents the number of a kind, and a name.
PREFIX = "others"
CHOICES, VALUES, PRESENT = "action", "action_values", "present"
STATE = f"{PREFIX}/state"
ADDED = re.compile(rf"{PREFIX}(_\d+)?/")


class _Group(NamedTuple):
    """Says which agents of one kind see which team mates of one kind, and what the agents see of their mates.

    agents: [n] int. mates: [n, m] int, in the order of the env; an agent with fewer than m mates sees zeros
        for the rest, where `exists`, [n, m] bool, is False.
    prefix: beginning of the keys that show the mates.
    observed: keys of the mates' observations.
    actions: columns of the mates' last actions, by key; empty if actions are not shown.
    """

    agents: np.ndarray
    mates: np.ndarray
    exists: np.ndarray
    prefix: str
    observed: tuple[str, ...]
    actions: Mapping[str, tuple[int, ...]]


class TeamView(NamedTuple):
    """Describes the entries that a centralised critic needs in the agents' observations: what an agent's team
    mates observe and do.

    - others/KEY: the observation KEY of all team mates, in the order of the env: vectors are concatenated,
      images are stacked. Zeros for a mate that does not act.
    - others/present: 1 for each mate that acts, else 0.
    - others/action, others/action_values: the mates' last discrete and continuous actions, on request. Zeros
      before the first one of an episode.
    - others/state: what `state()` of a PettingZoo env returns; then it is the only entry.

    With several kinds of agents, others_K/... shows the mates of kind K.

    kinds: kinds of the agents, with these entries added. keys: keys of these entries. groups: empty in a view
        of the state.
    """

    kinds: AgentKinds
    keys: tuple[str, ...]
    groups: tuple[_Group, ...]

    def wrap(self, env: MultiAgentEnv, env_config: EnvConfig) -> MultiAgentEnv:
        """Wraps an env so that its observations have the view's entries. The env must have the agents for
        which the view was made."""
        return TeamViewEnv(env, self)


def view_of_team(kinds: AgentKinds, teams: Sequence[int], with_actions: bool = False) -> TeamView:
    """Returns the view that adds the observations of the team mates to the observation of each agent.

    teams: the team of each agent. with_actions: adds the last actions of the mates too.

    Raises ConfigError if no agent has a mate, or if the env itself has an observation with a name that the
    view adds.
    """
    if len(set(teams)) == len(teams):
        raise ConfigError(
            "--centralized_critic=True needs an env with agents that play together; here each plays alone"
        )
    groups: list[_Group] = []
    added: list[dict[str, gym.spaces.Box]] = [{} for _ in kinds.spaces]
    for own, other in itertools.product(range(len(kinds.spaces)), repeat=2):
        group = _group(kinds, teams, own, other, with_actions)
        if group is not None:
            groups.append(group)
            added[own] |= _entries(group, kinds.spaces[other])
    return TeamView(*_with_entries(kinds, added), tuple(groups))


def view_of_state(kinds: AgentKinds, space: gym.Space[Any] | None) -> TeamView:
    """Returns the view in which each agent sees the env's state. space: space of the state. Raises
    ConfigError unless the state is an array, or if the env has an observation named STATE already."""
    if not isinstance(space, gym.spaces.Box):
        raise ConfigError(
            "--centralized_critic_sees=state needs a PettingZoo env with state(), and a Box as its "
            f"state_space; this one has {space}. Use observations or actions"
        )
    stored = gym.spaces.Box(-np.inf, np.inf, space.shape, np.float32) if space.dtype != np.uint8 else space
    return TeamView(*_with_entries(kinds, [{STATE: stored}] * len(kinds.spaces)), ())


class TeamViewEnv(EnvAround):
    """Wraps a MultiAgentEnv for a centralised critic: adds to each agent's observation what its team mates
    observe and do, or the env's state, in the entries that a TeamView describes."""

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
        """Returns the rows with the env's own observation keys only, for the env to write to."""
        added = self._view.keys
        arrays, of_agent = (
            [{key: array for key, array in one.items() if key not in added} for one in several]
            for several in ([into.arrays], into.arrays_of_agent or [])
        )
        return ObservationRows(arrays[0], into.buffers, into.step, of_agent or None)

    def _write(self, active: np.ndarray | None, into: ObservationRows) -> None:
        """Writes the entries that the view adds for each agent, after the env has written all others. active:
        which agents act in the coming step, [num_agents] bool; None: all."""
        if not self._view.groups:
            state = np.asarray(self.env.state())
            for agent in range(self.num_agents):
                row = into.arrays_of(agent)[STATE]
                check_array(STATE, state, row.shape[2:], row.dtype)
                row[into.buffers[agent], into.step] = state
            return
        for group in self._view.groups:
            is_present = group.exists & (self._everyone if active is None else active)[group.mates]
            rows = into.arrays_of(int(group.agents[0]))
            buffers = into.buffers[group.agents]
            for key, values in self._shown(group, into):
                values[~is_present] = 0
                row = rows[group.prefix + key]
                row[buffers, into.step] = values.reshape(len(buffers), *row.shape[2:])
            rows[f"{group.prefix}{PRESENT}"][buffers, into.step] = is_present

    def _shown(self, group: _Group, into: ObservationRows) -> Iterator[tuple[str, np.ndarray]]:
        """Yields (key without prefix, values) for what the mates of a group observe, and for their last
        actions. values: copies, [n, m, *shape], for n agents with m mates each."""
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
        f"{PREFIX}/" if len(kinds.spaces) == 1 else f"{PREFIX}_{other}/",
        tuple(key for key in spaces.observation.spaces if key != ACTION_MASK),
        _action_columns(spaces.action) if with_actions else {},
    )


def _entries(group: _Group, mates: KindSpaces) -> dict[str, gym.spaces.Box]:
    """Returns the space of each observation that is added for the mates of a group, by key."""
    num_mates = group.mates.shape[1]
    entries = {key: _joined(mates.observation[key], num_mates) for key in group.observed}
    for key, columns in group.actions.items():
        values = gym.spaces.Box(-np.inf, np.inf, (len(columns),), np.float32)
        one = Indices(action_layout(mates.action).discrete_sizes) if key == CHOICES else values
        entries[key] = _joined(one, num_mates)
    entries[PRESENT] = gym.spaces.Box(0, 1, (num_mates,), np.float32)
    return {group.prefix + key: box for key, box in entries.items()}


def _action_columns(space: gym.Space[Any]) -> dict[str, tuple[int, ...]]:
    """Returns the columns of the discrete part and of the continuous part of an action, as CHOICES -> columns
    and VALUES -> columns; a part that the space does not have is left out."""
    layout = action_layout(space)
    parts = {CHOICES: layout.discrete_actions, VALUES: layout.box_actions}
    return {key: columns for key, columns in parts.items() if columns}


def _joined(box: gym.spaces.Box, num: int) -> gym.spaces.Box:
    """Returns the space of the observations of `num` mates joined to one: a stack of images, or a
    concatenated vector. box: space of one observation."""
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
    """Adds entries to the observation spaces of the agents' kinds. Returns the new kinds, and the keys of all
    added entries.

    added: entries for each kind, by key. Raises ConfigError if the env already has an entry with such a key.
    """
    keys = tuple(dict.fromkeys(key for entries in added for key in entries))
    taken = [key for key in keys if any(key in kind.observation.spaces for kind in kinds.spaces)]
    if taken:
        raise ConfigError(
            f"--centralized_critic=True adds the observation {', '.join(taken)}, and the env has one of that "
            "name; rename it"
        )
    spaces = [
        KindSpaces(gym.spaces.Dict({**observation.spaces, **entries}), action)
        for (observation, action), entries in zip(kinds.spaces, added)
    ]
    return AgentKinds(tuple(spaces), kinds.of_agent), keys
