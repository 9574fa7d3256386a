"""How far the training of one policy has come: its counters and its last episodes."""

import collections
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from sample_factory.envs.end_infos import MAX_STATS
from sample_factory.exchange.messages import EpisodeReport, TrainReport
from sample_factory.runtime.log import log

T = TypeVar("T")

# A mean over fewer episodes would mostly show the short ones, which end first.
MIN_EPISODES = 10
# TensorBoard tags of v1.
TAGS = {"reward": "0_aux/avg_reward", "true_objective": "0_aux/avg_true_reward", "len": "0_aux/avg_len"}
# Metric -> beginning of the tags of its lowest and highest value; for the length, that of version 2.
RANGE_TAGS = {**TAGS, "len": "len/len"}

V1_NAMES = {"true_reward": "true_objective"}  # v1's name of a metric -> name here


class Spread(NamedTuple):
    """Mean, lowest and highest value of one metric over the `num_episodes` episodes that report it."""

    mean: float
    low: float
    high: float
    num_episodes: int


class PolicyProgress:
    """Counts what one policy was trained on, and keeps statistics of its last episodes.

    episodes: statistics of the last episodes. env_frames: frames trained on in all runs of the experiment.
    new_frames, new_samples: frames and samples trained on in this run.
    lag: SGD steps between acting and training, averaged over the last minibatch for which the learner has
        reported them; None before the first report.
    eval_reward: the mean reward of the last evaluation during training; None before the first.
    best_reward, best_at: the largest mean reward over a full window of episodes in this run, and the
        env_frames at which it was reached; None before the first full window.
    """

    def __init__(self, stats_avg: int, num_agents: int = 1):
        """Starts with no frames. stats_avg: episodes in a mean. num_agents: about how many agents the policy
        plays at the same time."""
        self.episodes = EpisodeStats(stats_avg, num_agents)
        self.env_frames = 0
        self.new_frames = 0
        self.new_samples = 0
        self.lag: float | None = None
        self.eval_reward: float | None = None
        self.best_reward: float | None = None
        self.best_at: int | None = None
        self._first: TrainReport | None = None

    @property
    def has_started(self) -> bool:
        """Whether the learner has reported the counters that it starts from."""
        return self._first is not None

    def trained(self, report: TrainReport) -> None:
        """Updates the counters. The first report of a run contains the counters that the learner has
        restored, from which the counts of this run start."""
        if self._first is None:
            self._first = report
        self.env_frames = report.env_frames
        self.new_frames = max(0, report.env_frames - self._first.env_frames)
        self.new_samples = max(0, report.samples - self._first.samples)
        stats = report.stats or {}
        self.lag = stats.get("version_diff_avg", self.lag)

    def episode_summaries(self) -> dict[str, float]:
        """Returns statistics of the last episodes for TensorBoard: tag -> value. Empty for a resumed policy
        while fewer episodes have ended than it has agents: short episodes end first, so the means are
        biased."""
        is_resumed = self._first is not None and self._first.env_frames > 0
        return {} if is_resumed and self.episodes.are_short else self.episodes.summaries()

    def update_best(self) -> None:
        """Updates `best_reward` and `best_at` if the mean reward of the last episodes exceeds `best_reward`;
        to be called repeatedly."""
        mean = None if self.episodes.are_first else self.episodes.mean("reward", self.episodes.window)
        if mean is None or not math.isfinite(mean):
            return
        if self.best_reward is None or mean > self.best_reward:
            self.best_reward, self.best_at = mean, self.env_frames


class FirstNames:
    """Limits the names of an env's statistics, or of its levels, to the first MAX_STATS: names that are new
    in every episode would slow down the run and TensorBoard."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._has_logged = False

    def of(self, values: Mapping[str, T]) -> Mapping[str, T]:
        """Returns the values whose names are among the first MAX_STATS. Logs the first name that is left
        out."""
        new = [name for name in values if name not in self._names]
        self._names.update(new[: MAX_STATS - len(self._names)])
        left_out = [name for name in new if name not in self._names]
        if left_out and not self._has_logged:
            self._has_logged = True
            log.warning(
                "Episodes have statistics or levels of over %d names; left out: %r", MAX_STATS, left_out[0]
            )
        return {name: values[name] for name in values if name in self._names} if left_out else values


class EpisodeStats:
    """Computes statistics of the last `window` episodes of a policy, and of the last `window` episodes in
    each level. A metric is "reward", "true_objective" (v1: "true_reward"), "len" (env frames), or the name of
    an extra stat or of a metric of the env's family."""

    def __init__(self, window: int, num_agents: int = 1):
        """Starts without episodes. window: number of last episodes to keep. num_agents: number of agents that
        play at the same time."""
        self.window = window
        self._num_agents = num_agents
        self._num_added = 0  # since the start or the last `clear`
        self._had_own_objective = False  # in any episode of this run
        self.had_reward = False  # other than 0, in any episode of this run
        self._episodes: collections.deque[EpisodeReport] = collections.deque(maxlen=window)
        self._family_metrics: dict[str, float] = {}
        self._names = FirstNames()
        self._of_level: dict[str, collections.deque[EpisodeReport]] = {}
        self._level_names = FirstNames()

    def __len__(self) -> int:
        return len(self._episodes)

    def add(self, report: EpisodeReport) -> None:
        self._num_added += 1
        self.had_reward |= report.reward != 0
        self._had_own_objective |= report.true_objective != report.reward
        kept = report._replace(extra_stats=self._names.of(report.extra_stats), info={})
        self._episodes.append(kept)
        if report.level:
            for level, episode in self._level_names.of({report.level: kept}).items():
                episodes = self._of_level.setdefault(level, collections.deque(maxlen=self.window))
                episodes.append(episode)

    def update_family_metrics(self, values: Mapping[str, float]) -> None:
        """Updates metrics, name -> value, that the env's family has computed from many episodes, e.g. a score
        normalised over all levels."""
        self._family_metrics.update(values)

    def clear_family_metrics(self) -> None:
        self._family_metrics.clear()

    def clear(self) -> None:
        self._num_added = 0
        self._episodes.clear()
        self._of_level.clear()
        self.clear_family_metrics()

    @property
    def are_short(self) -> bool:
        """Whether fewer episodes have ended than agents play, so that means are biased: short episodes end
        first."""
        return self._num_added < self._num_agents

    @property
    def are_first(self) -> bool:
        """Whether too few episodes have ended to compare their mean with others, e.g. for the best policy:
        fewer than fill the window, or than agents play."""
        return self._num_added < self.window or self.are_short

    @property
    def metrics(self) -> list[str]:
        """The three metrics that every episode has, then the extra stats that at least one of the episodes
        reports."""
        extra = {name: None for episode in self._episodes for name in episode.extra_stats}
        return [*TAGS, *(name for name in extra if name not in TAGS)]

    @property
    def has_own_objective(self) -> bool:
        """Whether the true objective differs from the reward in at least one of the episodes."""
        return any(episode.true_objective != episode.reward for episode in self._episodes)

    def mean(self, metric: str, at_least: int) -> float | None:
        """Returns the mean of a metric; None if fewer than `at_least` of the last episodes report it, or
        fewer than `window` if `window` is smaller."""
        spread = self.spread(metric)
        if spread is None or spread.num_episodes < min(at_least, self.window):
            return None
        return spread.mean

    def spread(self, metric: str) -> Spread | None:
        """Returns mean and range of a metric; None if no episode reports it."""
        if metric in self._family_metrics:
            value = self._family_metrics[metric]
            return Spread(value, value, value, len(self))
        return _spread(self._episodes, metric)

    def by_level(self, metric: str) -> dict[str, Spread]:
        """Returns level -> mean and range of a metric over the last episodes in the level, sorted by name."""
        found = {level: _spread(episodes, metric) for level, episodes in self._of_level.items()}
        return {level: spread for level, spread in sorted(found.items()) if spread is not None}

    def summaries(self) -> dict[str, float]:
        """Returns TensorBoard tag -> statistic of the last episodes; empty before MIN_EPISODES episodes or a
        full window. The true objective is left out if it always equals the reward."""
        least = min(MIN_EPISODES, self.window)
        if len(self) < least:
            return {}
        scalars: dict[str, float] = {}
        for metric in TAGS if self._of_level else ():
            if metric != "true_objective" or self._had_own_objective:
                for level, spread in self.by_level(metric).items():
                    if spread.num_episodes >= least:
                        scalars[f"levels/{level}/{metric}"] = spread.mean
        for metric in self.metrics:
            if metric == "true_objective" and not self._had_own_objective:
                continue  # it would repeat the curve of the reward
            found = self.spread(metric)
            assert found is not None, "every metric is reported by an episode"
            scalars[tag_of(metric)] = found.mean
            if metric in RANGE_TAGS:
                scalars[f"{RANGE_TAGS[metric]}_min"] = found.low
                scalars[f"{RANGE_TAGS[metric]}_max"] = found.high
        return scalars


def tag_of(metric: str) -> str:
    """Returns the TensorBoard tag of the mean of a metric."""
    metric = V1_NAMES.get(metric, metric)
    return TAGS.get(metric) or (metric if "/" in metric else f"0_aux/avg_{metric}")


def _spread(episodes: Iterable[EpisodeReport], metric: str) -> Spread | None:
    found = [_value(episode, metric) for episode in episodes]
    values = [value for value in found if value is not None]
    if not values:
        return None
    return Spread(sum(values) / len(values), min(values), max(values), len(values))


def _value(episode: EpisodeReport, metric: str) -> float | None:
    of_all = {"reward": episode.reward, "true_objective": episode.true_objective, "len": episode.length}
    metric = V1_NAMES.get(metric, metric)
    return of_all[metric] if metric in of_all else episode.extra_stats.get(metric)
