"""Results of episodes: which ones count, their statistics, the lines printed about them, and files."""

import csv
import io
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError, flag
from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.evaluation.result_statistics import MeanAndStd, mean_and_std
from sample_factory.monitoring.console import clock_text, number_text, short_number
from sample_factory.runtime.clock import Every
from sample_factory.runtime.log import columns_of

PROGRESS_SECONDS = 5.0  # between two lines where stdout is no terminal
BAR_SECONDS = 0.2
BAR_WIDTH = 20
CLEAR_LINE = "\r\x1b[K"


@dataclass(frozen=True)
class ResultFlags:
    """Files for the results."""

    json: str | None = flag(None, "file for all statistics and the result of each episode", is_output=True)
    csv: str | None = flag(None, "file for a table with a row for each episode", is_output=True)


class EpisodeResult(NamedTuple):
    """The episode of one agent.

    agent: its index in the env.
    reward: sum of the raw rewards.
    length: env frames.
    true_objective: the env's own score; the reward where it reports none.
    extra_stats: the `episode_extra_stats` of the env, by name.
    env: index of the env, where several are played side by side.
    level: name of the level that was played; empty: the env has none.
    """

    agent: int
    reward: float
    length: int
    true_objective: float
    extra_stats: Mapping[str, float] = {}
    env: int = 0
    level: str = ""


def without_repeats(episodes: Sequence[EpisodeResult]) -> tuple[EpisodeResult, ...]:
    """Returns the episodes without those that have the reward, length and objective of an earlier one of the
    same agent in the same level. Only for a deterministic policy in envs that restart from one cached state
    each: elsewhere different episodes can have equal results."""
    first: dict[tuple[float | str, ...], EpisodeResult] = {}
    for episode in episodes:
        result = episode.reward, episode.length, episode.true_objective
        first.setdefault((episode.env, episode.agent, episode.level, *result), episode)
    return tuple(first.values())


class EpisodeCount:
    """Collects the episodes that count: each agent plays a number of episodes that is fixed in advance.

    Counting the first N episodes that end would favour short ones. A match of all agents
    counts as an episode of agent 0.
    """

    def __init__(self, wanted: np.ndarray):
        """wanted: number of episodes that each agent of each env plays, int64 [num_envs, num_agents]."""
        self._wanted = wanted
        self._num_wanted = int(wanted.sum())
        self._num_ended = np.zeros_like(wanted)
        self._found: dict[tuple[int, int, int], Any] = {}  # by (number, env, agent)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def ended(self) -> tuple[Any, ...]:
        """The first episodes of all agents, then the second ones, and so on: the same order in each run."""
        return tuple(self._found[key] for key in sorted(self._found))

    @property
    def is_complete(self) -> bool:
        return len(self._found) == self._num_wanted

    def add(self, ended: Any, env: int, agent: int) -> int | None:
        """Takes an episode that has ended. Returns its number among those of its agent; None if it does not
        count."""
        number = int(self._num_ended[env, agent])
        self._num_ended[env, agent] += 1
        key = (number, env, agent)
        if number >= self._wanted[env, agent] or key in self._found:
            return None
        self._found[key] = ended
        return number

    def repeat(self, envs: slice) -> None:
        """Expects the episodes of some envs once more, from the first one, with the same seeds.

        Of two episodes with the same number, the one that ended first counts.
        """
        self._num_ended[envs] = 0


class Evaluation(NamedTuple):
    """Result of an evaluation.

    For example:

        evaluation = sample_factory.evaluate("cartpole", num_episodes=100)
        print(evaluation.summary())
        print(max(episode.reward for episode in evaluation.episodes))

    choices: the policy of each agent.
    episodes: those that count, an EpisodeResult each.
    env_frames: number of frames that were played; for `eval`, only in the episodes that count, and without
        frames in which agents are inactive, see `count_frames`.
    seconds: duration.
    video: the file that `enjoy` has written; else None.
    num_wanted: number of episodes that were to be played; None: no number was given.
    versions: number of SGD steps of each agent's policy, read from the file that was loaded. This is not the
        newest file if that one is damaged, or was saved later.
    num_repeats: number of further episodes that were exact repeats of these, see `without_repeats`.
    """

    choices: tuple[PolicyChoice, ...]
    episodes: tuple[EpisodeResult, ...]
    env_frames: int
    seconds: float
    video: Path | None = None
    num_wanted: int | None = None
    versions: tuple[int, ...] = ()
    num_repeats: int = 0

    def __repr__(self) -> str:
        """Returns one line, e.g. "Evaluation(10 episodes, reward 0.25 ± 0.43, 95 % 0.04 to 0.46)"."""
        parts = [_count(self.episodes)]
        if self.episodes:
            mean = self.reward
            parts.append(f"reward {short_number(mean.mean)} ± {short_number(mean.std)}")
            if math.isfinite(mean.low):
                parts.append(f"95 % {short_number(mean.low)} to {short_number(mean.high)}")
        return f"Evaluation({', '.join(parts)}{', partial' if self.is_partial else ''})"

    @property
    def reward(self) -> MeanAndStd:
        """Sums of the raw rewards of the episodes."""
        return mean_and_std([episode.reward for episode in self.episodes])

    @property
    def length(self) -> MeanAndStd:
        """Lengths of the episodes in env frames."""
        return mean_and_std([episode.length for episode in self.episodes])

    @property
    def true_objective(self) -> MeanAndStd:
        """The env's own scores of the episodes; the rewards where it reports none."""
        return mean_and_std([episode.true_objective for episode in self.episodes])

    @property
    def extra_stats(self) -> dict[str, MeanAndStd]:
        """Further statistics that the env reports, by name; each is over the episodes that have it."""
        values: dict[str, list[float]] = {}
        for episode in self.episodes:
            for name, value in episode.extra_stats.items():
                values.setdefault(name, []).append(value)
        return {name: mean_and_std(found) for name, found in values.items()}

    @property
    def statistics(self) -> dict[str, MeanAndStd]:
        """All statistics by name; an extra one with the name of one of the first three is left out."""
        own = {"reward": self.reward, "length": self.length, "true_objective": self.true_objective}
        return {**own, **self.extra_stats, **own}  # own first, for the order; own last, to have priority

    @property
    def is_partial(self) -> bool:
        """Whether it was stopped before all episodes had ended, so that too many of them are short."""
        return self.num_wanted is not None and len(self.episodes) < self.num_wanted

    def first_of(self, chosen: Iterable[PolicyChoice]) -> PolicyChoice:
        """Returns the first of the chosen policies that has played; those of other kinds play beside it."""
        return next(choice for choice in chosen if choice in self.choices)

    def for_agent(self, agent: int) -> "Evaluation":
        """Returns this evaluation with the episodes of one agent only."""
        own = tuple(episode for episode in self.episodes if episode.agent == agent)
        if self.num_wanted is None or self.is_partial:  # it may have stopped while others played
            return self._replace(episodes=own)
        return self._replace(episodes=own, num_wanted=len(own))

    def summary(self) -> str:
        """Returns a text of several lines for the console."""
        lines = [f"{_count(self.episodes)}, {self.env_frames:,} env frames in {self.seconds:.1f} s"]
        if self.is_partial:
            lines.append(
                f"PARTIAL: stopped before {self.num_wanted} episodes; biased, since short ones end first"
            )
        if self.num_repeats:
            lines.append(
                f"{self.num_repeats} more repeat these and do not count, since each env begins all episodes "
                "in one state; more envs play more different ones"
            )
        lines += _result_lines(self.episodes)
        distinct = list(dict.fromkeys(self.choices))
        if len(distinct) > 1:
            for choice in distinct:
                agents = [str(agent) for agent, other in enumerate(self.choices) if other == choice]
                word = "agent" if len(agents) == 1 else "agents"
                own = [episode for episode in self.episodes if self.choices[episode.agent] == choice]
                lines.append(f"{choice} ({word} {', '.join(agents)}): {_count(own)}")
                lines += [f"  {line}" for line in _result_lines(own)]
        return "\n".join([*lines, f"video: {self.video}"] if self.video else lines)

    def figures(self) -> dict[str, Any]:
        """Returns the entry in a --json file. May contain NaN and infinity, which `write_json` replaces."""
        return {
            "policies": [choice._asdict() for choice in self.choices],
            "versions": list(self.versions),
            "num_episodes": len(self.episodes),
            "num_repeats": self.num_repeats,
            "is_partial": self.is_partial,
            "env_frames": self.env_frames,
            "seconds": self.seconds,
            "statistics": {name: summary._asdict() for name, summary in self.statistics.items()},
            "episodes": [episode._asdict() for episode in self.episodes],
        }

    def rows(self) -> list[dict[str, Any]]:
        """Returns the rows of a --csv file: one for each episode. An extra statistic with the name of one of
        the other columns is left out."""
        rows = []
        for episode in self.episodes:
            choice = self.choices[episode.agent]
            own: dict[str, Any] = {
                "checkpoint": choice.checkpoint,
                "policy": choice.policy_index,
                "env": episode.env,
                "agent": episode.agent,
                "reward": episode.reward,
                "length": episode.length,
                "true_objective": episode.true_objective,
            }
            rows.append({**own, **episode.extra_stats, **own})  # see `statistics`
        return rows


def result_figures(
    config: Config, evaluations: Sequence[Evaluation], failure: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the contents of a --json file. May contain NaN and infinity, which `write_json` replaces.

    failure: which evaluation ended the command, and the reason.
    """
    return {
        "experiment": str(config.experiment_dir),
        "env": config.env_name,
        "deterministic": config.evaluation.eval_deterministic,
        "evaluations": [evaluation.figures() for evaluation in evaluations],
        "failure": failure,
    }


def write_results(
    config: Config, evaluations: Sequence[Evaluation], failed: PolicyChoice | None = None, reason: str = ""
) -> None:
    """Writes the files of --json and --csv, if the command has these flags. Raises ConfigError.

    failed, reason: the checkpoint with which the command ended early, and why.
    """
    flags = config.extra.get("results", ResultFlags())
    failure = None if failed is None else {**failed._asdict(), "reason": reason}
    rows = [row for evaluation in evaluations for row in evaluation.rows()]
    if failed is not None:
        rows.append({"checkpoint": failed.checkpoint, "policy": failed.policy_index, "failure": reason})
    table = io.StringIO()
    writer = csv.DictWriter(table, list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows(rows)
    write_json(flags.json, result_figures(config, evaluations, failure))
    _write_file("csv", flags.csv, table.getvalue())


def write_json(name: str | None, figures: Mapping[str, Any]) -> None:
    """Writes the file of --json, where numbers that are not finite are null. Raises ConfigError.

    name: of the file; None: no file.
    """
    _write_file("json", name, json.dumps(finite(figures), indent=4, allow_nan=False) + "\n")


def _write_file(flag_name: str, name: str | None, text: str) -> None:
    if name is None:
        return
    try:
        Path(name).expanduser().write_text(text, newline="")
    except OSError as error:
        raise ConfigError(f"--{flag_name}={name}: {error.strerror}") from None


def finite(value: Any) -> Any:
    """Returns a value for a JSON file, with None in place of numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def left_to_measure(chosen: Iterable[PolicyChoice], evaluations: Sequence[Evaluation]) -> list[PolicyChoice]:
    """Returns the chosen policies that have played in none of the evaluations."""
    return [choice for choice in chosen if not any(choice in done.choices for done in evaluations)]


def _count(episodes: Sequence[EpisodeResult]) -> str:
    return "1 episode" if len(episodes) == 1 else f"{len(episodes)} episodes"


def _result_lines(episodes: Sequence[EpisodeResult]) -> list[str]:
    """Returns a line for each statistic: mean, standard deviation, range, and the interval of the mean."""
    values: dict[str, list[float]] = {
        "reward": [episode.reward for episode in episodes],
        "length": [episode.length for episode in episodes],
    }
    if any(map(_has_own_objective, episodes)):
        values["objective"] = [episode.true_objective for episode in episodes]
    lines = []
    for name, found in values.items() if episodes else ():
        mean = mean_and_std(found)
        line = f"{name:<9} {mean} ({number_text(min(found))} to {number_text(max(found))})"
        if math.isfinite(mean.low):
            line += f"  mean {number_text(mean.low)} to {number_text(mean.high)} (95 %)"
        lines.append(line)
    return lines


def _has_own_objective(episode: EpisodeResult) -> bool:
    """Returns whether the env reports an objective that differs from the reward."""
    return episode.true_objective != episode.reward


def episode_line(episodes: Sequence[EpisodeResult], num_agents: int) -> str:
    """Returns a line about the last of the episodes: at most 80 columns for numbers of usual size."""
    last = episodes[-1]
    agent = f"  agent {last.agent:>2}" if num_agents > 1 else ""
    mean_reward = number_text(float(np.mean([episode.reward for episode in episodes])))
    mean = f"  mean {mean_reward:>9}" if num_agents == 1 else ""
    objective = f"  objective {number_text(last.true_objective):>8}" if _has_own_objective(last) else ""
    results = f"reward {number_text(last.reward):>9}{mean}  length {last.length:>5}{objective}"
    return f"episode {len(episodes):>3}{agent}  {results}"


class Progress:
    """Shows how many episodes or matches have ended, and how long the rest will take.

    On a terminal a bar that is rewritten in place; elsewhere a line every PROGRESS_SECONDS.
    """

    def __init__(self, total: int | None, now: Callable[[], float] = time.monotonic):
        """total: number of episodes or matches; None: show nothing. The time starts now."""
        self._total = total
        self._is_bar = total is not None and sys.stdout.isatty()
        self._is_time = Every(BAR_SECONDS if self._is_bar else PROGRESS_SECONDS, now=now)
        self._now = now
        self._began = now()

    def update(self, done: int, describe: Callable[[], str] = str) -> None:
        """Shows that `done` have ended, unless it was shown a moment ago. describe: returns text to add."""
        if self._total is None or not self._is_time():
            return
        left = ""
        if done:
            seconds = (self._now() - self._began) * (self._total - done) / done
            left = f"   {clock_text(seconds)} left"
        text = f"{done} of {self._total}{left}   {describe()}".rstrip()
        if self._is_bar:
            filled = "#" * round(BAR_WIDTH * done / self._total)
            line = f"[{filled:.<{BAR_WIDTH}}] {text}"[: columns_of(sys.stdout) - 1]
            print(f"{CLEAR_LINE}{line}", end="", flush=True)
        else:
            print(text, flush=True)

    def close(self) -> None:
        """Removes the bar."""
        if self._is_bar:
            print(CLEAR_LINE, end="", flush=True)
