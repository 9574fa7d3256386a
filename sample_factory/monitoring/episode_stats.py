"""Statistics of the last episodes of one policy."""

import collections
from typing import NamedTuple

from sample_factory.exchange.messages import EpisodeReport

# A mean over fewer episodes would mostly show the short ones, which end first.
MIN_EPISODES = 10
# TensorBoard tags of v1.
TAGS = {"reward": "0_aux/avg_reward", "true_objective": "0_aux/avg_true_reward", "len": "0_aux/avg_len"}

V1_NAMES = {"true_reward": "true_objective"}  # v1's name of a metric -> name here


class Spread(NamedTuple):
    """Statistics of one metric, over the episodes that report it."""

    num_episodes: int
    mean: float
    low: float
    high: float


class EpisodeStats:
    """The last `window` episodes. A metric is "reward", "true_objective" (v1: "true_reward"), "len" (env
    frames), or the name of an extra stat."""

    def __init__(self, window: int):
        self.window = window
        self._episodes: collections.deque[EpisodeReport] = collections.deque(maxlen=window)

    def __len__(self) -> int:
        return len(self._episodes)

    def add(self, report: EpisodeReport) -> None:
        self._episodes.append(report)

    def clear(self) -> None:
        self._episodes.clear()

    @property
    def metrics(self) -> list[str]:
        """The three metrics of every episode, then the extra stats that at least one episode reports."""
        extra = {name: None for episode in self._episodes for name in episode.extra_stats}
        return [*TAGS, *(name for name in extra if name not in TAGS)]

    @property
    def has_own_objective(self) -> bool:
        """Whether the true objective differs from the reward."""
        return any(episode.true_objective != episode.reward for episode in self._episodes)

    def mean(self, metric: str, at_least: int) -> float | None:
        """Returns the mean of a metric; None if fewer than `at_least` episodes report it.

        A full window is always enough.
        """
        spread = self.spread(metric)
        if spread is None or spread.num_episodes < min(at_least, self.window):
            return None
        return spread.mean

    def spread(self, metric: str) -> Spread | None:
        """Returns the statistics of a metric; None if no episode reports it."""
        found = [_value(episode, metric) for episode in self._episodes]
        values = [value for value in found if value is not None]
        if not values:
            return None
        return Spread(len(values), sum(values) / len(values), min(values), max(values))

    def summaries(self) -> dict[str, float]:
        """Returns TensorBoard tag -> value; nothing before MIN_EPISODES episodes or a full window."""
        if len(self) < min(MIN_EPISODES, self.window):
            return {}
        scalars: dict[str, float] = {}
        for metric in self.metrics:
            spread = self.spread(metric)
            assert spread is not None, "every metric is reported by an episode"
            tag = tag_of(metric)
            scalars[tag] = spread.mean
            if metric in TAGS:
                scalars[f"{tag}_min"] = spread.low
                scalars[f"{tag}_max"] = spread.high
        return scalars


def tag_of(metric: str) -> str:
    """Returns the TensorBoard tag of the mean of a metric."""
    metric = V1_NAMES.get(metric, metric)
    return TAGS.get(metric) or (metric if "/" in metric else f"0_aux/avg_{metric}")


def _value(episode: EpisodeReport, metric: str) -> float | None:
    metric = V1_NAMES.get(metric, metric)
    if metric == "reward":
        return episode.reward
    if metric == "true_objective":
        return episode.true_objective
    if metric == "len":
        return episode.length
    return episode.extra_stats.get(metric)
