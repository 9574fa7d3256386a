"""Results of episodes: which ones count, their statistics, and the lines printed about them."""

import math
import operator
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sample_factory.envs.protocol import COST
from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.evaluation.result_statistics import MeanAndStd, level_table, mean_and_std, result_lines
from sample_factory.monitoring.console import clock_text, number_text, short_number
from sample_factory.runtime.clock import Every
from sample_factory.runtime.log import columns_of

PROGRESS_SECONDS = 5.0  # between two lines where stdout is no terminal
BAR_SECONDS = 0.2
BAR_WIDTH = 20
CLEAR_LINE = "\r\x1b[K"


class EpisodeResult(NamedTuple):
    """The result of one agent's episode.

    For example `max(episode.reward for episode in evaluation.episodes)`.

    Attributes:
        agent: Index of the agent in its env.
        reward: Sum of the raw rewards.
        length: Number of env frames.
        true_objective: The env's own score; the reward if the env reports none.
        extra_stats: Name -> number: the env's `episode_extra_stats`, and the sum of its costs.
        env: Index of the env, where several are played side by side.
        level: Name of the level that was played; empty if the env has no levels.
    """

    agent: int
    reward: float
    length: int
    true_objective: float
    extra_stats: Mapping[str, float] = {}
    env: int = 0
    level: str = ""


def without_repeats(episodes: Sequence[EpisodeResult]) -> tuple[EpisodeResult, ...]:
    """Removes exact repeats: episodes with the reward, length and objective of an earlier episode of the same
    agent, env and level. Must be called only for a deterministic policy in envs that always restart from one
    cached state, since elsewhere different episodes can have equal results."""
    first: dict[tuple[float | str, ...], EpisodeResult] = {}
    for episode in episodes:
        result = episode.reward, episode.length, episode.true_objective
        first.setdefault((episode.env, episode.agent, episode.level, *result), episode)
    return tuple(first.values())


class EpisodeCount:
    """Collects the episodes that count: each agent plays a number of episodes that is fixed in advance, since
    counting the first N episodes that end would favour short ones. A match of all agents is added as an
    episode of agent 0."""

    def __init__(self, wanted: np.ndarray):
        """Starts an empty collection. wanted: number of episodes of each agent of each env, int64 [num_envs,
        num_agents]."""
        self._wanted = wanted
        self._num_wanted = int(wanted.sum())
        self._num_ended = np.zeros_like(wanted)
        self._found: dict[tuple[int, int, int], Any] = {}  # by (number, env, agent)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def ended(self) -> tuple[Any, ...]:
        """The episodes that count, in an order that does not depend on time: the first ones of all agents,
        the second ones, and so on."""
        return tuple(self._found[key] for key in sorted(self._found))

    @property
    def is_complete(self) -> bool:
        return len(self._found) == self._num_wanted

    def add(self, ended: Any, env: int, agent: int) -> int | None:
        """Adds an episode that has ended. Returns its number among the episodes of its agent, from 0. Returns
        None if it does not count: the agent has enough episodes, or a replaced worker has played this number
        again."""
        number = int(self._num_ended[env, agent])
        self._num_ended[env, agent] += 1
        key = (number, env, agent)
        if number >= self._wanted[env, agent] or key in self._found:
            return None
        self._found[key] = ended
        return number

    def repeat(self, envs: slice) -> None:
        """Prepares for a replaced worker, which plays all episodes of these envs again, from the first one,
        with the same seeds. Of two episodes with the same number, the one that ended first counts."""
        self._num_ended[envs] = 0


class Evaluation(NamedTuple):
    """The result of an evaluation: its episodes, and statistics of them.

    For example:

        evaluation = sample_factory.evaluate("cartpole", num_episodes=100)
        print(evaluation.summary())
        print(max(episode.reward for episode in evaluation.episodes))

    Attributes:
        choices: The policy of each agent.
        episodes: The episodes that count, an EpisodeResult each.
        env_frames: Number of env frames that were played; for `eval`, only in the episodes that count, and
            without frames in which agents are inactive.
        seconds: Duration of the evaluation.
        video: The file that `enjoy` has written; otherwise None.
        num_wanted: Number of episodes that were to be played; None if no number was given.
        versions: Number of SGD steps of each agent's policy, read from the file that was loaded. This is not
            the newest file if that one is damaged, or was saved later.
        num_repeats: Number of further episodes, left out as exact repeats of earlier ones.
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
        """Statistics of the sum of raw rewards of an episode."""
        return mean_and_std([episode.reward for episode in self.episodes])

    @property
    def length(self) -> MeanAndStd:
        """Statistics of the length of an episode in env frames."""
        return mean_and_std([episode.length for episode in self.episodes])

    @property
    def true_objective(self) -> MeanAndStd:
        """Statistics of the env's own score; of the reward if the env reports no score."""
        return mean_and_std([episode.true_objective for episode in self.episodes])

    @property
    def extra_stats(self) -> dict[str, MeanAndStd]:
        """Statistics of each further number that the env reports, by name, over the episodes that have it."""
        values: dict[str, list[float]] = {}
        for episode in self.episodes:
            for name, value in episode.extra_stats.items():
                values.setdefault(name, []).append(value)
        return {name: mean_and_std(found) for name, found in values.items()}

    @property
    def statistics(self) -> dict[str, MeanAndStd]:
        """Name -> statistics: reward, length, true_objective, and the extra statistics with further names."""
        own = {"reward": self.reward, "length": self.length, "true_objective": self.true_objective}
        return {**own, **self.extra_stats, **own}  # own first, for the order; own last, to have priority

    @property
    def is_partial(self) -> bool:
        """Whether the evaluation was stopped early, so that too many of its episodes are short."""
        return self.num_wanted is not None and len(self.episodes) < self.num_wanted

    def first_of(self, chosen: Iterable[PolicyChoice]) -> PolicyChoice:
        """Returns the first of the `chosen` policies that plays in this evaluation. It identifies an
        evaluation in which the policies of several kinds of agents play together."""
        return next(choice for choice in chosen if choice in self.choices)

    def for_agent(self, agent: int) -> "Evaluation":
        """Returns this evaluation restricted to the episodes of one agent."""
        return self._with(episode for episode in self.episodes if episode.agent == agent)

    @property
    def by_level(self) -> "dict[str, Evaluation]":
        """Name of a level -> this evaluation restricted to the episodes in that level; empty for an env
        without levels. `env_frames` and `seconds` remain the totals over all levels."""
        found = _split_by_level(self.episodes)
        return {level: self._with(own) for level, own in found.items()} if any(found) else {}

    def _with(self, episodes: Iterable[EpisodeResult]) -> "Evaluation":
        """Returns this evaluation restricted to some of its episodes."""
        own = tuple(episodes)
        if self.num_wanted is None or self.is_partial:  # it may have stopped while others played
            return self._replace(episodes=own)
        return self._replace(episodes=own, num_wanted=len(own))

    def summary(self) -> str:
        """Returns the statistics as a text of several lines, e.g. for the console."""
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
        """Returns this evaluation for a --json file. May contain NaN and infinity, which `write_json`
        replaces."""
        return {
            "policies": [choice._asdict() for choice in self.choices],
            "versions": list(self.versions),
            "num_episodes": len(self.episodes),
            "num_repeats": self.num_repeats,
            "is_partial": self.is_partial,
            "env_frames": self.env_frames,
            "seconds": self.seconds,
            "statistics": _as_dicts(self.statistics),
            "levels": {level: _as_dicts(own.statistics) for level, own in self.by_level.items()},
            "episodes": [episode._asdict() for episode in self.episodes],
        }

    def rows(self) -> list[dict[str, Any]]:
        """Returns the rows of a --csv file, column -> value, one for each episode. An extra statistic is left
        out if its name is the name of a standard column."""
        rows = []
        for episode in self.episodes:
            choice = self.choices[episode.agent]
            own: dict[str, Any] = {
                "checkpoint": choice.checkpoint,
                "policy": choice.policy_index,
                "level": episode.level,
                "env": episode.env,
                "agent": episode.agent,
                "reward": episode.reward,
                "length": episode.length,
                "true_objective": episode.true_objective,
            }
            rows.append({**own, **episode.extra_stats, **own})  # see `statistics`
        return rows


def left_to_measure(chosen: Iterable[PolicyChoice], evaluations: Sequence[Evaluation]) -> list[PolicyChoice]:
    """Returns the chosen policies that have played in none of the evaluations, because a signal or a failure
    has ended the command early."""
    return [choice for choice in chosen if not any(choice in done.choices for done in evaluations)]


def _as_dicts(statistics: Mapping[str, MeanAndStd]) -> dict[str, dict[str, float]]:
    return {name: summary._asdict() for name, summary in statistics.items()}


def _count(episodes: Sequence[EpisodeResult]) -> str:
    return "1 episode" if len(episodes) == 1 else f"{len(episodes)} episodes"


def _result_lines(episodes: Sequence[EpisodeResult]) -> list[str]:
    """Returns the results of episodes as lines of text: a line for each statistic, or a table of levels if
    the env has levels."""
    values: dict[str, Callable[[EpisodeResult], float]] = {
        "reward": operator.attrgetter("reward"),
        "length": operator.attrgetter("length"),
    }
    if any(map(_has_own_objective, episodes)):
        values["objective"] = operator.attrgetter("true_objective")
    if all(COST in episode.extra_stats for episode in episodes):
        values["cost"] = lambda episode: episode.extra_stats[COST]
    of_levels = {
        level: {name: [value(episode) for episode in own] for name, value in values.items()}
        for level, own in _split_by_level(episodes).items()
    }
    if any(of_levels):
        return level_table(of_levels)
    return [line for values in of_levels.values() for line in result_lines(values)]


def _split_by_level(episodes: Iterable[EpisodeResult]) -> dict[str, list[EpisodeResult]]:
    """Groups episodes by level; levels are ordered by their first episode."""
    found: dict[str, list[EpisodeResult]] = {}
    for episode in episodes:
        found.setdefault(episode.level, []).append(episode)
    return found


def _has_own_objective(episode: EpisodeResult) -> bool:
    """Returns whether the episode has a true objective that differs from its reward."""
    return episode.true_objective != episode.reward


def episode_line(episodes: Sequence[EpisodeResult], num_agents: int) -> str:
    """Returns a line of text about the last episode in the list, and with a single agent the mean reward of
    all of them; at most 80 columns for numbers of usual size. num_agents: agents in the env; several are
    named by index."""
    last = episodes[-1]
    agent = f"  agent {last.agent:>2}" if num_agents > 1 else ""
    mean_reward = number_text(float(np.mean([episode.reward for episode in episodes])))
    mean = f"  mean {mean_reward:>9}" if num_agents == 1 else ""
    objective = f"  objective {number_text(last.true_objective):>8}" if _has_own_objective(last) else ""
    results = f"reward {number_text(last.reward):>9}{mean}  length {last.length:>5}{objective}"
    return f"episode {len(episodes):>3}{agent}  {results}"


class Progress:
    """Shows how many episodes or matches have ended, and how long the rest will take. On a terminal, a bar is
    redrawn in place; elsewhere, a line is printed every PROGRESS_SECONDS."""

    def __init__(self, total: int | None, now: Callable[[], float] = time.monotonic):
        """Starts the clock. total: number of episodes or matches to play; None shows nothing."""
        self._total = total
        self._is_bar = total is not None and sys.stdout.isatty()
        self._is_time = Every(BAR_SECONDS if self._is_bar else PROGRESS_SECONDS, now=now)
        self._now = now
        self._began = now()

    def update(self, done: int, describe: Callable[[], str] = str) -> None:
        """Shows that `done` episodes or matches have ended, unless the progress was shown a moment ago.
        describe: returns text to append, e.g. the mean reward so far."""
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
        """Removes the progress bar from the terminal."""
        if self._is_bar:
            print(CLEAR_LINE, end="", flush=True)
