"""Which policy plays which agent."""

from typing import Sequence

import numpy as np

EPISODES_PER_DRAW = 10


class Matchmaker:
    """Draws a random policy for each agent of one env, anew about every EPISODES_PER_DRAW episodes.

    A change takes effect where an agent's episode ends, never inside one. Policy p plays agents of kind
    p % number of kinds only: those are the ones with its spaces.
    """

    def __init__(
        self, num_policies: int, kind_of_agent: Sequence[int], mix_policies: bool, rng: np.random.Generator
    ):
        self._kinds, self._num_kinds = np.array(kind_of_agent), max(kind_of_agent) + 1
        self._policies_per_kind, self._num_agents = num_policies // self._num_kinds, len(kind_of_agent)
        self._mix, self._rng = mix_policies, rng
        self._episodes = 0
        self._drawn = self._draw()

    def policy_of(self, agent: int) -> int:
        """The policy of an agent in its present or coming episode."""
        return int(self._drawn[agent])

    def episode_ended(self, agent: int) -> int:
        """Counts the episode; returns the agent's policy for the next one."""
        self._episodes += 1
        if self._episodes % (EPISODES_PER_DRAW * self._num_agents) == 0:
            self._drawn = self._draw()
        return self.policy_of(agent)

    def _draw(self) -> np.ndarray:
        size = self._num_agents if self._mix else 1
        return self._rng.integers(self._policies_per_kind, size=size) * self._num_kinds + self._kinds
