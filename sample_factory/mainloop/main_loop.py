"""The main loop of a run: receives the reports of all workers and hands them to the subscribers."""

import contextlib
import json
import os
import shlex
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from sample_factory.checkpoints.milestones import resumed_env_frames
from sample_factory.config.monitoring_flags import EVALUATED
from sample_factory.exchange.channels import Channels, LatestMessages
from sample_factory.exchange.messages import Incident, Report, reports_in
from sample_factory.exchange.run_plan import RunPlan
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.mainloop.next_commands import next_commands, relative_path
from sample_factory.mainloop.observed_run import ObservedRun, TrainingInfoSubscriber
from sample_factory.mainloop.observing import FamilyMetricsSubscriber, ObserversSubscriber
from sample_factory.mainloop.subscribers import Evolution, LeagueSubscriber
from sample_factory.monitoring.best_policies import BestPolicies
from sample_factory.monitoring.console import summary_lines
from sample_factory.monitoring.figures import FiguresWriter
from sample_factory.monitoring.monitor import Monitor
from sample_factory.monitoring.run_progress import RunProgress
from sample_factory.monitoring.subscriber import Subscriber
from sample_factory.monitoring.summaries import JsonlWriter
from sample_factory.population.league import League
from sample_factory.population.pbt import Population
from sample_factory.runtime import template
from sample_factory.runtime.clock import Every
from sample_factory.runtime.failures import CommandFailed
from sample_factory.runtime.folder_lock import FolderLock
from sample_factory.runtime.log import log

BENCHMARK_FRAMES = 2_000_000
LOOK_SECONDS = 30.0  # between looks for cfg.json


# Called with (plan, monitor, channels, publish); `publish` hands a report to all subscribers.
MakeSubscriber = Callable[[RunPlan, Monitor, Channels, Callable[[Report], None]], Subscriber]


class Loop:
    """Interface of what the main process does while the workers run; a subclass overrides what it needs."""

    @property
    def is_done(self) -> bool:
        """Whether the run is complete and the workers can be stopped."""
        raise NotImplementedError

    @property
    def has_begun(self) -> bool:
        """Whether work has begun although some workers are still starting, so that `turn` must be called
        already."""
        return False

    @property
    def is_busy(self) -> bool:
        """Whether a run in serial mode has to pause, e.g. until an evaluation has ended."""
        return False

    def receive(self, timeout: float) -> None:
        """Handles the reports that arrive within `timeout` seconds; also called while workers start."""
        raise NotImplementedError

    def started(self) -> None:
        """Called once, before the first `turn`: when all workers are ready, or as soon as the loop
        `has_begun` or `is_done`."""

    def turn(self, timeout: float) -> None:
        """Called repeatedly after `started`: receives reports for at most `timeout` seconds, then does
        periodic work."""
        self.receive(timeout)

    def stepped(self) -> None:
        """In serial mode: called after each step of the envs, before the policies choose the next actions."""

    def process_replaced(self, inbox: int, rollout_workers: Sequence[int], incident: Incident) -> None:
        """Called when a rollout worker or an inline sampler has died, before its replacement starts.
        inbox: index of the dead process's queue in Channels.inboxes.
        rollout_workers: indices of the rollout workers that ran in the process.
        incident: describes the death, for the log and the summaries."""
        raise NotImplementedError

    def stopping(self) -> None:
        """Called just before the workers are stopped."""

    def close(self, may_wait: Callable[[], bool]) -> None:
        """Called when the workers have stopped, to handle the last reports.
        may_wait: returns whether work that has begun may be completed; False after a failure or a signal."""


class Resources(NamedTuple):
    """Memory, queues and shared state of a run that the main process owns, made by `allocate`.
    lock: lock on the experiment folder; None if there is no folder.
    population: only with population-based training. league: only with self-play against past selves."""

    buffers: TrajectoryBuffers
    channels: Channels
    lock: FolderLock | None = None
    population: Population | None = None
    league: League | None = None


class MainLoop(Loop):
    """In the main process of a training: hands every report to all subscribers, and calls each of them
    periodically."""

    def __init__(
        self,
        plan: RunPlan,
        resources: Resources,
        make_evaluations: MakeSubscriber | None = None,
    ):
        """Makes the subscribers of a training and sends the workers their first messages.
        make_evaluations: makes the subscriber that evaluates policies, called if the plan has evaluations.
            The caller passes it, since this package must not import the class from the higher package
            `evaluation`."""
        self._config = plan.config
        channels = resources.channels
        self._reports = channels.reports
        self._to_workers = LatestMessages(channels.inboxes)
        self._monitor = _make_monitor(plan)
        self._training_info: TrainingInfoSubscriber | None = None
        if plan.sampling.info.receives_training_info:
            self._training_info = TrainingInfoSubscriber(
                _frames_before(plan), self._to_workers, self._config.sampling.serial_mode
            )
        self._observed_run = ObservedRun(
            self._config, self._monitor.policies, self._training_info, channels.learners
        )
        self._subscribers = self._make_subscribers(plan, resources)
        if plan.evaluation is not None and make_evaluations is not None:
            self._subscribers.append(make_evaluations(plan, self._monitor, channels, self.publish))
        self._to_workers.send()  # before the workers start: these are the first messages that they receive
        self._has_started = False
        self._time_to_look = Every(LOOK_SECONDS)

    def _make_subscribers(self, plan: RunPlan, resources: Resources) -> list[Subscriber]:
        """Returns the subscribers in the order in which they receive reports and are called. The monitor is
        first, so that its counters include a report when the other subscribers receive it."""
        config = plan.config
        flags = config.monitoring
        monitor = self._monitor
        channels = resources.channels
        subscribers: list[Subscriber] = [monitor]
        if not (flags.save_best_metric.startswith(EVALUATED) or config.sampling.sampler_only):
            folder = config.experiment_dir
            subscribers.append(BestPolicies(flags, folder, monitor.policies, channels.learners))
        if plan.family.metrics is not None:
            metrics = plan.family.metrics
            subscribers.append(FamilyMetricsSubscriber(metrics, config.env_name, monitor, self.publish))
        if resources.population is not None:
            metric = config.population.pbt_target_objective
            subscribers.append(
                Evolution(
                    resources.population, metric, monitor, channels.learners, self._to_workers, self.publish
                )
            )
        if resources.league is not None:
            subscribers.append(LeagueSubscriber(resources.league, config, monitor, self._to_workers))
        if flags.figures_file is not None:
            subscribers.append(FiguresWriter(flags.figures_file, flags.status_interval, monitor))
        if plan.observers:
            interval = flags.experiment_summaries_interval
            subscribers.append(
                ObserversSubscriber(plan.observers, self._observed_run, monitor, self.publish, interval)
            )
        if self._training_info is not None:
            subscribers.append(self._training_info)
        return subscribers

    @property
    def is_done(self) -> bool:
        """Whether the run has reached a limit of the flags, or an observer has ended it."""
        return self._monitor.progress.is_done or bool(self.stop_reason)

    @property
    def has_begun(self) -> bool:
        """Whether frames of this run were trained on, or with --sampler_only sampled."""
        return self._monitor.progress.new_frames > 0

    @property
    def is_busy(self) -> bool:
        """Whether an evaluation waits or runs. A serial run pauses meanwhile, so that its course does not
        depend on time."""
        return any(subscriber.is_busy for subscriber in self._subscribers)

    @property
    def stop_reason(self) -> str:
        """The reason that an observer gave for ending the run early; empty if none has ended it."""
        return self._observed_run.stop_reason

    def receive(self, timeout: float) -> None:
        """Hands the reports that arrive within `timeout` seconds to the subscribers, then sends their
        messages to the workers. Also called while workers start, before the first `turn`."""
        for report in reports_in(self._reports.get_many(timeout)):
            self.publish(report)
        self._to_workers.send()

    def started(self) -> None:
        """Saves cfg.json: once the workers have started, it is known that the flags can be used. Frees the
        memory of the template process, unless evaluations will start further processes."""
        self._config.save()
        self._has_started = True
        source = template.current()
        # Otherwise only successors of dead workers are forked from now on; they import modules themselves.
        if source is not None and not self._config.monitoring.eval_every_env_steps:
            source.unload_modules()

    def turn(self, timeout: float) -> None:
        """Receives reports for at most `timeout` seconds and calls every subscriber. The first call starts
        the clock of the run."""
        self.receive(timeout)
        for subscriber in self._subscribers:
            subscriber.tick()
        self._to_workers.send()
        if self._time_to_look():
            self._keep_flags()

    def _keep_flags(self) -> None:
        """Writes cfg.json again if it was deleted: without it, no program can use the next checkpoints."""
        path = self._config.experiment_dir / "cfg.json"
        if self._has_started and not os.path.exists(path):
            log.warning(
                "%s is missing, and is written again. If its folder was deleted, earlier checkpoints and "
                "summaries are lost",
                path,
            )
            self._config.save()

    def publish(self, report: Report) -> None:
        """Hands a report to all subscribers."""
        for subscriber in self._subscribers:
            subscriber.handle(report)

    def process_replaced(self, inbox: int, rollout_workers: Sequence[int], incident: Incident) -> None:
        """Publishes the incident, and sends the replacement the messages that the dead process had
        received."""
        self.publish(incident)
        self._to_workers.send_again(inbox)
        self._to_workers.send()

    def check_result(self, stuck: str) -> None:
        """Raises CommandFailed if --train_for_seconds have passed and nothing was learned.
        stuck: names of the workers that were stuck at the end; empty if none was."""
        progress = self._monitor.progress
        has_time = progress.seconds < self._config.monitoring.train_for_seconds
        if self.has_begun or self.stop_reason or has_time:
            return
        samples = f"{progress.num_sampled:,} of about {progress.first_batch:,} samples"
        raise CommandFailed(
            f"nothing was learned within --train_for_seconds={self._config.monitoring.train_for_seconds:g}: "
            f"{stuck or f'{samples} of the first batch were taken'}"
        )

    def stopping(self) -> None:
        """Stops the clock of the run, so that its mean FPS does not include saving and stopping."""
        self._monitor.stopping()

    def close(self, may_wait: Callable[[], bool] = lambda: False) -> None:
        """Handles the last reports, lets the subscribers complete their work while `may_wait()` is True, then
        closes all subscribers, the monitor last, even if one raises."""
        with contextlib.ExitStack() as closing:
            for subscriber in self._subscribers:
                closing.callback(subscriber.close)
            while messages := self._reports.get_many(0.0):
                for report in reports_in(messages):  # nobody reads the inboxes any more
                    self.publish(report)
            for subscriber in self._subscribers:
                subscriber.finish(may_wait)
            self._keep_flags()

    def summary(self) -> RunProgress:
        """Returns the results of the run so far."""
        return self._monitor.summary()

    def log_summary(self, has_failed: bool = False) -> None:
        """Logs the results of a run that has started, and commands to watch its policy, continue it and plot
        its curves. has_failed: whether the run has ended by a failure."""
        if not self._has_started:
            return
        outcome = "failed" if has_failed else "finished" if self.is_done else "stopped"
        if outcome == "finished" and self.stop_reason and not self._monitor.progress.is_done:
            outcome = f"finished early ({self.stop_reason})"
        summary = self.summary()
        if summary.total_frames == 0:
            if outcome != "stopped":  # `_train` in training/run.py logs that, with what becomes of the folder
                log.info("%s before anything was learned", outcome)
            return
        least = min(policy.env_frames for policy in summary.policies)
        commands = next_commands(self._config, self._monitor.progress.is_done, least)
        first, *others = summary_lines(summary, outcome)
        table = [("files", relative_path(self._config.experiment_dir)), *commands]
        text = "\n".join([first, *others, *(f"  {purpose:<11} {command}" for purpose, command in table)])
        log.info(text, extra={"bold": first.partition(":")[0]})


def _frames_before(plan: RunPlan) -> list[int]:
    """Returns the number of env frames that each policy was trained on in earlier runs of the experiment."""
    folder, kind = plan.config.experiment_dir, plan.config.monitoring.load_checkpoint_kind
    policies = range(plan.sampling.topology.num_policies)
    return [resumed_env_frames(folder, policy_id, kind) or 0 for policy_id in policies]


def _make_monitor(plan: RunPlan) -> Monitor:
    config = plan.config
    flags = config.monitoring
    if config.sampling.benchmark:
        flags = replace(flags, train_for_env_steps=min(flags.train_for_env_steps, BENCHMARK_FRAMES))
    texts = {
        "run/command_line": f"    {shlex.join(sys.orig_argv)}",
        "run/flags": textwrap.indent(json.dumps(config.flat(), indent=4), "    "),
    }
    folder = config.experiment_dir
    writers = [*plan.writers, JsonlWriter(folder)] if flags.jsonl_summaries else plan.writers
    return Monitor(
        folder, flags, plan.sampling.topology, plan.sampling.info.max_episode_steps, texts, writers=writers
    )
