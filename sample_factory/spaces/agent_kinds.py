"""Agents of one env with different observation or action spaces."""

from typing import Any, NamedTuple


class KindSpaces(NamedTuple):
    """The spaces of one agent: a Dict of Box; Discrete, MultiDiscrete, Box, or Tuple of Discrete and Box."""

    observation: Any
    action: Any

    def __str__(self) -> str:
        """On one line."""
        seen = ", ".join(f"{key} {box.shape} {box.dtype}" for key, box in self.observation.spaces.items())
        return f"{seen} -> {' '.join(str(self.action).split())}"


class AgentKinds(NamedTuple):
    """Agents with equal spaces are of one kind: the same policy can play them.

    spaces: of each kind, in the order of the first agent of each.
    of_agent: the kind of each agent of an env.
    """

    spaces: tuple[KindSpaces, ...]
    of_agent: tuple[int, ...]

    def __str__(self) -> str:
        """On one line."""
        return "; ".join(
            f"agents {[i for i, kind in enumerate(self.of_agent) if kind == index]}: {spaces}"
            for index, spaces in enumerate(self.spaces)
        )

    @classmethod
    def one(cls, observation_space: Any, action_space: Any, num_agents: int) -> "AgentKinds":
        """All agents have the same spaces."""
        return cls((KindSpaces(observation_space, action_space),), (0,) * num_agents)
