"""Evaluation during training (--eval_every_env_steps): the parent's half, which schedules and reports it. The
child's half, which plays the episodes, is `SnapshotMeasurement` in measurement.py."""

import collections
import math
import shutil
import time
from collections.abc import Callable, Mapping

from sample_factory.checkpoints.milestones import (
    SNAPSHOT,
    checkpoint_folder,
    delete_snapshots,
    env_frames_of,
    find_checkpoints,
    version_of,
)
from sample_factory.config.monitoring_flags import EVALUATED
from sample_factory.config.sampling_flags import ROLLOUT_WORKER_NICENESS
from sample_factory.evaluation.result_statistics import MeanAndStd
from sample_factory.exchange.channels import Channels, send
from sample_factory.exchange.messages import Incident, Report, Snapshot, SnapshotRequest, TrainReport
from sample_factory.exchange.run_plan import RunPlan
from sample_factory.monitoring.best_policies import BestCheckpoints
from sample_factory.monitoring.console import number_text
from sample_factory.monitoring.monitor import Monitor
from sample_factory.monitoring.policy_progress import FirstNames
from sample_factory.monitoring.subscriber import Subscriber
from sample_factory.runtime import cpu
from sample_factory.runtime.child import Child, ChildOptions
from sample_factory.runtime.log import log
from sample_factory.runtime.supervisor import Limits, Suspensions

CHILD = "sample_factory.evaluation.measurement:SnapshotMeasurement"
GRACE_SECONDS = 1.0
POLL_SECONDS = 0.2


class Evaluations(Subscriber):
    """In the main process: evaluates each policy every --eval_every_env_steps frames, in a child process.

    1. One evaluation runs at a time; further ones wait. A policy that is due while its last evaluation waits
       or runs is skipped.
    2. The summaries are written at the env frames of the weights that were evaluated.
    3. With --save_best_metric=eval_NAME, the weights with the best mean so far are kept as the best
       checkpoint, also over several runs.
    4. An evaluation that fails or is stuck is reported, and the training continues. It counts as stuck after
       --heartbeat_reporting_interval without progress (while its envs start: --reset_timeout_seconds later),
       and after --eval_timeout_seconds in all, since an episode may never end.
    """

    def __init__(
        self, plan: RunPlan, monitor: Monitor, channels: Channels, publish: Callable[[Report], None]
    ):
        """Prepares the evaluations of a training. `publish` hands a report to all subscribers."""
        self._plan = plan.evaluation
        self._config = config = plan.config
        self._monitor = monitor
        self._learners = channels.learners
        self._publish = publish
        self._every = config.monitoring.eval_every_env_steps
        self._next_frames: dict[int, int] = {}  # by policy: the env frames at which it is due
        self._requested: set[int] = set()  # policies that wait for a snapshot of their learner
        self._skipped: set[int] = set()  # policies that were skipped the last time they were due
        self._waiting: collections.deque[Snapshot] = collections.deque()
        self._playing: Snapshot | None = None
        self._child: Child | None = None  # the process that plays it
        self._began = 0.0
        # From the flags of the training: --eval_flags must not lift these limits. There is more time to start
        # than for a worker, which starts before the training takes all cores.
        silent_seconds = config.monitoring.heartbeat_reporting_interval
        self._limits = Limits(
            start_seconds=config.sampling.reset_timeout_seconds + silent_seconds,
            silent_seconds=silent_seconds,
        )
        self._suspensions = Suspensions(self._limits)
        self._has_logged_skip = False
        self._names = FirstNames()
        self._best = BestCheckpoints(config.experiment_dir, config.monitoring.save_best_metric)

    def handle(self, report: Report) -> None:
        match report:
            case TrainReport():
                self._request_if_due(report.policy_id, report.env_frames)
            case Snapshot(name=name) if name == SNAPSHOT and report.policy_id in self._requested:
                self._requested.discard(report.policy_id)
                if report.path is not None:  # otherwise the learner has logged why
                    self._waiting.append(report)

    @property
    def is_busy(self) -> bool:
        """Whether an evaluation runs or waits; a run in serial mode pauses meanwhile."""
        return self._child is not None or bool(self._waiting)

    def tick(self) -> None:
        gap = self._suspensions.check()
        if gap and self._child is not None:
            self._child.excuse(gap)
            self._began += gap
        if self._child is None and self._waiting:
            self._child = self._start(self._waiting.popleft())
        if self._child is not None and self._has_ended(self._child):
            self._end(self._child)

    def close(self) -> None:
        """Kills the evaluation that runs, if any, and deletes all files of weights that were written to be
        evaluated."""
        if self._child is not None:
            self._child.kill()
        delete_snapshots(self._config.experiment_dir)

    def finish(self, may_wait: Callable[[], bool]) -> None:
        """Completes all due evaluations while `may_wait()` is true; called after the workers have stopped. A
        policy is evaluated with its last checkpoint if its last evaluation was skipped, or if its learner
        stopped before it wrote the snapshot."""
        if not may_wait():
            return
        for policy_id in sorted(self._requested | self._skipped):
            self._add_last_checkpoint(policy_id)
        self._requested.clear()
        self._skipped.clear()
        self.tick()
        if self._child is not None:
            log.info("Waiting for the last evaluation; Ctrl+C ends it")
        while self.is_busy and may_wait():
            if self._child is not None:
                self._child.join(POLL_SECONDS)
            self.tick()

    def _request_if_due(self, policy_id: int, env_frames: int) -> None:
        is_due = env_frames >= self._next_frames.get(policy_id, math.inf)
        self._next_frames[policy_id] = (env_frames // self._every + 1) * self._every
        if not is_due:
            return
        evaluated = [other.policy_id for other in (self._playing, *self._waiting) if other is not None]
        if policy_id in self._requested or policy_id in evaluated:
            self._skipped.add(policy_id)
            if not self._has_logged_skip:
                self._has_logged_skip = True
                log.info(
                    "An evaluation of policy %d is skipped, since its last one has not ended; later ones may "
                    "be too (a larger --eval_every_env_steps or fewer --eval_episodes avoid this)",
                    policy_id,
                )
        elif send(self._learners[policy_id], SnapshotRequest(SNAPSHOT)):
            self._requested.add(policy_id)
            self._skipped.discard(policy_id)

    def _start(self, snapshot: Snapshot) -> Child:
        sampling = self._config.sampling
        # It gets as much of the cores as a rollout worker. In serial mode the run waits for it.
        niceness = 0 if sampling.serial_mode else sampling.default_niceness + ROLLOUT_WORKER_NICENESS
        options = ChildOptions(
            niceness=niceness,
            environment={**cpu.ONE_THREAD, "CUDA_VISIBLE_DEVICES": ""},
            grace_seconds=GRACE_SECONDS,
            one_shot=True,
            own_session=True,
            from_template=True,
        )
        child = Child("evaluation", CHILD, (self._plan, snapshot), options)
        child.start()
        self._playing = snapshot
        self._began = time.monotonic()
        return child

    def _has_ended(self, child: Child) -> bool:
        """Returns whether the evaluation in `child` is done or has failed; kills a child that is stuck or
        takes too long."""
        if child.finished or child.failure is not None:
            return True
        reason = self._limits.why_stuck(child)
        timeout = self._config.monitoring.eval_timeout_seconds
        if not reason and time.monotonic() - self._began > timeout:
            reason = f"not done after --eval_timeout_seconds={timeout:g}; does each episode of the env end"
        if reason:
            child.kill_stuck(f"{reason}; the stacks of its threads are on stderr")
        return bool(reason)

    def _end(self, child: Child) -> None:
        snapshot = self._playing
        assert snapshot is not None
        self._playing = self._child = None
        failure = child.failure
        if failure is None:
            child.join(GRACE_SECONDS)
        child.kill()
        if failure is not None:
            text = f"the evaluation of {_weights(snapshot)} failed; training continues: {failure.message}"
            self._publish(Incident("failed_evaluations", text, details=failure.traceback))
            return
        self._report(snapshot, child.result, time.monotonic() - self._began)

    def _report(self, snapshot: Snapshot, statistics: Mapping[str, MeanAndStd], seconds: float) -> None:
        """Writes the summaries of an evaluation, logs its mean reward, and keeps the weights if they are the
        best so far.
        statistics: name, e.g. "reward" -> mean over the episodes. seconds: duration."""
        statistics = self._names.of(statistics)
        policy_id = snapshot.policy_id
        reward = statistics["reward"]
        self._monitor.policies[policy_id].eval_reward = reward.mean
        scalars = {f"eval/{name}": found.mean for name, found in statistics.items()}
        scalars |= {"eval/reward_low": reward.low, "eval/reward_high": reward.high, "eval/seconds": seconds}
        finite = {tag: value for tag, value in scalars.items() if math.isfinite(value)}
        self._monitor.write(policy_id, finite, snapshot.env_frames)
        interval = ""
        if math.isfinite(reward.low):
            interval = f" (95 % confidence: {number_text(reward.low)} to {number_text(reward.high)})"
        text = "Evaluated %s: reward %s%s, %.0f s"
        log.info(text, _weights(snapshot), number_text(reward.mean), interval, seconds)
        metric = self._config.monitoring.save_best_metric
        if metric.startswith(EVALUATED) and snapshot.env_frames > self._config.monitoring.save_best_after:
            self._keep_if_best(snapshot, metric, statistics)

    def _keep_if_best(self, snapshot: Snapshot, metric: str, statistics: Mapping[str, MeanAndStd]) -> None:
        """Makes the snapshot the best checkpoint if its mean of `metric` ("eval_NAME") is the best so far."""
        found = statistics.get(metric.removeprefix(EVALUATED))
        if found is None:
            self._best.warn_of_missing_metric(
                "the evaluations", (f"{EVALUATED}{name}" for name in statistics)
            )
        elif self._best.is_better(snapshot.policy_id, found.mean, margin=0.0):
            self._best.keep(snapshot, found.mean)

    def _add_last_checkpoint(self, policy_id: int) -> None:
        """Queues an evaluation of a policy's last checkpoint, if it has one."""
        paths = find_checkpoints(self._config.experiment_dir, policy_id, "latest")
        if not paths:
            return
        newest = paths[-1]
        # A copy, since the best snapshot is moved; by another name, since SNAPSHOT may be in use.
        file = checkpoint_folder(self._config.experiment_dir, policy_id) / f"last_{SNAPSHOT}"
        try:
            file.unlink(missing_ok=True)  # whatever lies there
            shutil.copyfile(newest, file)
        except OSError as error:
            log.error("The last weights are not evaluated: cannot write %s: %s", file, error.strerror)
            return
        self._waiting.append(
            Snapshot(SNAPSHOT, policy_id, version_of(newest), env_frames_of(newest), str(file))
        )


def _weights(snapshot: Snapshot) -> str:
    return f"policy {snapshot.policy_id} at {snapshot.env_frames:,} env frames"
