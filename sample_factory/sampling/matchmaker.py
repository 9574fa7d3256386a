"""Which policy plays which agent."""

import numpy as np

EPISODES_PER_DRAW = 10


class Matchmaker:
    """Draws a random policy for each agent of one env, anew about every EPISODES_PER_DRAW episodes.

    A change takes effect where an agent's episode ends, never inside one.
    """

    def __init__(self, num_policies: int, num_agents: int, mix_policies: bool, rng: np.random.Generator):
        self._num_policies, self._num_agents, self._mix = num_policies, num_agents, mix_policies
        self._rng = rng
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
        if self._mix:
            return self._rng.integers(self._num_policies, size=self._num_agents)
        return np.full(self._num_agents, self._rng.integers(self._num_policies))
