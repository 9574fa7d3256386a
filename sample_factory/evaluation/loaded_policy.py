"""A trained policy for code of a user's own: it acts with the observations and actions of the env."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from sample_factory.envs.contract import check_observation
from sample_factory.envs.own_spaces import OwnSpaces
from sample_factory.envs.protocol import EnvContractError, ObservationRows
from sample_factory.envs.wrappers.frame_stack import FrameHistory
from sample_factory.evaluation.policy import TrainedPolicy
from sample_factory.spaces.actions import action_decoder, batch_action_decoder
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import batch_layout, observation_layout

MakeEnv = Callable[[str | None], Any]


class LoadedPolicy:
    """Acts with raw observations of the env, for one env, for several, or for named agents. Guarantees:

    1. It remembers what it has observed in each episode: the recurrent state, and the last images with
       --env_framestack. `reset` forgets.
    2. Observations and actions are those of the env as `make_env` makes it.

    observation_space, action_space: of one agent.
    """

    def __init__(self, policy: TrainedPolicy, spaces: OwnSpaces, num_frames: int, make_env: MakeEnv):
        """num_frames: --env_framestack. make_env(render_mode): makes an env as in training."""
        self.observation_space, self.action_space = spaces
        self._policy = policy
        self._num_frames = num_frames
        self._make_env = make_env
        self.reset()

    def reset(
        self,
        mask: np.ndarray | Sequence[bool] | None = None,
        *,
        num_envs: int | None = None,
        agents: Sequence[Hashable] | None = None,
    ) -> None:
        """Forgets the past; to be called when an episode begins. Only one of the arguments may be given:

        none: `act` takes a single observation. This is the state after loading.
        num_envs: `act` takes a batch of observations, with the first axis of this size, e.g. of a
            gymnasium.vector.VectorEnv.
        agents: names of agents, e.g. `env.possible_agents` of PettingZoo; `act` takes a dict by agent. All
            of these agents act with this policy, each with a memory of its own.
        mask: bool [num_envs], or an entry for each agent; only these forget, and the number of envs or the
            names stay. E.g. `terminated | truncated` of a vector env that resets in the same step.
        """
        if mask is not None:
            if num_envs is not None or agents is not None:
                raise ValueError("reset: give mask, num_envs or agents, and only one of them")
            self._forget(np.asarray(mask))
            return
        spaces = OwnSpaces(self.observation_space, self.action_space)
        if agents is not None:
            self._rows: _Rows = _AgentRows(spaces, agents)
        elif num_envs is not None:
            self._rows = _BatchRows(spaces, num_envs)
        else:
            self._rows = _SingleRow(spaces)
        kinds = AgentKinds.one(observation_layout(spaces.observation).space, spaces.action, self._rows.count)
        self._frames = FrameHistory(kinds, self._num_frames) if self._num_frames > 1 else None
        self._batch = ObservationRows.allocate(kinds if self._frames is None else self._frames.kinds)
        self._rnn_state = self._policy.first_rnn_state(self._rows.count)
        self._is_first = np.ones(self._rows.count, bool)  # which rows begin an episode

    def act(self, observation: Any) -> Any:
        """Returns the action for an observation of the env: a member of `action_space`.

        After `reset(num_envs=n)`: takes a batch as a vector env returns it (an array [n, ...], for a Dict or
        Tuple space a dict or tuple of those), and returns a batch of actions as a vector env takes it
        (Discrete: int64 [n]; Box: [n, ...] of its dtype, clipped to its bounds). After `reset(agents=...)`:
        takes a dict of observations by agent, and returns a dict of actions by agent. Agents that are absent
        forget.

        Raises ValueError, with what is expected, for an observation that is not of its space.
        """
        rows = self._batch if self._frames is None else self._frames.advance()
        present = self._rows.write(observation, rows)
        if self._is_first.any():
            self._rnn_state[self._is_first] = 0.0
            if self._frames is not None:
                self._frames.restart(self._is_first)
        if self._frames is not None:
            self._frames.write_stacks(self._batch)
        batch = {key: array[:, 0] for key, array in self._batch.arrays.items()}
        actions, self._rnn_state = self._policy.act(batch, self._rnn_state)
        self._is_first = np.zeros(self._rows.count, bool) if present is None else ~present
        return self._rows.decode(actions, present)

    def make_env(self, render_mode: str | None = None) -> Any:
        """Returns a new env as in training, with the flags of the experiment, to `reset` and `step` it.

        It is what the env's family makes: for some families a vector env or an env of several agents.
        """
        return self._make_env(render_mode)

    def _forget(self, mask: np.ndarray) -> None:
        if mask.shape != (self._rows.count,) or mask.dtype != np.bool_:
            raise ValueError(
                f"reset: the mask has shape {mask.shape} and dtype {mask.dtype}; it should be bool of shape "
                f"({self._rows.count},)"
            )
        self._is_first |= mask


class _Rows(Protocol):
    """How `act` takes observations and returns actions. count: number of rows, each with a memory."""

    count: int

    def write(self, observation: Any, into: ObservationRows) -> np.ndarray | None:
        """Writes the argument of `act`. Returns which rows it has, bool [count]; None: all of them."""

    def decode(self, actions: np.ndarray, present: np.ndarray | None) -> Any:
        """Returns the result of `act`. actions: [count, num_action_values] float32. present: see `write`."""


class _SingleRow:
    """A single observation."""

    count = 1

    def __init__(self, spaces: OwnSpaces):
        self._space = spaces.observation
        self._flatten = observation_layout(spaces.observation).flatten
        self._decode = action_decoder(spaces.action)

    def write(self, observation: Any, into: ObservationRows) -> None:
        try:
            into.write(0, self._flatten(observation))
        except (KeyError, IndexError, TypeError, ValueError, EnvContractError) as error:
            raise _wrong(error, self._space, observation, "one observation", "num_envs=n") from None

    def decode(self, actions: np.ndarray, present: np.ndarray | None) -> Any:
        return self._decode(actions[0])


class _BatchRows:
    """Observations with a first axis."""

    def __init__(self, spaces: OwnSpaces, num_envs: int):
        self.count = num_envs
        self._space = gym.vector.utils.batch_space(spaces.observation, num_envs)
        self._flatten = batch_layout(spaces.observation).flatten
        self.decode_all = batch_action_decoder(spaces.action)

    def write(self, observation: Any, into: ObservationRows) -> None:
        try:
            into.write_all(self._flatten(observation))
        except (KeyError, IndexError, TypeError, ValueError, EnvContractError) as error:
            expected = f"a batch of {self.count} observations"
            reset = "num_envs=n, or without arguments"
            raise _wrong(error, self._space, observation, expected, reset) from None

    def decode(self, actions: np.ndarray, present: np.ndarray | None) -> Any:
        return self.decode_all(actions)


class _AgentRows:
    """Dicts by agent."""

    def __init__(self, spaces: OwnSpaces, agents: Sequence[Hashable]):
        self.count = len(agents)
        self._agents = list(agents)
        self._space = spaces.observation
        self._flatten = observation_layout(spaces.observation).flatten
        self._decode = action_decoder(spaces.action)

    def write(self, observation: Any, into: ObservationRows) -> np.ndarray | None:
        if not isinstance(observation, Mapping) or not set(observation) <= set(self._agents):
            given = list(observation) if isinstance(observation, Mapping) else type(observation).__name__
            raise ValueError(f"act: got {given}; expected a dict with observations of {self._agents}")
        for row, agent in enumerate(self._agents):
            if agent not in observation:
                into.clear(row)
                continue
            try:
                into.write(row, self._flatten(observation[agent]))
            except (KeyError, IndexError, TypeError, ValueError, EnvContractError) as error:
                raise _wrong(error, self._space, observation[agent], f"agent {agent!r}") from None
        return np.array([agent in observation for agent in self._agents])

    def decode(self, actions: np.ndarray, present: np.ndarray | None) -> dict[Hashable, Any]:
        return {
            agent: self._decode(actions[row])
            for row, agent in enumerate(self._agents)
            if present is None or present[row]
        }


def _wrong(
    error: Exception, space: gym.Space[Any], observation: Any, expected: str, reset: str = ""
) -> ValueError:
    """Returns the error for an observation that does not fit. reset: arguments of `reset` that may help."""
    reason = str(error)
    try:
        check_observation(space, observation)
    except EnvContractError as better:
        reason = str(better)
    hint = f"; for another number of them, call reset({reset}) first" if reset else ""
    return ValueError(f"act: {reason}. Expected {expected} of {' '.join(str(space).split())}{hint}")
