"""Runs all workers of an experiment in one process: --serial_mode=True, for debugging and exact tests."""

import time
from collections.abc import Sequence
from typing import Any

from sample_factory.exchange.run_plan import SamplingPlan
from sample_factory.launch.workers import LEARNER, POLICY_WORKER, ROLLOUT_WORKER, WorkerSpec, sampling_specs
from sample_factory.mainloop.main_loop import Loop, Resources
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.failures import Failure, collected
from sample_factory.runtime.registry import resolve
from sample_factory.runtime.supervisor import StopSignals

POLL_SECONDS = 0.05


class SerialRun:
    """Runs the workers of a run in turn, all in this process.

    Rollout workers are built last, after the main loop, so that their envs get the loop's first messages
    before their first reset.
    """

    def __init__(
        self,
        plan: SamplingPlan,
        resources: Resources,
        learners: Sequence[WorkerSpec] = (),
        context: ChildContext | None = None,
    ):
        """Builds the learners and the policy workers.

        learners: specs of the learners of a training, from `training_specs`.
        context: receives the heartbeats of the rollout worker.
        """
        self._specs = [*learners, *sampling_specs(plan)]
        self._resources = resources
        self._context = ChildContext("serial") if context is None else context
        self._learners = self._build(LEARNER)
        self._policy_workers = self._build(POLICY_WORKER)
        self._rollout_workers: list[Any] = []
        self.stuck = ""  # as in ProcessRun; here the loop would not get a turn

    def _build(self, role: str) -> list[Any]:
        shared = self._resources.buffers, self._resources.channels, self._context
        specs = [spec for spec in self._specs if spec.role == role]
        return [resolve(spec.factory)(*spec.args, *shared) for spec in specs]

    def make_envs(self) -> None:
        """Builds the rollout workers, which make their envs and reset them."""
        self._rollout_workers = self._build(ROLLOUT_WORKER)

    def run(self, loop: Loop, signals: StopSignals) -> list[Failure]:
        """Lets the workers take turns until the loop is done or a signal arrives. Called once.

        Returns why the main loop has failed; an empty list if it has not. An exception of a worker
        propagates, after the learners have saved.
        """
        failures: list[Failure] = []
        if not self._rollout_workers:
            self.make_envs()
        try:
            loop.started()
            while not loop.is_done and not signals.requested and not failures:
                if loop.is_busy:  # the run must be repeatable, so its workers wait
                    time.sleep(POLL_SECONDS)
                else:
                    self._step(loop)
                with collected(failures):
                    loop.turn(0.0)
        finally:
            loop.stopping()
            for learner in self._learners:
                learner.save()
            for worker in self._rollout_workers:  # after saving, since `close` of an env may not return
                worker.close()
            with collected(failures):
                loop.close(lambda: loop.is_done and not signals.requested)
        return failures

    def _step(self, loop: Loop) -> None:
        for worker in self._rollout_workers:
            worker.step(timeout=0.0)
        loop.stepped()
        for worker in (*self._policy_workers, *self._learners):
            worker.step(timeout=0.0)
        for learner in self._learners:
            learner.train_once(timeout=0.0)
