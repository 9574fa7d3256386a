"""The progress of a run, for people: status lines in the log, and TensorBoard."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

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
from sample_factory.exchange.topology import Topology
from sample_factory.monitoring.bottleneck import BottleneckWatch
from sample_factory.monitoring.component_stats import ComponentStats
from sample_factory.monitoring.console import StatusLine, duration_text, level_lines, policy_rows, reward_text
from sample_factory.monitoring.run_progress import RunProgress
from sample_factory.monitoring.subscriber import Subscriber
from sample_factory.monitoring.summaries import Summaries, SummaryWriter
from sample_factory.runtime.clock import Every
from sample_factory.runtime.log import log

MEASURE_SECONDS = 1.0
POLICY_ROWS_SECONDS = 30.0  # between the rows of several policies
LEVELS_SECONDS = 60.0  # between lines about levels


class Monitor(Subscriber):
    """In the main process: logs the status of the run and writes TensorBoard files.

    1. Rates, the time left and the final means refer to this run; `env_frames` and the progress include the
       runs that it resumes.
    2. The clock of the run starts with the first `tick`: when all workers are ready, or something is learned.
    3. Neither torch nor TensorFlow is loaded.

    progress: counters and rates of the run.
    policies: counters and last episodes of each policy.
    components: statistics that components have reported.
    """

    def __init__(
        self,
        experiment_dir: Path,
        flags: MonitoringFlags,
        topology: Topology,
        max_episode_steps: int | None = None,
        texts: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.monotonic,
        writers: Sequence[SummaryWriter] = (),
    ):
        """Prepares the log and the summary files.
        max_episode_steps: steps after which an episode ends at the latest; None if not known.
        texts: tag -> text about the run, in Markdown, for TensorBoard.
        writers: receive the same summaries as TensorBoard."""
        self._status_interval = flags.status_interval
        self._now = now
        self.components = ComponentStats(now)
        self.progress = RunProgress(flags, topology, self.components.incidents, now)
        self.policies = self.progress.policies
        frames_per_x = 1 if flags.summaries_use_frameskip else topology.frameskip
        self._summaries = Summaries(experiment_dir, flags, frames_per_x, texts or {}, now, writers)
        self._bottleneck = BottleneckWatch(topology)
        self._status_line = StatusLine()
        self._max_episode_steps = max_episode_steps
        self._noted_length = 0  # of the longest episode, in the last note about it
        self._has_logged_frames = False
        self._start_timers()

    def _start_timers(self) -> None:
        self._time_to_measure = Every(MEASURE_SECONDS, at_first=True, now=self._now)
        self._time_to_log = Every(self._status_interval, now=self._now)
        self._time_for_policy_rows = Every(POLICY_ROWS_SECONDS, at_first=True, now=self._now)
        self._time_for_levels = Every(LEVELS_SECONDS, now=self._now)
        self._summaries.start_timers()

    def handle(self, report: Report) -> None:
        """Updates counters and statistics with a report; logs incidents, and components that are ready."""
        match report:
            case EpisodeReport():
                self.policies[report.policy_id].episodes.add(report)
            case StatsReport():
                self.components.add(report)
                self.progress.add(report)
            case TrainReport():
                self._trained(report)
            case ComponentReady() | LearnerReady():
                log.info(report.text, extra={"on_terminals": False} if report.is_detail else None)
                if isinstance(report, ComponentReady) and report.component == "learner":
                    self.progress.has_batch = True
            case Incident():
                self.components.add_incident(report)
            case PolicyReplaced():
                # The episodes so far were played with the weights that have been replaced.
                self.policies[report.policy_id].episodes.clear()

    def tick(self) -> None:
        """Logs the status and writes summaries when they are due; to be called several times a second."""
        if self.progress.started is None:
            self.progress.started = self._now()
            # Workers may have started so slowly that all timers are due before there is anything to log.
            self._start_timers()
        if self._time_to_measure():
            self.progress.measure()
        has_first_frames = self.progress.new_frames > 0 and not self._has_logged_frames
        if has_first_frames:  # users wait for that first status line
            self._has_logged_frames = True
            self._time_to_log = Every(self._status_interval, now=self._now)
        if has_first_frames or self._time_to_log():
            self._log_status()
        self._summaries.tick(self.progress, self.components)

    def stopping(self) -> None:
        """Stops the clock of the run, so that rates do not include saving and stopping."""
        self.progress.stopped = self._now()

    def close(self) -> None:
        """Writes the last summaries."""
        self._summaries.write_all(self.progress, self.components)
        self._summaries.flush()

    def write(self, policy_id: int, scalars: Mapping[str, float], env_frames: int | None = None) -> None:
        """Adds a point to a policy's TensorBoard curves. scalars: tag -> value.
        env_frames: x of the point; default: the policy's current frames. With the default, nothing is
            written before the learner has reported where it resumes: a point at 0 frames would replace the
            curves of all earlier runs."""
        policy = self.policies[policy_id]
        if env_frames is None and not policy.has_started:
            return
        self._summaries.write(policy_id, scalars, policy.env_frames if env_frames is None else env_frames)

    def status(self) -> str:
        """Measures the rates, and returns the status of the run in one line."""
        self.progress.measure()
        return self._status_line.text(self.progress)

    def summary(self) -> RunProgress:
        """Returns the progress of the run, after updating the best rewards of all policies."""
        for policy in self.policies:
            policy.update_best()
        return self.progress

    def _log_status(self) -> None:
        for policy in self.policies:
            policy.update_best()
        status = self.status()
        if len(self.policies) > 1 and self._time_for_policy_rows():
            status = "\n ".join([status, *policy_rows(self.policies)])
        log.info(status, extra={"bold": reward_text(self.policies[0].episodes)})
        if self._time_for_levels():
            for policy_id, policy in enumerate(self.policies):
                whose = f"policy {policy_id}: " if len(self.policies) > 1 else ""
                if lines := level_lines(policy.episodes, whose):
                    log.info("\n ".join(lines))
        for news in (self._bottleneck.news(self.components.waits()), self._note_on_episodes()):
            if news:
                log.info(news)

    def _note_on_episodes(self) -> str:
        """Returns a text about how long the first episode already takes, each time that its length has
        doubled; empty at other times, and once an episode has ended."""
        longest = self.progress.longest_episode
        if any(len(policy.episodes) for policy in self.policies) or longest < max(1, 2 * self._noted_length):
            return ""
        self._noted_length = longest
        limit = self._max_episode_steps
        if limit is None or longest >= limit:
            return f"no episode has ended yet; the longest is at step {longest:,}"
        seconds_left = self.progress.seconds * (limit - longest) / longest
        return (
            f"no episode has ended yet; the longest is at step {longest:,} of at most {limit:,}, so it ends "
            f"within about {duration_text(seconds_left)}"
        )

    def _trained(self, report: TrainReport) -> None:
        policy = self.policies[report.policy_id]
        is_first = not policy.has_started
        policy.trained(report)
        if is_first:
            self._summaries.begin(report.policy_id, report.env_frames)
        if report.stats:
            self.write(report.policy_id, {f"train/{name}": value for name, value in report.stats.items()})
