"""What the adapters share: a base, the values of the run for an env, the conversion of agents' numbers."""

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sample_factory.envs.abilities import TrainingInfo, find_ability
from sample_factory.envs.contract import NUM_CHECKED, check_observation
from sample_factory.envs.protocol import EnvContractError, Picture
from sample_factory.runtime.failures import one_line
from sample_factory.spaces.actions import action_decoder, action_layout
from sample_factory.spaces.agent_kinds import AgentKinds, KindSpaces
from sample_factory.spaces.observations import observation_layout

Space = spaces.Space[Any]


class Adapter:
    """The part of a MultiAgentEnv that is the same around every kind of env."""

    def __init__(self, env: Any, resets_itself: bool = False):
        """resets_itself: whether the env begins episodes without a call."""
        self.env = env
        self.training_info = TrainingInfoBox(env, resets_itself)
        self.next_seeds: list[int] = []
        self._num_unchecked = NUM_CHECKED

    def render(self) -> Picture | list[Picture] | None:
        """Returns copies: the env may draw the next picture into the same array."""
        rendered: Any = self.env.render()
        if isinstance(rendered, list):
            return [np.array(picture) for picture in rendered]
        return rendered.copy() if isinstance(rendered, np.ndarray) else rendered

    def close(self) -> None:
        self.env.close()


class TrainingInfoBox:
    """The newest values of the run for an env, until its adapter delivers them; see TrainingInfo."""

    def __init__(self, env: Any, resets_itself: bool):
        """resets_itself: whether the env begins episodes without a call: it gets values at once."""
        self._receivers = _receivers(env)
        self._resets_itself = resets_itself
        self._waiting: Mapping[str, Any] | None = None

    @property
    def has_receiver(self) -> bool:
        """Whether the env does anything with the values."""
        return bool(self._receivers)

    def put(self, training_info: Mapping[str, Any]) -> None:
        """Stores the values for the next episode. Raises as `deliver` if the env resets itself."""
        self._waiting = training_info
        if self._resets_itself:
            self.deliver()

    def deliver(self) -> None:
        """Hands stored values to the env. To be called before each reset.

        Raises EnvContractError if the env rejects them.
        """
        if self._waiting is None:
            return
        training_info = self._waiting
        self._waiting = None
        for receiver in self._receivers:
            try:
                receiver.set_training_info(training_info)
            except Exception as error:  # any error of a user's env
                raise EnvContractError(
                    f"set_training_info({reprlib.repr(dict(training_info))}) raised {one_line(error)}"
                ) from error


def _receivers(env: Any) -> list[TrainingInfo]:
    """Returns the env, or what its wrappers contain, with the ability; else the envs of a SyncVectorEnv that
    have it."""
    found = find_ability(env, TrainingInfo)
    if type(found) is not TrainingInfo:
        return [found]
    if not isinstance(env, gym.vector.VectorEnv) or not isinstance(env.unwrapped, gym.vector.SyncVectorEnv):
        return []
    receivers = [find_ability(copy, TrainingInfo) for copy in env.unwrapped.envs]
    return [receiver for receiver in receivers if type(receiver) is not TrainingInfo]


class AgentCodecs:
    """Converts observations and actions of each agent of an env; agents may have different spaces."""

    def __init__(self, observation_spaces: Sequence[Space], action_spaces: Sequence[Space]):
        """Takes the spaces of each agent as the env has them. Raises ValueError for unsupported ones."""
        self._observation_spaces = observation_spaces
        self._num_unchecked = [NUM_CHECKED] * len(observation_spaces)
        distinct: list[tuple[Space, Space]] = []
        of_agent = []
        for pair in zip(observation_spaces, action_spaces, strict=True):
            if pair not in distinct:
                distinct.append(pair)
            of_agent.append(distinct.index(pair))
        layouts = [observation_layout(observation) for observation, _ in distinct]
        decoders = [action_decoder(action) for _, action in distinct]
        sizes = [action_layout(action).num_action_values for _, action in distinct]
        self.kinds = AgentKinds(
            tuple(KindSpaces(layout.space, action) for layout, (_, action) in zip(layouts, distinct)),
            tuple(of_agent),
        )
        self._flatten = [layouts[kind].flatten for kind in of_agent]
        self._decode = [(decoders[kind], sizes[kind]) for kind in of_agent]

    def flatten(self, agent: int, observation: Any) -> Mapping[str, np.ndarray]:
        """Returns an agent's observation by the keys of its kind.

        Raises EnvContractError if it does not fit its space; the first ones are checked in full.
        """
        if self._num_unchecked[agent]:
            self._num_unchecked[agent] -= 1
            self._check(agent, observation)
        try:
            return self._flatten[agent](observation)
        except (KeyError, IndexError, TypeError, ValueError):
            self._check(agent, observation)  # raises an error that says more
            raise

    def _check(self, agent: int, observation: Any) -> None:
        try:
            check_observation(self._observation_spaces[agent], observation)
        except EnvContractError as error:
            agent_name = f"agent {agent}: " if len(self._flatten) > 1 else ""
            raise EnvContractError(f"{agent_name}{error}") from None

    def decode(self, agent: int, row: np.ndarray) -> Any:
        """Returns an agent's action from its row, which may be longer: all rows are as wide as the widest."""
        decode, size = self._decode[agent]
        return decode(row[:size])
