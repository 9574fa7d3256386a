"""Runs an experiment in processes, which is the default."""

import logging
import os
import signal
from collections.abc import Sequence

import numpy as np

from sample_factory.exchange.channels import NO_ENV, in_close
from sample_factory.exchange.messages import Incident
from sample_factory.mainloop.main_loop import DeadProcess, MainLoop, MakeLoop
from sample_factory.launch.parts import Parts
from sample_factory.mainloop.run_result import RunEnd
from sample_factory.launch.start_log import StartLog
from sample_factory.launch.wiring import (
    LEARNER_GRACE_SECONDS,
    NODES_GRACE_SECONDS,
    WorkerSpec,
    worker_specs,
)
from sample_factory.monitoring.figures import RunProcess
from sample_factory.runtime.child import Child, ChildFailed
from sample_factory.runtime.failures import collected
from sample_factory.runtime.local_ray import find_cluster
from sample_factory.runtime.supervisor import Limits, StopSignals, Supervisor

log = logging.getLogger("sample_factory")

STOP_GRACE_SECONDS = 8.0
POLL_SECONDS = 0.1


def run_in_processes(parts: Parts, signals: StopSignals, make_loop: MakeLoop = MainLoop) -> RunEnd:
    """In the parent: starts all workers, runs the main loop, stops the workers; returns how the run has
    ended."""
    return _ProcessRun(parts, signals, make_loop).run()


class _ProcessRun:
    """In the parent: the child processes of one run, and what is done with them."""

    def __init__(self, parts: Parts, signals: StopSignals, make_loop: MakeLoop):
        self._parts = parts
        self._signals = signals
        specs = worker_specs(parts)
        self._learners = self._make_children(specs.learners)
        self._other_learners = self._make_children(specs.other_learners)
        self._samplers = self._make_children([*specs.policy_workers, *specs.inline_samplers])
        self._rollout_workers = self._make_children(specs.rollout_workers)
        self._ingest = self._make_children(specs.ingest)
        # By the name of the child: a successor has the name of the worker that it replaces.
        self._specs = {spec.worker_id.name: spec for spec in specs.all}
        self._limits = Limits(
            start_seconds=parts.config.sampling.reset_timeout_seconds,
            silent_seconds=parts.config.monitoring.heartbeat_reporting_interval,
        )
        self._supervisor = Supervisor(
            [
                *self._learners,
                *self._other_learners,
                *self._ingest,
                *self._samplers,
                *self._rollout_workers,
            ],
            restartable=filter(self._workers_in, (*self._samplers, *self._rollout_workers)),
            limits=self._limits,
        )
        self._loop = make_loop(parts, self._processes)
        ray = find_cluster(parts.config.cluster.ray_address)
        self._start_log = StartLog(len(specs.all), self._starting_roles, ray)

    def _workers_in(self, child: Child) -> Sequence[int]:
        """Returns the indices of the rollout workers in a process."""
        return self._specs[child.name].rollout_workers

    def _make_children(self, specs: Sequence[WorkerSpec]) -> list[Child]:
        return [spec.make_child(self._parts.buffers, self._parts.channels) for spec in specs]

    def run(self) -> RunEnd:
        failures: list[ChildFailed] = []
        has_started = False
        with self._supervisor:
            with collected(failures):
                self._start()
                has_started = not self._signals.requested
                self._train()
            if self._signals.requested:
                name = signal.Signals(self._signals.requested).name
                self._log_stopping(name)
            self._loop.stopping()
            failures_of_stopping, unsaved = self._stop_workers()
        # Failures while stopping are most likely consequences of the first one.
        failures = [*(failures or failures_of_stopping), *unsaved]
        with collected(failures):
            self._loop.close(lambda: not failures and not self._signals.requested)
        if has_started:
            self._loop.log_summary(has_failed=bool(failures))
        return RunEnd(failures, self._loop.summary(), self._loop.stop_reason)

    def _log_stopping(self, signal_name: str) -> None:
        if not self._learners:
            log.info("%s received: stopping", signal_name)
            return
        short = f"{signal_name} received: saving and stopping; another one ends without saving"
        text = "%s received: saving and stopping. Another one ends the run without saving"
        log.info(text, signal_name, extra={"short": short})

    def _processes(self) -> list[RunProcess]:
        """Returns the processes that run at the moment, this one included."""
        processes = [RunProcess("main", 0, os.getpid())]
        for child in self._supervisor.children:
            role, worker_index, policy_id = self._specs[child.name].worker_id
            if child.is_alive:
                processes.append(RunProcess(role, worker_index, child.pid, policy_id))
        return processes

    def _start(self) -> None:
        """Returns when all workers are ready, or earlier, when the loop has begun, so that its limits hold.
        Raises ChildFailed if a worker cannot be built."""
        self._supervisor.start_all()

        def meanwhile() -> bool:
            self._start_log.write()
            self._loop.receive(0.0)
            return self._loop.has_begun or self._loop.is_done

        self._supervisor.wait_ready(self._limits.start_seconds, self._signals, meanwhile)
        if not self._signals.requested:
            self._start_log.write()
            self._loop.started()

    def _starting_roles(self) -> list[str]:
        """Returns the role of each worker that is not ready."""
        children = self._supervisor.children
        return [self._specs[child.name].worker_id.role for child in children if not child.ready]

    def _train(self) -> None:
        """Runs the main loop until the run is done or to be stopped. Raises ChildFailed."""
        while not self._loop.is_done and not self._signals.requested:
            self._start_log.write()
            self._loop.turn(POLL_SECONDS)
            for dead in self._supervisor.check():
                self._replace(dead)

    def _replace(self, dead: Child) -> None:
        """Reclaims the buffers of a process with rollout workers that has died, and starts a new one in its
        place."""
        workers = self._workers_in(dead)
        stepping = self._parts.channels.progress["stepping"]
        call = env_call(workers, stepping)
        stepping[workers] = NO_ENV
        where = f" in {call}" if call else ""
        self._loop.receive(0.0)  # the reports that it sent before it died
        count = sum(self._parts.buffers.reclaim(index) for index in workers)
        error = dead.error
        reason, trace = ("", "") if error is None else (error.reason, error.traceback)
        text = f"{dead.name} died{where} and is replaced: {reason}"
        inbox = self._specs[dead.name].worker_id.worker_index
        self._loop.process_replaced(
            DeadProcess(inbox, workers, Incident("worker_restarts", text, details=trace))
        )
        self._supervisor.restart(dead)
        log.info("Reclaimed %d buffers of %s.", count, dead.name)

    def _stop_workers(self) -> tuple[list[ChildFailed], list[ChildFailed]]:
        """Stops all workers. Returns (failures while stopping, failures to save)."""
        for learner in self._learners:  # it finishes an iteration and saves while the others stop
            learner.stop()
        stages = [self._rollout_workers, self._samplers]
        stopped = self._supervisor.stop_all(stages, STOP_GRACE_SECONDS, self._describe)
        nodes_stopped = self._supervisor.stop_all([self._ingest], NODES_GRACE_SECONDS)
        learners_stopped = self._supervisor.stop_all(
            [self._learners], LEARNER_GRACE_SECONDS, self._describe, dump_stacks=True
        )
        reason = "did not save in time and was killed"
        unsaved = [ChildFailed(name, reason) for name in learners_stopped.killed]
        # The first learner of each policy has ended the others.
        others_stopped = self._supervisor.stop_all([self._other_learners], STOP_GRACE_SECONDS)
        failed = [*stopped.failed, *nodes_stopped.failed, *learners_stopped.failed, *others_stopped.failed]
        return failed, unsaved

    def _describe(self, child: Child) -> str:
        if child in self._learners:
            return f"{child.name} (it finishes an iteration of training and saves)"
        call = env_call(self._workers_in(child), self._parts.channels.progress["stepping"])
        return f"{child.name} (busy with {call})" if call else child.name


def env_call(rollout_workers: Sequence[int], stepping: np.ndarray) -> str:
    """Returns the call on an env that one of a process's rollout workers is in, e.g. "step of env 1", with
    the worker if there are several; empty if there is none.

    stepping: see make_progress.
    """
    for index in rollout_workers:
        env = stepping[index]
        if env != NO_ENV:
            call = f"step of env {env}" if env > NO_ENV else f"close of env {in_close(env)}"
            return call + (f" of worker {index}" if len(rollout_workers) > 1 else "")
    return ""
