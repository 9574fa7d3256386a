"""The main loop of a run: receives the reports of all workers and hands them to the subscribers."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from sample_factory.exchange.messages import Incident, Report, WorkerDied
from sample_factory.experiment.parts import Parts
from sample_factory.experiment.subscribers import (
    LeagueSubscriber,
    Outbox,
    PopulationSubscriber,
    Subscriber,
)
from sample_factory.monitoring.best_policies import BestPolicies
from sample_factory.monitoring.figures import FiguresWriter, RunProcess
from sample_factory.monitoring.monitor import Monitor

log = logging.getLogger("sample_factory")

BENCHMARK_FRAMES = 2_000_000


class MainLoop:
    """In the main process: hands every report to all subscribers, and lets them do what is due."""

    def __init__(self, parts: Parts, processes: Callable[[], Sequence[RunProcess]]):
        """processes: returns those that run at the moment, for --figures_file."""
        self._reports = parts.channels.reports
        self._outbox = Outbox(parts.channels)
        self._monitor = _make_monitor(parts)
        self._subscribers = self._make_subscribers(parts, processes)
        for index in range(self._outbox.num_rollout_workers):
            self._start_worker(index)

    def _make_subscribers(
        self, parts: Parts, processes: Callable[[], Sequence[RunProcess]]
    ) -> Sequence[Subscriber]:
        """Returns the subscribers in the order in which they get reports and take turns.

        The monitor is first, so that the others see its counters with the current report included.
        """
        config = parts.config
        monitor = self._monitor
        subscribers: list[Subscriber] = [
            monitor,
            BestPolicies(config.monitoring, monitor.policies, self._outbox.send_to_learner),
        ]
        if parts.population is not None:
            metric = config.population.pbt_target_objective
            subscribers.append(
                PopulationSubscriber(parts.population, metric, monitor, self._outbox, self.publish)
            )
        if parts.league is not None:
            subscribers.append(LeagueSubscriber(parts.league, config, monitor, self._outbox))
        flags = config.monitoring
        if flags.figures_file is not None:
            num_policies = len(monitor.policies)
            subscribers.append(
                FiguresWriter(flags.figures_file, flags.status_interval, num_policies, processes)
            )
        return subscribers

    @property
    def is_done(self) -> bool:
        """Whether the run has trained for as long as the flags say."""
        return self._monitor.is_done

    def receive(self, timeout: float) -> None:
        """Hands the reports that arrive within `timeout` seconds to the subscribers.

        Also called while workers start, when no subscriber takes turns yet.
        """
        for report in self._reports.get_many(timeout):
            self.publish(report)

    def turn(self, timeout: float) -> None:
        """Receives reports and lets every subscriber take its turn. The first call starts the run's time."""
        self.receive(timeout)
        for subscriber in self._subscribers:
            subscriber.tick()

    def publish(self, report: Report) -> None:
        """Hands a report to all subscribers."""
        for subscriber in self._subscribers:
            subscriber.handle(report)

    def worker_replaced(self, index: int, text: str, details: str = "") -> None:
        """Reports the death of a rollout worker, and sends its successor what the dead one had received.

        text, details: see Incident.
        """
        self.publish(Incident("worker_restarts", text, details=details))
        self._outbox.send_to_all_learners(WorkerDied(index))
        self._start_worker(index)

    def _start_worker(self, index: int) -> None:
        for subscriber in self._subscribers:
            subscriber.worker_started(index)

    def stopping(self) -> None:
        """Ends the time of the run: saving and stopping do not count for its mean FPS."""
        self._monitor.stopping()

    def close(self) -> None:
        """Handles the last reports and closes the subscribers, the monitor last."""
        self.receive(0.0)
        for subscriber in reversed(self._subscribers):
            subscriber.close()

    def log_summary(self) -> None:
        """Logs the results of the run."""
        for line in self._monitor.summary():
            log.info(line)


def _make_monitor(parts: Parts) -> Monitor:
    config = parts.config
    topology = parts.buffers.topology
    flags = config.monitoring
    if config.sampling.benchmark:
        flags = replace(flags, train_for_env_steps=min(flags.train_for_env_steps, BENCHMARK_FRAMES))
    return Monitor(config.experiment_dir, flags, topology.num_policies, topology.frameskip)
