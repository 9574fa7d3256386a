"""Between what an env's agents see and do, and the rows of numbers that are stored."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from sample_factory.spaces.actions import action_decoder, action_layout
from sample_factory.spaces.agent_kinds import AgentKinds, KindSpaces
from sample_factory.spaces.observations import observation_layout


class AgentCodecs:
    """For each agent of an env, which may have spaces of its own."""

    def __init__(self, observation_spaces: Sequence[spaces.Space], action_spaces: Sequence[spaces.Space]):
        """A space for each agent, as the env's author wrote it. Raises ValueError for unsupported ones."""
        found: list[tuple[spaces.Space, spaces.Space]] = []
        of_agent = []
        for pair in zip(observation_spaces, action_spaces, strict=True):
            if pair not in found:
                found.append(pair)
            of_agent.append(found.index(pair))
        layouts = [observation_layout(observation) for observation, _ in found]
        decoders = [_decoder(action) for _, action in found]
        self.kinds = AgentKinds(
            tuple(KindSpaces(layout.space, action) for layout, (_, action) in zip(layouts, found)),
            tuple(of_agent),
        )
        self._flatten = [layouts[kind].flatten for kind in of_agent]
        self._decode = [decoders[kind] for kind in of_agent]

    def flatten(self, agent: int, observation: Any) -> Mapping[str, np.ndarray]:
        """An agent's observation by the keys of its kind."""
        return self._flatten[agent](observation)

    def decode(self, agent: int, row: np.ndarray) -> Any:
        """An agent's action from its row, which may be longer: rows are as wide as the widest kind's."""
        return self._decode[agent](row)


def _decoder(space: spaces.Space) -> Callable[[np.ndarray], Any]:
    decode = action_decoder(space)
    size = action_layout(space).num_action_values
    return lambda row: decode(row[:size])
