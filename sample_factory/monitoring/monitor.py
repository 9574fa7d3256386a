"""The progress of a run, for people: status lines in the log, and TensorBoard."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sample_factory.config.flags import NEVER
from sample_factory.config.monitoring_flags import MonitoringFlags
from sample_factory.exchange.messages import (
    ComponentReady,
    EpisodeReport,
    Incident,
    LearnerReady,
    PolicyReplaced,
    Report,
    StatsReport,
    TrainReport,
)
from sample_factory.monitoring.bottleneck import BottleneckWatch, EnvCounts
from sample_factory.monitoring.component_stats import ComponentStats
from sample_factory.monitoring.console import FirstBatch, Status, status_text
from sample_factory.monitoring.policy_progress import PolicyProgress
from sample_factory.monitoring.run_summary import RunSummary
from sample_factory.monitoring.status_line import StatusLine, policy_rows, reward_text
from sample_factory.monitoring.tensorboard_writer import TensorboardWriter
from sample_factory.runtime.clock import Every, RateWindow
from sample_factory.runtime.cpu import rss_mb

log = logging.getLogger("sample_factory")

SAMPLE_SECONDS = 1.0
FPS_SECONDS = (10.0, 60.0, 300.0)
SUMMARY_FPS_SECONDS = 60.0
STEADY_FPS_SECONDS = 60.0
# In the first minutes people wait for curves, so summaries are written and flushed more often.
EARLY_SECONDS = 120.0
EARLY_SUMMARIES_SECONDS = 5.0
POLICY_ROWS_SECONDS = 30.0  # between the rows of several policies on a terminal


class RunSizes(NamedTuple):
    """Counts of a run that its monitor needs.

    num_agents: of all policies. first_batch: samples of all policies that are taken before each of them can
    have its first batch, about.
    """

    num_policies: int
    frameskip: int
    num_agents: int
    first_batch: int
    envs: EnvCounts


class Timers(NamedTuple):
    """When the actions of `Monitor.tick` are due."""

    sample: Every
    status: Every
    policy_rows: Every
    early_summaries: Every
    summaries: Every
    flush: Every


def start_timers(flags: MonitoringFlags, now: Callable[[], float]) -> Timers:
    """Returns timers that start now: `sample` and `policy_rows` are due at once, the others after their
    interval."""
    summaries_seconds = flags.experiment_summaries_interval
    return Timers(
        sample=Every(SAMPLE_SECONDS, at_first=True, now=now),
        status=Every(flags.status_interval, now=now),
        policy_rows=Every(POLICY_ROWS_SECONDS, at_first=True, now=now),
        early_summaries=Every(min(EARLY_SUMMARIES_SECONDS, summaries_seconds), now=now),
        summaries=Every(summaries_seconds, now=now),
        flush=Every(flags.flush_summaries_interval, now=now),
    )


class Monitor:
    """In the main process: logs the status of the run and writes TensorBoard files. Promises:

    1. Rates, the time left and the final means refer to this run; `env_frames` and the progress include the
       runs that it resumes.
    2. The time of the run starts with the first `tick`, when all workers are ready.
    3. It never loads torch or TensorFlow.
    """

    def __init__(
        self,
        experiment_dir: Path,
        flags: MonitoringFlags,
        sizes: RunSizes,
        texts: Mapping[str, str] = {},
        now: Callable[[], float] = time.monotonic,
    ):
        """texts: title -> text about the run, in Markdown, for TensorBoard."""
        self._folder = Path(experiment_dir)
        self._flags = flags
        self._sizes = sizes
        self._texts = texts
        self._now = now
        self._frames_per_x = 1 if flags.summaries_use_frameskip else sizes.frameskip
        num_policies = sizes.num_policies
        agents = sizes.num_agents // num_policies
        self._policies = [PolicyProgress(flags.stats_avg, agents) for _ in range(num_policies)]
        # The folders are v1's.
        self._writers = [TensorboardWriter(self._folder / ".summary" / str(i)) for i in range(num_policies)]
        self._components = ComponentStats(now)
        self._bottleneck = BottleneckWatch(sizes.envs)
        self._status_line = StatusLine()
        self._sampled = 0  # agent steps reported by rollout workers
        self._longest_episode = 0  # steps; before any episode has ended
        self._noted_length = 0  # of that episode, in the last note about it
        self._frame_rates = RateWindow(FPS_SECONDS)
        self._sampling_rates = RateWindow(FPS_SECONDS)
        self._sample_rates = [RateWindow((SUMMARY_FPS_SECONDS,)) for _ in range(num_policies)]
        self._started: float | None = None
        self._mean_fps: float | None = None
        self._has_logged_frames = False
        self._timers = start_timers(flags, now)

    def handle(self, report: Report) -> None:
        """Updates the state of the run with a report."""
        match report:
            case EpisodeReport():
                self._policies[report.policy_id].episodes.add(report)
            case StatsReport():
                self._components.add(report)
                self._sampled += report.samples
                self._longest_episode = max(self._longest_episode, report.longest_episode)
            case TrainReport():
                self._trained(report)
            case ComponentReady() | LearnerReady():
                log.info(report.text, extra={"short": report.short})
            case Incident():
                self._components.add_incident(report)
            case PolicyReplaced():
                # The episodes so far were played with the weights that have been replaced.
                self._policies[report.policy_id].episodes.clear()

    def tick(self) -> None:
        """Logs and writes what is due. To be called several times a second."""
        if self._started is None:
            self._started = self._now()
            # Workers may have started so slowly that all timers are due before there is anything to log.
            self._timers = start_timers(self._flags, self._now)
        if self._timers.sample():
            self._sample()
        if self._has_first_frames() or self._timers.status():
            self._log_status()
        if self._summaries_are_due():
            self._write_summaries()
        if self._timers.flush():
            self._flush()

    def _log_status(self) -> None:
        for policy in self._policies:
            policy.update_best()
        status = self._status()
        short = self._status_line.text(status)
        bold = reward_text(self._policies[0].episodes)
        if len(self._policies) > 1 and self._timers.policy_rows():
            short = "\n ".join([short, *policy_rows(self._policies)])
        log.info(status_text(status), extra={"short": short, "bold": bold})
        for note in (self._bottleneck.news(self._components.waits()), self._note_on_episodes()):
            if note:
                log.info(note)

    def _note_on_episodes(self) -> str:
        """Returns how far the first episode has come, each time that its length has doubled."""
        longest = self._longest_episode
        if any(len(policy.episodes) for policy in self._policies) or longest < 2 * self._noted_length:
            return ""
        self._noted_length = longest
        return f"no episode has ended yet; the longest runs since {longest:,} steps" if longest else ""

    def worker_started(self, index: int) -> None:
        """Does nothing."""

    def _has_first_frames(self) -> bool:
        """Returns True once, after the first iteration of training: users wait for that first status line."""
        is_first = self._new_frames > 0 and not self._has_logged_frames
        if is_first:
            self._has_logged_frames = True
            status = Every(self._flags.status_interval, now=self._now)
            self._timers = self._timers._replace(status=status)
        return is_first

    def stopping(self) -> None:
        """Computes the mean FPS of the run, so that the time for saving and stopping does not count."""
        self._mean_fps = self._compute_mean_fps()

    def close(self) -> None:
        """Writes the last summaries."""
        self._write_summaries()
        self._flush()

    @property
    def policies(self) -> Sequence[PolicyProgress]:
        """Counters and last episodes of all policies."""
        return self._policies

    @property
    def components(self) -> ComponentStats:
        """Statistics that components have reported."""
        return self._components

    def fps(self) -> Mapping[float, float]:
        """Returns length of a window in seconds -> env frames per second; NaN where they are not known."""
        return self._frame_rates.rates()

    @property
    def is_done(self) -> bool:
        """Whether all policies have reached --train_for_env_steps, or --train_for_seconds have passed."""
        if self._seconds >= self._flags.train_for_seconds:
            return True
        return all(policy.env_frames >= self._flags.train_for_env_steps for policy in self._policies)

    def write(self, policy_id: int, scalars: Mapping[str, float]) -> None:
        """Adds tag -> value to the TensorBoard curves of a policy, at its current env frames (or steps)."""
        self._writers[policy_id].write(scalars, self._policies[policy_id].env_frames // self._frames_per_x)

    def status(self) -> str:
        """Returns the status of the run as text."""
        return status_text(self._status())

    def _status(self) -> Status:
        self._sample()
        is_first_batch = self._new_frames == 0
        fps = (self._sampling_rates if is_first_batch else self._frame_rates).rates()
        # The shortest window is always shown. A longer one says the same until the run has covered it.
        covered = {window: fps[window] for window in fps if window <= max(self._seconds, FPS_SECONDS[0])}
        limit = self._flags.train_for_env_steps
        return Status(
            self._total_frames,
            None if limit >= NEVER else limit * len(self._policies),
            covered,
            fps[STEADY_FPS_SECONDS],
            self._progress,
            self._seconds_left(self._frame_rates.rates()[FPS_SECONDS[-1]]),
            self._bottleneck.text(self._components.waits()),
            self._policies,
            FirstBatch(self._sampled, self._sizes.first_batch) if is_first_batch else None,
        )

    def summary(self) -> RunSummary:
        """Returns the results of the run."""
        mean_fps = self._compute_mean_fps() if self._mean_fps is None else self._mean_fps
        seconds = self._seconds
        incidents = self._components.incidents
        return RunSummary(
            self._new_frames, self._total_frames, seconds, mean_fps, self._progress, incidents, self._policies
        )

    @property
    def _seconds(self) -> float:
        return 0.0 if self._started is None else self._now() - self._started

    @property
    def _total_frames(self) -> int:
        return sum(policy.env_frames for policy in self._policies)

    @property
    def _new_frames(self) -> int:
        return sum(policy.new_frames for policy in self._policies)

    def _compute_mean_fps(self) -> float:
        return self._new_frames / self._seconds if self._seconds else 0.0

    @property
    def _progress(self) -> float | None:
        limit = self._flags.train_for_env_steps
        if limit >= NEVER:
            return None
        return sum(min(policy.env_frames, limit) for policy in self._policies) / (limit * len(self._policies))

    def _seconds_left(self, fps: float) -> float | None:
        """Returns the seconds until the first limit is reached; None if there is none."""
        estimates: list[float] = []
        limit = self._flags.train_for_env_steps
        if limit < NEVER and fps > 0:
            estimates.append(sum(max(0, limit - policy.env_frames) for policy in self._policies) / fps)
        if self._flags.train_for_seconds < NEVER:
            estimates.append(max(0.0, self._flags.train_for_seconds - self._seconds))
        return min(estimates, default=None)

    def _trained(self, report: TrainReport) -> None:
        policy = self._policies[report.policy_id]
        is_first = not policy.has_started
        policy.trained(report)
        if is_first and report.env_frames > 0:
            self._writers[report.policy_id].begin(report.env_frames // self._frames_per_x)
        if report.stats:
            self.write(report.policy_id, {f"train/{name}": value for name, value in report.stats.items()})

    def _sample(self) -> None:
        now = self._now()
        self._frame_rates.add(now, self._new_frames)
        self._sampling_rates.add(now, self._sampled * self._sizes.frameskip)
        for rates, policy in zip(self._sample_rates, self._policies):
            rates.add(now, policy.new_samples)

    def _summaries_are_due(self) -> bool:
        is_early = self._seconds <= EARLY_SECONDS
        early_is_due, is_due = self._timers.early_summaries(), self._timers.summaries()
        return early_is_due and self._new_frames > 0 if is_early else is_due

    def _write_summaries(self) -> None:
        for policy_id, policy in enumerate(self._policies):
            if not policy.has_started:
                continue
            if self._texts and policy_id == 0:
                self._writers[0].write_texts(self._texts, policy.env_frames // self._frames_per_x)
                self._texts = {}
            scalars = {
                "0_aux/_sample_throughput": self._sample_rates[policy_id].rates()[SUMMARY_FPS_SECONDS],
                "0_aux/env_frames": policy.env_frames,
                **policy.episodes.summaries(),
                **self._components.summaries(policy_id),
            }
            if policy.lag is not None:
                scalars["0_aux/policy_lag"] = policy.lag.mean
            if policy_id == 0:  # as in v1, values of the whole run are written for policy 0
                scalars["0_aux/_fps"] = self._frame_rates.rates()[SUMMARY_FPS_SECONDS]
                scalars["0_aux/master_process_memory_mb"] = rss_mb()
            self.write(policy_id, {tag: value for tag, value in scalars.items() if math.isfinite(value)})
        if self._seconds <= EARLY_SECONDS:
            self._flush()

    def _flush(self) -> None:
        for writer in self._writers:
            writer.flush()
