"""What the framework sees of an env: it is multi-agent, and writes its observations in place."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from sample_factory.envs.abilities import OwnsProcess, RewardShaping
from sample_factory.spaces.agent_kinds import AgentKinds

EMPTY_INFO: Mapping[str, Any] = {}
Infos = Sequence[Mapping[str, Any]]  # one for each agent of an env, or none at all


class EnvContractError(ValueError):
    """An env returned something else than its spaces or the API of envs say."""


class ObservationRows:
    """Where the agents of one env must write their observations: row (buffers[i], step) for agent i.

    `arrays[key]` has shape [num_buffers, num_steps, *observation_shape]; `buffers` has shape [num_agents],
    int. Where agents differ in their spaces, `arrays_of_agent` has each one's own instead.
    The env writes, and never keeps a view: the rows belong to the trajectory.
    """

    __slots__ = ("arrays", "arrays_of_agent", "buffers", "step")

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        buffers: np.ndarray,
        step: int,
        arrays_of_agent: Sequence[Mapping[str, np.ndarray]] | None = None,
    ):
        self.arrays = arrays
        self.buffers = buffers
        self.step = step
        self.arrays_of_agent = arrays_of_agent

    @classmethod
    def allocate(cls, kinds: AgentKinds) -> "ObservationRows":
        """Rows of their own memory, for whoever drives an env outside the training system."""
        num_agents = len(kinds.of_agent)
        of_kind = [
            {
                key: np.zeros((num_agents, 1, *space.shape), space.dtype)
                for key, space in spaces.observation.spaces.items()
            }
            for spaces in kinds.spaces
        ]
        of_agent = [of_kind[kind] for kind in kinds.of_agent] if len(of_kind) > 1 else None
        return cls(of_kind[0], np.arange(num_agents), 0, of_agent)

    def arrays_of(self, agent: int) -> Mapping[str, np.ndarray]:
        """Those that this agent's observation belongs in."""
        return self.arrays if self.arrays_of_agent is None else self.arrays_of_agent[agent]

    def view(self, agent: int) -> dict[str, np.ndarray]:
        """The row of one agent as writable views, one per observation key."""
        buffer = self.buffers[agent]
        # The trailing Ellipsis makes a view even of a scalar observation.
        return {key: array[buffer, self.step, ...] for key, array in self.arrays_of(agent).items()}

    def write(self, agent: int, observation: Mapping[str, np.ndarray]) -> None:
        """Copies one agent's observation dict into its row. Raises EnvContractError if it does not fit."""
        buffer = self.buffers[agent]
        for key, array in self.arrays_of(agent).items():
            value = observation[key]
            _check(key, value, array.shape[2:], array.dtype)
            array[buffer, self.step] = value

    def clear(self, agent: int) -> None:
        """Makes one agent's row zero."""
        buffer = self.buffers[agent]
        for array in self.arrays_of(agent).values():
            array[buffer, self.step] = 0

    def write_all(self, observations: Mapping[str, np.ndarray]) -> None:
        """Scatters a batch, [num_agents, *shape] per key, with one copy per key; all agents are of one kind.

        Raises EnvContractError if it does not fit.
        """
        for key, array in self.arrays.items():
            value = observations[key]
            _check(key, value, (len(self.buffers), *array.shape[2:]), array.dtype)
            array[self.buffers, self.step] = value


def _check(key: str, value: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """NumPy itself would stretch a smaller array, and cut fractions off."""
    if value.shape != shape:
        raise EnvContractError(
            f"observation {key!r} has shape {value.shape}, but its observation space says {shape}"
        )
    if value.dtype.kind not in "biuf" or (value.dtype.kind == "f" and dtype.kind != "f"):
        raise EnvContractError(
            f"observation {key!r} has dtype {value.dtype}, but its observation space says {dtype}"
        )


class StepResult(NamedTuple):
    """What a step returned, one entry per agent. Observations are already written to the rows.

    terminated: the episode ended in a terminal state (its value is 0).
    truncated: the episode was cut (time limit); never True together with terminated.
    infos: for each agent a mapping, EMPTY_INFO where there is nothing to say. Keys with a meaning:
        is_active (bool, default True: it acts in the coming step), true_objective or true_reward (float, at
        an episode's end), episode_extra_stats (dict of floats, at an episode's end).
    """

    rewards: Sequence[float]
    terminated: Sequence[bool]
    truncated: Sequence[bool]
    infos: Infos


class MultiAgentEnv(Protocol):
    """The env inside the framework. Auto-resets: when an agent's episode ends, the observation that the same
    call to `step` writes is the first one of its next episode.

    kinds: the spaces of the agents.
    reward_shaping: what population-based training may change.
    process: tells whether a simulator has died.
    """

    num_agents: int
    kinds: AgentKinds
    reward_shaping: RewardShaping
    process: OwnsProcess

    def reset(self, seed: int | None, into: ObservationRows) -> Infos:
        """Starts the first episode of every agent. Infos as in StepResult: who does not act yet."""

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        """actions: [num_agents, num_action_values] float32; integers of discrete components are exact.

        Where agents differ in their action spaces, rows are as wide as the widest.
        """

    def render(self) -> np.ndarray | None:
        """A frame [height, width, 3] uint8 for people to look at, or None when the env shows itself."""

    def close(self) -> None: ...


class EnvConfig(NamedTuple):
    """Which of the experiment's envs this is. env_id is unique in the run and seeds it."""

    worker_index: int
    vector_index: int
    env_id: int
