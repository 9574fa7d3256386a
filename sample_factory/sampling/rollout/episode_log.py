"""What the agents of one split have to tell."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sample_factory.envs.protocol import extra_stats, true_objective
from sample_factory.exchange.messages import EpisodeReport, Incident, MatchReport
from sample_factory.sampling.matchmaking.match_log import MatchLog
from sample_factory.sampling.matchmaking.matchmaker import Player


class EpisodeLog:
    """Sums up the episodes of the agents of one split, and collects reports for the main process."""

    def __init__(self, env_names: Sequence[str], agents_per_env: int, frameskip: int):
        num_agents = len(env_names) * agents_per_env
        self._env_names, self._agents_per_env, self._frameskip = env_names, agents_per_env, frameskip
        self._returns = np.zeros(num_agents)
        self._lengths = np.zeros(num_agents, np.int64)
        self._has_told_broken_rewards = False
        self._matches = [MatchLog(agents_per_env) for _ in env_names]
        self._reports: list[EpisodeReport | MatchReport | Incident] = []

    def take_reports(self) -> list[EpisodeReport | MatchReport | Incident]:
        """Returns the reports since the last call."""
        reports, self._reports = self._reports, []
        return reports

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

    def end(self, agent: int, player: Player, info: Mapping[str, Any]) -> None:
        """An agent's episode is over; info as in StepResult. The episodes of a past self are told of as
        results of the live policies against it only, by `end_matches`.
        """
        reward = float(self._returns[agent])
        objective = true_objective(info, reward)
        if player.is_live:
            frames = int(self._lengths[agent]) * self._frameskip
            report = EpisodeReport(player.policy_id, reward, frames, objective, extra_stats(info))
            self._reports.append(report)
        env, agent_of_env = divmod(agent, self._agents_per_env)
        self._matches[env].end(agent_of_env, player, objective)
        self._returns[agent], self._lengths[agent] = 0.0, 0

    def end_matches(self, agents: Sequence[int]) -> list[int]:
        """agents: all whose episodes have ended in this step. Returns the envs in which the match is over."""
        over = []
        for env in sorted({agent // self._agents_per_env for agent in agents}):
            first = env * self._agents_per_env
            if self._matches[env].is_over(self.begun[first : first + self._agents_per_env]):
                self._reports += self._matches[env].take_results()
                over.append(env)
        return over

    def drop(self, env: int) -> None:
        """The episodes of its agents are forgotten."""
        agents = slice(env * self._agents_per_env, (env + 1) * self._agents_per_env)
        self._returns[agents], self._lengths[agents] = 0.0, 0
        self._matches[env].abandon()

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
        self._reports.append(Incident("broken_numbers", text, len(agents)))
