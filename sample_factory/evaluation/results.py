"""Results of an evaluation: the lines that are printed about them, at most 80 columns each, and files."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError, flag
from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.evaluation.result_statistics import MeanAndStd, mean_and_std
from sample_factory.monitoring.console import number_text


class EpisodeResult(NamedTuple):
    """One agent's episode. env: number of the env, where several are played side by side."""

    agent: int
    reward: float  # sum of the raw rewards
    length: int  # env frames
    true_objective: float  # the reward where the env reports no other
    extra_stats: Mapping[str, float] = {}
    env: int = 0


class Evaluation(NamedTuple):
    """Result of an evaluation.

    choices: the policy of each agent. env_frames: all that were played; of `eval`, those of `episodes`.
    seconds: duration of the evaluation. num_wanted: the episodes that were to be played; None: no number.
    """

    choices: tuple[PolicyChoice, ...]
    episodes: tuple[EpisodeResult, ...]
    env_frames: int
    seconds: float
    video: Path | None = None
    num_wanted: int | None = None

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

    @property
    def extra_stats(self) -> dict[str, MeanAndStd]:
        """Further statistics that the env reports, by name, each over the episodes that have it."""
        values: dict[str, list[float]] = {}
        for episode in self.episodes:
            for name, value in episode.extra_stats.items():
                values.setdefault(name, []).append(value)
        return {name: mean_and_std(found) for name, found in values.items()}

    @property
    def statistics(self) -> dict[str, MeanAndStd]:
        """All statistics by name."""
        own = {"reward": self.reward, "length": self.length, "true_objective": self.true_objective}
        return {**own, **self.extra_stats}

    @property
    def is_partial(self) -> bool:
        """Whether it was stopped before all episodes had ended: short ones are then too many."""
        return self.num_wanted is not None and len(self.episodes) < self.num_wanted

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
        if self.is_partial:
            lines.append(
                f"PARTIAL: stopped before {self.num_wanted} episodes; biased, since short ones end first"
            )
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
        """Returns a line for each statistic: mean, standard deviation and range over the episodes, and the
        interval of the mean."""
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

    def figures(self) -> dict[str, Any]:
        """Returns the entry in a --json file; unknown values are None."""
        return {
            "policies": [choice._asdict() for choice in self.choices],
            "num_episodes": len(self.episodes),
            "is_partial": self.is_partial,
            "env_frames": self.env_frames,
            "seconds": self.seconds,
            "statistics": {name: _finite(summary._asdict()) for name, summary in self.statistics.items()},
            "episodes": [_finite(episode._asdict()) for episode in self.episodes],
        }

    def rows(self) -> list[dict[str, Any]]:
        """Returns the rows of a --csv file: one for each episode."""
        rows = []
        for episode in self.episodes:
            choice = self.choices[episode.agent]
            rows.append(
                {
                    "checkpoint": choice.checkpoint,
                    "policy": choice.policy_index,
                    "env": episode.env,
                    "agent": episode.agent,
                    "reward": episode.reward,
                    "length": episode.length,
                    "true_objective": episode.true_objective,
                    **episode.extra_stats,
                }
            )
        return rows


class FailedEvaluation(NamedTuple):
    """An evaluation without a result, which was the last one: reason is one line."""

    choice: PolicyChoice
    reason: str

    def row(self) -> dict[str, Any]:
        """Returns the last row of a --csv file, the only one with a `failure`."""
        choice = self.choice
        return {"checkpoint": choice.checkpoint, "policy": choice.policy_index, "failure": self.reason}


def result_figures(
    config: Config, evaluations: Sequence[Evaluation], failed: FailedEvaluation | None = None
) -> dict[str, Any]:
    """Returns the contents of a --json file. failed: the evaluation that ended the command, if one did."""
    return {
        "experiment": str(config.experiment_dir),
        "env": config.env_name,
        "deterministic": config.evaluation.eval_deterministic,
        "evaluations": [evaluation.figures() for evaluation in evaluations],
        "failure": None if failed is None else {**failed.choice._asdict(), "reason": failed.reason},
    }


@dataclass(frozen=True)
class JsonFlags:
    """Files for the results."""

    json: str | None = flag(None, "file for all statistics and the result of each episode", metavar="FILE")


class ResultFiles(NamedTuple):
    """The files of --json and --csv; None: not written."""

    json: str | None = None
    csv: str | None = None

    def check(self) -> None:
        """Raises ConfigError for a file that could not be written, before anything is played."""
        for kind, name in self._asdict().items():
            if name is not None:
                path = Path(name).expanduser().absolute()
                if path.is_dir():
                    raise ConfigError(f"--{kind}={name} is a folder; it should be the name of a file")
                if not path.parent.is_dir():
                    raise ConfigError(f"--{kind}={name}: its folder does not exist; create it first")

    def write(self, figures: Mapping[str, Any], rows: Sequence[Mapping[str, Any]] = ()) -> None:
        """Writes the contents of the JSON file, and the rows of the CSV file. Raises ConfigError."""
        table = io.StringIO()
        writer = csv.DictWriter(table, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
        texts = {"json": json.dumps(figures, indent=4) + "\n", "csv": table.getvalue()}
        for kind, name in self._asdict().items():
            if name is not None:
                try:
                    Path(name).expanduser().write_text(texts[kind], newline="")
                except OSError as error:
                    raise ConfigError(f"--{kind}={name}: {error.strerror}") from None


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a mapping with None in place of numbers that JSON does not have."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


def _count(episodes: Sequence[EpisodeResult]) -> str:
    return "1 episode" if len(episodes) == 1 else f"{len(episodes)} episodes"


def _statistic(name: str, summary: MeanAndStd, values: Sequence[float]) -> str:
    interval = ""
    if math.isfinite(summary.low):
        interval = f"  mean {number_text(summary.low)} to {number_text(summary.high)} (95 %)"
    span = f"{number_text(min(values))} to {number_text(max(values))}"
    return f"{name:<9} {summary} ({span}){interval}"


def has_own_objective(episode: EpisodeResult) -> bool:
    """Returns whether the env reports an objective that differs from the reward."""
    return episode.true_objective != episode.reward


def episode_line(episodes: Sequence[EpisodeResult], num_agents: int) -> str:
    """Returns a line about the last of the episodes: at most 80 columns where numbers are of usual size."""
    last = episodes[-1]
    agent = f"  agent {last.agent:>2}" if num_agents > 1 else ""
    mean_reward = number_text(float(np.mean([episode.reward for episode in episodes])))
    mean = f"  mean {mean_reward:>9}" if num_agents == 1 else ""
    objective = f"  objective {number_text(last.true_objective):>8}" if has_own_objective(last) else ""
    results = f"reward {number_text(last.reward):>9}{mean}  length {last.length:>5}{objective}"
    return f"episode {len(episodes):>3}{agent}  {results}"
