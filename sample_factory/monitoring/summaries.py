"""The TensorBoard curves of a run, and other writers of the same summaries."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from sample_factory.config.monitoring_flags import MonitoringFlags
from sample_factory.monitoring.component_stats import ComponentStats
from sample_factory.monitoring.run_progress import STEADY_SECONDS, RunProgress
from sample_factory.monitoring.tensorboard_writer import TensorboardWriter
from sample_factory.runtime.clock import Every
from sample_factory.runtime.cpu import rss_mb

# In the first minutes people wait for curves, so summaries are written and flushed more often.
EARLY_SECONDS = 120.0
EARLY_INTERVAL = 5.0


class SummaryWriter(Protocol):
    """Receives every summary that TensorBoard receives."""

    def write(self, policy_id: int, scalars: Mapping[str, float], env_frames: int) -> None:
        """Adds tag -> value of a policy at its env frames. scalars: at least one."""

    def flush(self) -> None:
        """Writes what is kept in memory."""


class Summaries:
    """Writes one event file per policy, and the same summaries to other writers. The groups of tags:

    0_aux: what people look at first: reward, length, FPS, lag (the name and most tags are v1's).
    train: of the learner. stats: of components. health: counts of incidents. run: texts about the run.
    """

    def __init__(
        self,
        experiment_dir: Path,
        flags: MonitoringFlags,
        frames_per_x: int,
        texts: Mapping[str, str],
        now: Callable[[], float],
        others: Sequence[SummaryWriter] = (),
    ):
        """frames_per_x: env frames in a unit of the horizontal axis. texts: tag -> text in Markdown.
        others: writers beside TensorBoard's."""
        self._flags = flags
        self._frames_per_x = frames_per_x
        self._texts = texts
        self._now = now
        self._others = others
        self._folder = experiment_dir / ".summary"  # as in v1
        self._writers: dict[int, TensorboardWriter] = {}
        self.start_timers()

    def start_timers(self) -> None:
        """Counts all intervals from now on."""
        interval = self._flags.experiment_summaries_interval
        self._time_to_write_early = Every(min(EARLY_INTERVAL, interval), now=self._now)
        self._time_to_write = Every(interval, now=self._now)
        self._time_to_flush = Every(self._flags.flush_summaries_interval, now=self._now)

    def tick(self, progress: RunProgress, components: ComponentStats) -> None:
        """Writes what is due."""
        is_early = progress.seconds <= EARLY_SECONDS
        early_is_due, is_due = self._time_to_write_early(), self._time_to_write()
        if (early_is_due and progress.new_frames > 0) if is_early else is_due:
            self.write_all(progress, components)
            if is_early:
                self.flush()
        if self._time_to_flush():
            self.flush()

    def begin(self, policy_id: int, env_frames: int) -> None:
        """Marks the start of a run that resumes a policy."""
        self._writer(policy_id).begin(env_frames // self._frames_per_x)

    def write(self, policy_id: int, scalars: Mapping[str, float], env_frames: int) -> None:
        """Adds tag -> value to the curves of a policy, at this number of env frames."""
        if not scalars:
            return
        self._writer(policy_id).write(scalars, env_frames // self._frames_per_x)
        for other in self._others:
            other.write(policy_id, scalars, env_frames)

    def write_all(self, progress: RunProgress, components: ComponentStats) -> None:
        """Adds the current values of all policies that have started."""
        for policy_id, policy in enumerate(progress.policies):
            if not policy.has_started:
                continue
            scalars = {
                "0_aux/_sample_throughput": progress.samples_per_second(policy_id),
                "0_aux/env_frames": policy.env_frames,
                **policy.episodes.summaries(),
                **components.summaries(policy_id),
            }
            if policy.lag is not None:
                scalars["0_aux/policy_lag"] = policy.lag.mean
            if policy_id == 0:  # as in v1, values of the whole run are written for policy 0
                scalars["0_aux/_fps"] = progress.fps()[STEADY_SECONDS]
                scalars["0_aux/master_process_memory_mb"] = rss_mb()
                self._write_texts(policy.env_frames)
            finite = {tag: value for tag, value in scalars.items() if math.isfinite(value)}
            self.write(policy_id, finite, policy.env_frames)

    def flush(self) -> None:
        """Appends what has been written to the files."""
        for writer in self._writers.values():
            writer.flush()
        for other in self._others:
            other.flush()

    def _write_texts(self, env_frames: int) -> None:
        if self._texts:
            self._writer(0).write_texts(self._texts, env_frames // self._frames_per_x)
            self._texts = {}

    def _writer(self, policy_id: int) -> TensorboardWriter:
        if policy_id not in self._writers:
            self._writers[policy_id] = TensorboardWriter(self._folder / str(policy_id))
        return self._writers[policy_id]
