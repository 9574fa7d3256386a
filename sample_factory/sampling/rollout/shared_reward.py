"""Mixes the rewards of a team's agents, see --shared_reward."""

import numpy as np

from sample_factory.exchange.run_plan import EnvPlan


class SharedReward:
    """Mixes the reward of each agent of a split with the mean reward of its team: (1 - share) * reward +
    share * mean, where share is --shared_reward. The split has `num_envs` envs; `plan.sharers` gives the team
    of each agent of an env."""

    def __init__(self, plan: EnvPlan, num_envs: int):
        self._share = plan.shared_reward
        names, team_of_agent = np.unique(plan.sharers, return_inverse=True)
        self._teams = (np.arange(num_envs)[:, None] * len(names) + team_of_agent).reshape(-1)

    def mix(self, rewards: np.ndarray, members: np.ndarray) -> np.ndarray:
        """Returns the mixed rewards, [agents]. The sum over each team does not change; a NaN makes the
        rewards of the whole team NaN.

        rewards: [agents]. members: [agents] bool, the agents that take part: the mean is over their rewards,
            and the rewards of all other agents do not change.
        """
        sums = np.bincount(self._teams, np.where(members, rewards, 0.0))
        counts = np.bincount(self._teams, members)
        means = (sums / np.maximum(counts, 1.0))[self._teams]
        return np.where(members, (1 - self._share) * rewards + self._share * means, rewards)
