"""The best checkpoint of each policy: --save_best_every_sec and --save_best_metric."""

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from sample_factory.checkpoints.milestones import (
    BEST_NAME,
    BEST_SNAPSHOT,
    best_name,
    best_value,
    delete_snapshots,
    find_checkpoints,
)
from sample_factory.config.monitoring_flags import MonitoringFlags
from sample_factory.exchange.channels import send
from sample_factory.exchange.messages import Report, Snapshot, SnapshotRequest
from sample_factory.monitoring.policy_progress import PolicyProgress
from sample_factory.monitoring.subscriber import Subscriber
from sample_factory.runtime.clock import Every
from sample_factory.runtime.log import log
from sample_factory.runtime.queues import Queue

MIN_IMPROVEMENT = 0.001  # a better mean exceeds the best by this, or by this share of it if that is less
RETRY_SECONDS = 30.0
LOG_SECONDS = 60.0  # between lines about better policies: early in a training, the best changes all the time


class BestCheckpoints:
    """In the main process: keeps the best checkpoint of each policy by one metric, also over several runs. A
    best checkpoint is a snapshot, renamed so that its file name contains the value of the metric."""

    def __init__(self, experiment_dir: Path, metric: str, log_seconds: float = 0.0):
        """Prepares to compare values of `metric`. log_seconds: least time between lines in the log about a
        policy; 0 logs each best checkpoint."""
        self._experiment_dir = experiment_dir
        self._metric = metric
        self._log_seconds = log_seconds
        self._values: dict[int, float] = {}  # by policy: the best so far
        self._logged_at: dict[int, float] = {}
        self._warned: set[str] = set()

    def is_better(self, policy_id: int, value: float, margin: float) -> bool:
        """Returns whether `value` is finite and exceeds the policy's best value b by more than margin *
        min(1, |b|)."""
        best = self._best_of(policy_id)
        return math.isfinite(value) and value > best + margin * min(1.0, abs(best))

    def _best_of(self, policy_id: int) -> float:
        """Returns the policy's best value of the metric so far, also of earlier runs; -inf if there is
        none."""
        if policy_id not in self._values:
            found = find_checkpoints(self._experiment_dir, policy_id, "best")
            values = [best_value(path, self._metric) for path in found]
            self._values[policy_id] = max((value for value in values if value is not None), default=-math.inf)
        return self._values[policy_id]

    def keep(self, snapshot: Snapshot, value: float) -> bool:
        """Makes a snapshot the best checkpoint of its policy. Returns False if that failed, which is logged.
        Deletes the old best checkpoint, unless its file name contains no value: the two cannot be compared
        then."""
        assert snapshot.path is not None, "it has been written"
        file = Path(snapshot.path)
        name = best_name(snapshot.version, snapshot.env_frames, self._metric, value)
        try:
            old = find_checkpoints(self._experiment_dir, snapshot.policy_id, "best")
            os.replace(file, file.with_name(name))
            for path in old:
                if path.name != name and BEST_NAME.fullmatch(path.name):
                    path.unlink(missing_ok=True)
        except OSError as error:
            log.error("COULD NOT KEEP %s: %s; training continues", name, error.strerror)
            return False
        policy_id = snapshot.policy_id
        self._values[policy_id] = value
        now = time.monotonic()
        if now - self._logged_at.get(policy_id, -math.inf) >= self._log_seconds:
            self._logged_at[policy_id] = now
            log.info("Best policy %d so far by --save_best_metric=%s: %s", policy_id, self._metric, name)
        return True

    def warn_of_missing_metric(self, source: str, known: Iterable[str]) -> None:
        """Warns, once for each source, that the metric is not reported.
        source: what should report it, in plural, e.g. "the evaluations". known: names of the metrics that
            the source reports."""
        if source not in self._warned:
            self._warned.add(source)
            log.warning(
                "No best checkpoint: %s do not report --save_best_metric=%s; choose one of %s",
                source,
                self._metric,
                ", ".join(known),
            )


class BestPolicies(Subscriber):
    """In the main process: requests a snapshot from a learner whenever the mean of its policy's last episodes
    is the best so far, and keeps the snapshot as the best checkpoint.

    1. Only means over a full window of episodes count, and only after as many episodes have ended as there
       are agents. A mean over fewer episodes varies more, and the best of many such means would be luck; the
       first episodes to end are short.
    2. A mean has to exceed the value of the last best checkpoint, also in a resumed run.
    3. A request that fails, for example because the disk is full, is repeated after RETRY_SECONDS.
    """

    def __init__(
        self,
        flags: MonitoringFlags,
        experiment_dir: Path,
        policies: Sequence[PolicyProgress],
        learners: Sequence[Queue],
        now: Callable[[], float] = time.monotonic,
    ):
        self._flags = flags
        self._experiment_dir = experiment_dir
        self._best = BestCheckpoints(experiment_dir, flags.save_best_metric, LOG_SECONDS)
        self._policies = policies
        self._learners = learners
        self._now = now
        self._requested: dict[int, float] = {}  # policy -> the mean for which a snapshot was requested
        self._not_before = [now()] * len(policies)  # time of the next request
        self._time_to_test = [Every(flags.save_best_every_sec, at_first=True, now=now) for _ in policies]

    def handle(self, report: Report) -> None:
        if isinstance(report, Snapshot) and report.name == BEST_SNAPSHOT:
            mean = self._requested.pop(report.policy_id, None)
            if report.path is not None and mean is not None and self._best.keep(report, mean):
                self._not_before[report.policy_id] = self._now()

    def tick(self) -> None:
        for policy_id, time_to_test in enumerate(self._time_to_test):
            if time_to_test():
                self._test(policy_id)

    def close(self) -> None:
        """Deletes the remaining snapshots: no report about them is handled any more, so none can become the
        best checkpoint."""
        try:
            delete_snapshots(self._experiment_dir)
        except OSError as error:
            log.warning("Could not delete the snapshots in %s: %s", self._experiment_dir, error.strerror)

    def _test(self, policy_id: int) -> None:
        """Requests a snapshot of the policy if its mean of --save_best_metric is the best so far."""
        policy = self._policies[policy_id]
        episodes = policy.episodes
        if policy.env_frames <= self._flags.save_best_after or episodes.are_first:
            return
        if not policy.has_started or self._now() < self._not_before[policy_id]:
            return
        mean = episodes.mean(self._flags.save_best_metric, at_least=1)
        if mean is None:
            self._best.warn_of_missing_metric(f"the episodes of policy {policy_id}", episodes.metrics)
        elif self._best.is_better(policy_id, mean, MIN_IMPROVEMENT):
            self._not_before[policy_id] = self._now() + RETRY_SECONDS
            if send(self._learners[policy_id], SnapshotRequest(BEST_SNAPSHOT)):
                self._requested[policy_id] = mean
