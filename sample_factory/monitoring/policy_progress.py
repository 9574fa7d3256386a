"""How far the training of one policy has come."""

from typing import NamedTuple

from sample_factory.exchange.messages import TrainReport
from sample_factory.monitoring.episode_stats import EpisodeStats


class Lag(NamedTuple):
    """SGD steps between acting and training, over the last minibatch for which the learner reported them."""

    mean: float
    low: float
    high: float


class PolicyProgress:
    """Counters and episodes of one policy.

    env_frames: trained on in all runs of the experiment.
    new_frames, new_samples: trained on in this run.
    lag: None before the first summary of the learner.
    """

    def __init__(self, stats_avg: int):
        self.episodes = EpisodeStats(stats_avg)
        self.env_frames = 0
        self.new_frames = 0
        self.new_samples = 0
        self.lag: Lag | None = None
        self._first: TrainReport | None = None

    @property
    def has_started(self) -> bool:
        """Whether the learner has reported the counters that it starts from."""
        return self._first is not None

    def trained(self, report: TrainReport) -> None:
        """Updates the counters. The first report of a run has those that the learner has restored."""
        if self._first is None:
            self._first = report
        self.env_frames = report.env_frames
        self.new_frames = max(0, report.env_frames - self._first.env_frames)
        self.new_samples = max(0, report.samples - self._first.samples)
        stats = report.stats or {}
        if "version_diff_avg" in stats:
            self.lag = Lag(stats["version_diff_avg"], stats["version_diff_min"], stats["version_diff_max"])
