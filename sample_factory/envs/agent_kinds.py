"""Agents of one env with different observation or action spaces."""

from typing import Any, NamedTuple


class KindSpaces(NamedTuple):
    """The spaces of one agent: a Dict of Box; Discrete, MultiDiscrete, Box, or Tuple of Discrete and Box."""

    observation: Any
    action: Any


class AgentKinds(NamedTuple):
    """Agents with equal spaces are of one kind: the same policy can play them.

    spaces: of each kind, in the order of the first agent of each.
    of_agent: the kind of each agent of an env.
    """

    spaces: tuple[KindSpaces, ...]
    of_agent: tuple[int, ...]

    def __str__(self) -> str:
        counts = [self.of_agent.count(kind) for kind in range(len(self.spaces))]
        return "; ".join(
            f"{count} x {dict(spaces.observation.spaces)} to {spaces.action}"
            for count, spaces in zip(counts, self.spaces)
        )

    @classmethod
    def one(cls, observation_space: Any, action_space: Any, num_agents: int) -> "AgentKinds":
        """All agents have the same spaces."""
        return cls((KindSpaces(observation_space, action_space),), (0,) * num_agents)
