"""Which policy is the best so far, for --save_best_every_sec and --save_best_metric."""

import math
import time
from collections.abc import Callable, Sequence

from sample_factory.config.monitoring_flags import MonitoringFlags
from sample_factory.exchange.channels import send
from sample_factory.exchange.messages import Report, SaveRequest, TrainReport
from sample_factory.monitoring.policy_progress import PolicyProgress
from sample_factory.monitoring.subscriber import Subscriber
from sample_factory.runtime.clock import Every
from sample_factory.runtime.log import log
from sample_factory.runtime.queues import Queue

MIN_IMPROVEMENT = 0.001
RETRY_SECONDS = 30.0


class BestPolicies(Subscriber):
    """In the main process: asks a learner for a checkpoint whenever its policy is the best so far. Promises:

    1. Only means over a full window of episodes count. A mean over fewer episodes varies more, and the best
       of many such means would be luck.
    2. A mean has to exceed the value of the last best checkpoint, which the learner reports, also in a
       resumed run.
    3. A request without a result, for example because the disk is full, is repeated after RETRY_SECONDS.
    """

    def __init__(
        self,
        flags: MonitoringFlags,
        policies: Sequence[PolicyProgress],
        learners: Sequence[Queue],
        now: Callable[[], float] = time.monotonic,
    ):
        self._flags = flags
        self._policies = policies
        self._learners = learners
        self._now = now
        self._best_values: dict[int, float | None] = {}  # by policy; no entry until its learner has reported
        self._not_before = [now()] * len(policies)  # time of the next request
        self._time_to_test = [Every(flags.save_best_every_sec, now=now) for _ in policies]
        self._has_warned = [False] * len(policies)

    def handle(self, report: Report) -> None:
        if isinstance(report, TrainReport):
            if report.best_value != self._best_values.get(report.policy_id):
                self._not_before[report.policy_id] = self._now()
            self._best_values[report.policy_id] = report.best_value

    def tick(self) -> None:
        for policy_id, time_to_test in enumerate(self._time_to_test):
            if time_to_test():
                self._test(policy_id)

    def _test(self, policy_id: int) -> None:
        """Sends a request if the mean of --save_best_metric is the best so far."""
        policy = self._policies[policy_id]
        episodes = policy.episodes
        if policy.env_frames <= self._flags.save_best_after or len(episodes) < episodes.window:
            return
        if policy_id not in self._best_values or self._now() < self._not_before[policy_id]:
            return  # the learner has not reported yet, or the last request has no result yet
        metric = self._flags.save_best_metric
        mean = episodes.mean(metric, at_least=1)
        if mean is None:
            if not self._has_warned[policy_id]:
                log.warning(
                    "No best checkpoint of policy %d: its episodes do not report --save_best_metric=%s; "
                    "choose one of %s",
                    policy_id,
                    metric,
                    ", ".join(episodes.metrics),
                )
            self._has_warned[policy_id] = True
            return
        best_value = self._best_values[policy_id]
        is_best = best_value is None or mean > best_value + MIN_IMPROVEMENT
        if is_best and math.isfinite(mean):  # no later value could exceed infinity
            self._not_before[policy_id] = self._now() + RETRY_SECONDS
            send(self._learners[policy_id], SaveRequest(metric, mean))
