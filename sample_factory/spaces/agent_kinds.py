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
    """Groups the agents of an env into kinds. Agents of one kind can be played by the same policy.

    spaces: spaces of each kind. Kinds are numbered in the order in which agents of a new kind appear.
    of_agent: [num_agents], the kind of each agent.
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
        """Returns the kinds of an env in which all agents are of the same kind."""
        return cls((KindSpaces(observation_space, action_space),), (0,) * num_agents)
