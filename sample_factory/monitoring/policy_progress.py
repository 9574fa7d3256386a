"""How far one policy has come."""

import logging
import math
from typing import NamedTuple

from sample_factory.exchange.messages import SaveRequest, TrainReport
from sample_factory.monitoring.episode_stats import EpisodeStats

log = logging.getLogger("sample_factory")

MIN_IMPROVEMENT = 0.001


class Lag(NamedTuple):
    """Versions between acting and training, in the last minibatch that was looked at."""

    mean: float
    low: float
    high: float


class PolicyProgress:
    """Counters and episodes of one policy. Promises:

    1. What a checkpoint restored is part of `env_frames`, never of `new_frames` or `new_samples`.
    2. A best value that was restored has to be beaten.
    """

    def __init__(self, policy_id: int, stats_avg: int):
        self._policy_id = policy_id
        self.episodes = EpisodeStats(stats_avg)
        self.env_frames = self.new_frames = self.new_samples = 0
        self.lag: Lag | None = None
        self._first: TrainReport | None = None
        self._best_value: float | None = None
        self._has_warned = False

    @property
    def has_started(self) -> bool:
        """Whether the learner has said where it starts from."""
        return self._first is not None

    def trained(self, report: TrainReport) -> None:
        """The first report of a run carries the counters that the learner starts from."""
        if self._first is None:
            self._first, self._best_value = report, report.best_value
        self.env_frames = report.env_frames
        self.new_frames = max(0, report.env_frames - self._first.env_frames)
        self.new_samples = max(0, report.samples - self._first.samples)
        stats = report.stats or {}
        if "version_diff_avg" in stats:
            self.lag = Lag(stats["version_diff_avg"], stats["version_diff_min"], stats["version_diff_max"])

    def new_best(self, metric: str) -> SaveRequest | None:
        """What to ask of the learner if the mean over a full window of episodes is the best so far.

        A mean over fewer episodes varies more, and the best of many such means would be luck.
        """
        if not self.has_started or len(self.episodes) < self.episodes.window:
            return None
        spread = self.episodes.spread(metric)
        if spread is None:
            self._warn_unknown(metric)
            return None
        if not math.isfinite(spread.mean):  # nothing could ever beat it
            return None
        if self._best_value is not None and not spread.mean > self._best_value + MIN_IMPROVEMENT:
            return None
        self._best_value = spread.mean
        return SaveRequest(metric, spread.mean)

    def _warn_unknown(self, metric: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "No best checkpoint of policy %d: its episodes have no --save_best_metric=%s, only %s",
                self._policy_id,
                metric,
                ", ".join(self.episodes.metrics),
            )
