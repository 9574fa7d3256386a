"""Kinds of agents: agents of one env with equal observation and action spaces."""

from typing import Any, NamedTuple


class KindSpaces(NamedTuple):
    """The spaces of one kind of agents.

    observation: a Dict of Box; Indices, a kind of Box, for Discrete and MultiDiscrete observations.
    action: Discrete, MultiDiscrete, Box, or Tuple of these.
    """

    observation: Any
    action: Any

    def __str__(self) -> str:
        """Describes both spaces on one line."""
        observed = ", ".join(f"{key} {box.shape} {box.dtype}" for key, box in self.observation.spaces.items())
        return f"{observed} -> {' '.join(str(self.action).split())}"


class AgentKinds(NamedTuple):
    """The kinds of the agents of an env. Agents of one kind can be played by the same policy.

    spaces: the spaces of each kind, in the order of the first agent of each.
    of_agent: [num_agents], the kind of each agent of an env.
    """

    spaces: tuple[KindSpaces, ...]
    of_agent: tuple[int, ...]

    def __str__(self) -> str:
        """Describes all kinds on one line."""
        return "; ".join(
            f"agents {[i for i, kind in enumerate(self.of_agent) if kind == index]}: {spaces}"
            for index, spaces in enumerate(self.spaces)
        )

    @classmethod
    def one(cls, observation_space: Any, action_space: Any, num_agents: int) -> "AgentKinds":
        """Returns a single kind that all agents belong to."""
        return cls((KindSpaces(observation_space, action_space),), (0,) * num_agents)
