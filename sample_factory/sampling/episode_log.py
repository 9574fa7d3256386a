"""What the agents of one split have to tell."""

from typing import Any, Mapping, Sequence

import numpy as np

from sample_factory.exchange.messages import EpisodeReport, Incident


class EpisodeLog:
    """Adds up the episodes of the agents of one split. `reports`: for the main process; whoever sends them
    empties the list.
    """

    def __init__(self, env_names: Sequence[str], agents_per_env: int, frameskip: int):
        num_agents = len(env_names) * agents_per_env
        self._env_names, self._agents_per_env, self._frameskip = env_names, agents_per_env, frameskip
        self._returns = np.zeros(num_agents)
        self._lengths = np.zeros(num_agents, np.int64)
        self._has_told_broken_rewards = False
        self.reports: list[EpisodeReport | Incident] = []

    def add(self, rewards: np.ndarray, active: np.ndarray) -> None:
        """A step of all agents: raw rewards, all finite, and who was active in it.

        An episode begins with the agent's first own step: what a dead agent is given is no part of its next.
        """
        self._lengths += active
        self._returns += np.where(self.begun, rewards, 0.0)

    @property
    def begun(self) -> np.ndarray:
        """[agents] bool: whose episode has had a step."""
        return self._lengths > 0

    def end(self, agent: int, policy: int, info: Mapping[str, Any]) -> None:
        """An agent's episode is over; info as in StepResult."""
        reward = float(self._returns[agent])
        objective = info.get("true_objective", info.get("true_reward", reward))
        frames = int(self._lengths[agent]) * self._frameskip
        extra = dict(info.get("episode_extra_stats", {}))
        self.reports.append(EpisodeReport(policy, reward, frames, float(objective), extra))
        self.drop(slice(agent, agent + 1))

    def drop(self, agents: slice) -> None:
        """Their episodes are forgotten."""
        self._returns[agents], self._lengths[agents] = 0.0, 0

    def tell_broken_rewards(self, rewards: np.ndarray, agents: np.ndarray) -> None:
        """agents: those whose rewards are no finite numbers."""
        env, agent = divmod(int(agents[0]), self._agents_per_env)
        text = (
            f"{self._env_names[env]} gave agent {agent} the reward {rewards[agents[0]]}; such steps are "
            "not trained on (0_aux/broken_numbers counts them)"
        )
        # All are counted; told is the first only, since there may be one in every step.
        text = "" if self._has_told_broken_rewards else text
        self._has_told_broken_rewards = True
        self.reports.append(Incident("broken_numbers", text, len(agents)))
