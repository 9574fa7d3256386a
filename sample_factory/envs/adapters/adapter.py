"""What the adapters share: a base, and the conversion of agents' numbers."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from sample_factory.envs.contract import NUM_CHECKED, check_observation
from sample_factory.envs.conventions import AUTO, TERMINATED, TRUNCATED, convention_of, name_of
from sample_factory.envs.protocol import EnvContractError, MultiAgentEnv, Picture, TrainingInfoBox
from sample_factory.runtime.log import log
from sample_factory.spaces.actions import action_decoder, action_layout
from sample_factory.spaces.agent_kinds import AgentKinds, KindSpaces
from sample_factory.spaces.observations import observation_layout

Space = spaces.Space[Any]


NUM_SUSPICIOUS = 3  # ends that are both terminated and truncated, before any that is truncated alone


class EpisodeEnds:
    """Decides how an episode ended that an env reports as both terminated and truncated.

    both: TERMINATED, TRUNCATED, or AUTO: by the env's row in the table of conventions. An env without a row
        counts as TERMINATED, and a warning is logged once if all of its truncated episodes are also
        terminated.
    """

    def __init__(self, env: Any):
        self.both = AUTO
        self._env_name = name_of(env)
        self._by_package = convention_of(env).both_ends
        self._num_both = 0
        self._is_settled = self._by_package != TERMINATED

    def are_cut(self, terminated: Any, truncated: Any) -> np.ndarray:
        """Returns which episodes count as truncated, [num_agents] bool; all other ended episodes are
        terminated. terminated, truncated: [num_agents] bool, as the env returned them from a step that ended
        episodes."""
        truncated = np.asarray(truncated, bool)
        alone: np.ndarray = truncated & ~np.asarray(terminated, bool)
        if self.both == AUTO and not self._is_settled:
            self._num_both += int(truncated.sum())
            self._is_settled = bool(alone.any()) or self._num_both >= NUM_SUSPICIOUS
            if self._is_settled and not alone.any():
                _warn_of_both_ends(self._env_name)
        meant = self._by_package if self.both == AUTO else self.both
        return truncated if meant == TRUNCATED else alone


@functools.cache  # once in a process
def _warn_of_both_ends(env_name: str) -> None:
    log.warning(
        "%s: every episode that it truncates is also terminated, as if no reward could follow; if these are "
        "time limits, use --env_both_ends=truncated, else --env_both_ends=terminated",
        env_name,
    )


class Adapter(MultiAgentEnv):
    """Base class of the adapters, each of which turns one kind of env into a MultiAgentEnv.

    recognised_as: text for the report of `check_env`: the kind of env, and by what it is recognised.
    """

    recognised_as: str

    def __init__(self, env: Any, resets_itself: bool = False):
        """Adapts a user's env. resets_itself: whether the env begins new episodes in `step`, without a call
        of `reset`."""
        self.env = env
        self.ends = EpisodeEnds(env)
        self.training_info = TrainingInfoBox(env, resets_itself)
        self.next_seeds: list[int] = []
        self.at_end: list[Callable[[], None]] = []
        self._num_unchecked = NUM_CHECKED

    def _see_end(self) -> None:
        """Calls the functions in `at_end`, e.g. to record the last picture of an episode. To be called before
        the reset, while `render` still draws the last state of the episode."""
        for call in self.at_end:
            call()

    def render(self) -> Picture | list[Picture] | None:
        return copied(self.env.render())

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()


def copied(rendered: Any) -> Picture | list[Picture] | None:
    """Copies a picture or a list of pictures, because the env may draw the next one into the same array;
    returns None for None."""
    if isinstance(rendered, list):
        return [np.array(picture) for picture in rendered]
    return None if rendered is None else np.array(rendered)


class AgentCodecs:
    """Converts observations and actions of each agent of an env; agents may have different spaces."""

    def __init__(self, observation_spaces: Sequence[Space], action_spaces: Sequence[Space]):
        """Makes the functions that convert for each agent, from the agent's spaces as the env declares them.
        Raises ValueError for an unsupported space."""
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
        """Converts an agent's observation to a flat dict of arrays, with the keys under which the agent's
        kind stores it.

        Raises EnvContractError if the observation does not fit its space. Only the first NUM_CHECKED
        observations of each agent are checked in full; later ones, if they cannot be converted.
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
        """Converts an agent's row of action values to an action of its space. Further values at the end of
        the row are ignored: where agents differ, all rows are as wide as the widest action."""
        decode, size = self._decode[agent]
        return decode(row[:size])
