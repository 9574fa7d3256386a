"""Runs an experiment in one process: --serial_mode=True, for debugging and exact tests."""

import os
import time
from collections.abc import Sequence
from typing import Any

from sample_factory.mainloop.main_loop import MainLoop, MakeLoop
from sample_factory.launch.parts import Parts
from sample_factory.mainloop.run_result import RunEnd
from sample_factory.launch.wiring import WorkerSpec, worker_specs
from sample_factory.monitoring.figures import RunProcess
from sample_factory.runtime.child_side import ChildContext, resolve_factory
from sample_factory.runtime.failures import ChildFailed, collected
from sample_factory.runtime.supervisor import StopSignals

POLL_SECONDS = 0.05


def run_serially(parts: Parts, signals: StopSignals, make_loop: MakeLoop = MainLoop) -> RunEnd:
    """Builds the workers in this process and lets them take turns; returns how the run has ended.

    An exception of a worker propagates, after the learners have saved. One of the main loop ends the run in
    the same way as in processes.
    """
    return SerialRun(parts, make_loop, ChildContext("serial")).run(signals)


class SerialRun:
    """The workers of one run, all in this process."""

    def __init__(self, parts: Parts, make_loop: MakeLoop, context: ChildContext):
        """Builds the workers: afterwards, the envs have been reset. context: gets their heartbeats."""
        specs = worker_specs(parts)
        self._learners = _build(specs.learners, parts, context)
        self._policy_workers = _build(specs.policy_workers, parts, context)
        # Before the rollout workers, whose envs receive its first messages before their first reset.
        self._loop = make_loop(parts, lambda: [RunProcess("main", 0, os.getpid())])
        self._rollout_workers = _build(specs.rollout_workers, parts, context)

    def run(self, signals: StopSignals) -> RunEnd:
        """Lets the workers take turns until the run is done or to be stopped. Called once."""
        loop = self._loop
        failures: list[ChildFailed] = []
        loop.started()
        try:
            while not loop.is_done and not signals.requested and not failures:
                if loop.is_evaluating:  # the run must be repeatable, so its workers wait
                    time.sleep(POLL_SECONDS)
                else:
                    self._step()
                with collected(failures):
                    loop.turn(0.0)
        finally:
            for learner in self._learners:
                learner.save()
            for worker in self._rollout_workers:  # afterwards: an env's `close` may not return
                worker.close()
            with collected(failures):
                loop.close(lambda: loop.is_done and not signals.requested)
        loop.log_summary(has_failed=bool(failures))
        return RunEnd(failures, loop.summary(), loop.stop_reason)

    def _step(self) -> None:
        for worker in (*self._rollout_workers, *self._policy_workers, *self._learners):
            worker.step(timeout=0.0)
        for learner in self._learners:
            learner.train_once(timeout=0.0)


def _build(specs: Sequence[WorkerSpec], parts: Parts, context: ChildContext) -> list[Any]:
    return [
        resolve_factory(spec.factory)(spec.args, parts.buffers, parts.channels, context) for spec in specs
    ]
