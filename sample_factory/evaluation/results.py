"""Results of an evaluation, and the lines that are printed about them: at most 80 columns each."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sample_factory.evaluation.episode_runner import EpisodeResult
from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.evaluation.result_statistics import MeanAndStd, mean_and_std


class Evaluation(NamedTuple):
    """Result of an evaluation.

    choices: the policy of each agent. env_frames: all that were played, unfinished episodes included.
    seconds: duration of the evaluation.
    """

    choices: tuple[PolicyChoice, ...]
    episodes: tuple[EpisodeResult, ...]
    env_frames: int
    seconds: float
    video: Path | None

    @property
    def reward(self) -> MeanAndStd:
        return mean_and_std([episode.reward for episode in self.episodes])

    @property
    def length(self) -> MeanAndStd:
        """Lengths of the episodes in env frames."""
        return mean_and_std([episode.length for episode in self.episodes])

    @property
    def true_objective(self) -> MeanAndStd:
        return mean_and_std([episode.true_objective for episode in self.episodes])

    def for_agent(self, agent: int) -> "Evaluation":
        """Returns the same with the episodes of one agent only."""
        return self._replace(episodes=tuple(episode for episode in self.episodes if episode.agent == agent))

    def for_choice(self, choice: PolicyChoice) -> "Evaluation":
        """Returns the same with the episodes of the agents that one policy plays."""
        own = tuple(episode for episode in self.episodes if self.choices[episode.agent] == choice)
        return self._replace(episodes=own)

    def summary(self) -> str:
        """Returns a text of several lines for the console."""
        lines = [f"{_count(self.episodes)}, {self.env_frames:,} env frames in {self.seconds:.1f} s"]
        lines += self._result_lines()
        distinct = list(dict.fromkeys(self.choices))
        if len(distinct) > 1:
            for choice in distinct:
                agents = [str(agent) for agent, other in enumerate(self.choices) if other == choice]
                word = "agent" if len(agents) == 1 else "agents"
                own = self.for_choice(choice)
                lines.append(f"{choice} ({word} {', '.join(agents)}): {_count(own.episodes)}")
                lines += [f"  {line}" for line in own._result_lines()]
        return "\n".join([*lines, f"video: {self.video}"] if self.video else lines)

    def _result_lines(self) -> list[str]:
        """Returns a line for each statistic: mean, standard deviation, and range over the episodes."""
        if not self.episodes:
            return []
        lines = [
            _statistic("reward", self.reward, [episode.reward for episode in self.episodes]),
            _statistic("length", self.length, [episode.length for episode in self.episodes]),
        ]
        if any(map(has_own_objective, self.episodes)):
            values = [episode.true_objective for episode in self.episodes]
            lines.append(_statistic("objective", self.true_objective, values))
        return lines


def _count(episodes: Sequence[EpisodeResult]) -> str:
    return "1 episode" if len(episodes) == 1 else f"{len(episodes)} episodes"


def _statistic(name: str, summary: MeanAndStd, values: Sequence[float]) -> str:
    return f"{name:<9} {summary} ({min(values):.3f} to {max(values):.3f})"


def has_own_objective(episode: EpisodeResult) -> bool:
    """Returns whether the env reports an objective that differs from the reward."""
    return episode.true_objective != episode.reward


def episode_line(episodes: Sequence[EpisodeResult], num_agents: int) -> str:
    """Returns a line about the last of the episodes: at most 80 columns where numbers are of usual size."""
    last = episodes[-1]
    agent = f"  agent {last.agent:>2}" if num_agents > 1 else ""
    mean = f"  mean {np.mean([episode.reward for episode in episodes]):9.3f}" if num_agents == 1 else ""
    objective = f"  objective {last.true_objective:8.3f}" if has_own_objective(last) else ""
    results = f"reward {last.reward:9.3f}{mean}  length {last.length:>5}{objective}"
    return f"episode {len(episodes):>3}{agent}  {results}"
