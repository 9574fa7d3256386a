"""Runs the workers of an experiment in processes of their own, which is the default."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sample_factory.exchange.channels import NO_ENV, in_close
from sample_factory.exchange.messages import Incident
from sample_factory.exchange.run_plan import SamplingPlan
from sample_factory.launch.workers import (
    INGEST,
    INLINE_SAMPLER,
    LEARNER,
    LEARNER_GRACE_SECONDS,
    NODES_GRACE_SECONDS,
    OTHER_LEARNER,
    POLICY_WORKER,
    ROLLOUT_WORKER,
    WorkerSpec,
    sampling_specs,
)
from sample_factory.mainloop.main_loop import Loop, Resources
from sample_factory.runtime.child import Child
from sample_factory.runtime.failures import Failure, collected
from sample_factory.runtime.local_ray import Cluster
from sample_factory.runtime.log import log
from sample_factory.runtime.supervisor import Limits, StopSignals, Supervisor, stop_all

STOP_GRACE_SECONDS = 8.0
SILENT_SECONDS = 5.0  # a worker without a heartbeat for longer is named as a reason why nothing was learned
UNSAVED = "has ended without saving a checkpoint"
POLL_SECONDS = 0.1
FIRST_WAIT_SECONDS = 5.0  # before the first line about workers that are not ready yet
NEXT_WAIT_SECONDS = 15.0  # after the start; each later line comes after twice the time
# The order in which workers are stopped, with the time that they have to stop.
STAGES = (
    ((ROLLOUT_WORKER,), STOP_GRACE_SECONDS),
    ((POLICY_WORKER, INLINE_SAMPLER), STOP_GRACE_SECONDS),
    ((INGEST,), NODES_GRACE_SECONDS),
    ((LEARNER,), LEARNER_GRACE_SECONDS),
    ((OTHER_LEARNER,), STOP_GRACE_SECONDS),  # the first learner of each policy has made them end by now
)
# Role -> what the run waits for. If several roles are starting, the first in this order is named.
STARTING = {
    ROLLOUT_WORKER: "the envs are starting",
    INLINE_SAMPLER: "the envs are starting",
    POLICY_WORKER: "the policies are starting",
    LEARNER: "the learner is starting",
    INGEST: "Ray is starting",
}


class ProcessRun:
    """In the parent: owns the child processes of a run. Starts them, runs the main loop, stops them."""

    def __init__(
        self,
        plan: SamplingPlan,
        resources: Resources,
        learners: Sequence[WorkerSpec] = (),
        ray: Cluster | None = None,
    ):
        """Makes the child processes of a run; `run` starts them.

        learners: specs from `training_specs`, for a training. ray: the Ray cluster of --num_nodes, or None.
        """
        self._buffers = resources.buffers
        self._stepping = resources.channels.progress["stepping"]
        specs = [*learners, *sampling_specs(plan)]
        # By the name of the child: the successor of a dead worker has the same name.
        self._specs = {spec.name: spec for spec in specs}
        limits = Limits(
            start_seconds=plan.flags.reset_timeout_seconds,
            silent_seconds=plan.silent_seconds,
        )
        children = [spec.make_child(resources) for spec in specs]
        restartable = [child for child in children if self._specs[child.name].rollout_workers]
        self._supervisor = Supervisor(children, restartable, limits)
        self._ray = ray
        self._are_ready = False
        self.stuck = ""  # the workers that were stuck when the loop was done, for the result
        self._began = time.monotonic()
        self._next_line = FIRST_WAIT_SECONDS  # of the log, after the start

    def _children(self, *roles: str) -> list[Child]:
        """Returns the current processes of these roles; a dead process is left out once it is replaced."""
        return [child for child in self._supervisor.children if self._specs[child.name].role in roles]

    def run(self, loop: Loop, signals: StopSignals) -> list[Failure]:
        """Runs the main loop until it is done or a signal arrives. Called once.

        Returns why the run has failed; an empty list if it has not.
        """
        failures: list[Failure] = []
        with self._supervisor:
            with collected(failures):
                self._supervisor.start_all()
                self._train(loop, signals)
            if signals.requested:
                self._log_stopping(signal.Signals(signals.requested).name)
            loop.stopping()
            unsaved = self._stop_workers(loop, quietly=bool(failures))
        failures += unsaved
        with collected(failures):
            loop.close(lambda: not failures and not signals.requested)
        return failures

    def _log_stopping(self, signal_name: str) -> None:
        if not self._children(LEARNER):
            log.info("%s received: stopping", signal_name)
            return
        log.info("%s received: saving and stopping; another one ends without saving", signal_name)

    def _log_start(self) -> None:
        """Logs at growing intervals how many processes are ready, and logs once when all are ready."""
        if self._are_ready:
            return
        seconds = time.monotonic() - self._began
        children = self._supervisor.children
        starting = [self._specs[child.name].shown_role for child in children if not child.ready]
        if not starting:
            self._are_ready = True
            log.info("All processes are ready after %.1f s", seconds)
        elif seconds >= self._next_line:
            self._next_line = max(NEXT_WAIT_SECONDS, 2 * self._next_line)
            log.info(starting_text(len(children), starting, seconds, self._ray))

    def _train(self, loop: Loop, signals: StopSignals) -> None:
        """Runs the main loop until the run is done or a signal has arrived. Replaces rollout workers and
        inline samplers that have died.

        Raises the Failure of any other worker, and of a rollout worker that dies before the run has begun.
        """
        has_started = False
        while not signals.requested:
            self._log_start()
            if not has_started and (self._are_ready or loop.has_begun or loop.is_done):
                loop.started()
                has_started = True
            if loop.is_done:
                self.stuck = describe_stuck(self._supervisor.children, self._call_of)
                return
            if has_started:
                loop.turn(POLL_SECONDS)
            else:  # workers that are ready may fill the queue of reports
                loop.receive(POLL_SECONDS)
            if loop.is_done or signals.requested:  # deaths are judged when all have stopped
                continue
            for dead, failure in self._supervisor.check(restarts=has_started or loop.has_begun).items():
                self._replace(dead, failure, loop)

    def _replace(self, dead: Child, failure: Failure, loop: Loop) -> None:
        """Reclaims the trajectory buffers of a dead rollout worker or inline sampler, and starts its
        successor."""
        spec = self._specs[dead.name]
        call = env_call(spec.rollout_workers, self._stepping)
        self._stepping[spec.rollout_workers] = NO_ENV
        where = f" in {call}" if call else ""
        loop.receive(0.0)  # the reports that it sent before it died
        count = sum(self._buffers.reclaim(index) for index in spec.rollout_workers)
        text = f"{dead.name} died{where} and is replaced: {failure.message}"
        incident = Incident("worker_restarts", text, details=failure.traceback)
        loop.process_replaced(spec.worker_index, spec.rollout_workers, incident)
        self._supervisor.restart(dead)
        log.info("Reclaimed %d buffers of %s.", count, dead.name)

    def _stop_workers(self, loop: Loop, quietly: bool) -> list[Failure]:
        """Stops all workers, and returns the failures of the main loop and of learners that have not saved. A
        failure of any other worker is only logged, since nothing is lost by it at the end.

        quietly: whether the run has failed, so that further failures are most likely consequences: then
            returns only the failures of learners that had to be killed.
        """
        for learner in self._children(LEARNER):  # finishes an iteration and saves while other workers stop
            learner.stop()
        failures: list[Failure] = []  # of the main loop
        unsaved: list[Failure] = []
        for roles, seconds in STAGES:
            children = self._children(*roles)
            if not quietly:
                with collected(failures):  # makes room in the queue for what these workers report
                    loop.receive(0.0)
            killed, failed = stop_all(children, seconds, self._describe, dump_stacks=LEARNER in roles)
            if LEARNER in roles:
                unsaved = [Failure(name, "did not save in time and was killed") for name in killed]
                unsaved += [] if quietly else not_saved(children, failed, killed)
            elif not quietly:
                for name, failure in failed.items():
                    log.warning("%s failed while the run was ending: %s", name, failure.message)
        return failures + unsaved

    def _call_of(self, child: Child) -> str:
        return env_call(self._specs[child.name].rollout_workers, self._stepping)

    def _describe(self, child: Child) -> str:
        spec = self._specs[child.name]
        if spec.role == LEARNER:
            return f"{child.name} (it finishes an iteration of training and saves)"
        call = self._call_of(child)
        return f"{child.name} (busy with {call})" if call else child.name


def describe_stuck(children: Sequence[Child], call_of: Callable[[Child], str]) -> str:
    """Returns a text that names the children that have sent no heartbeat for a while, and the env call that
    each is executing.

    call_of: returns the env call of a child, or an empty string.
    """
    silent = [(child, child.silent_seconds, call_of(child)) for child in children]
    return ", ".join(
        f"{child.name} has been in {call} for {seconds:.0f} s"
        for child, seconds, call in silent
        if call and seconds > SILENT_SECONDS
    )


def not_saved(
    learners: Sequence[Child], failed: Mapping[str, Failure], killed: Sequence[str]
) -> list[Failure]:
    """Returns the failures of learners that ended by themselves without having saved.

    failed: name -> failure, for children that raised while stopping. killed: names of children that were
    killed.
    """
    known = {*killed, *failed}
    lost = [child for child in learners if child.ready and not child.finished and child.name not in known]
    return [*failed.values(), *(child.failure or Failure(child.name, UNSAVED) for child in lost)]


def env_call(rollout_workers: Sequence[int], stepping: np.ndarray) -> str:
    """Returns the call on an env that a process is executing, e.g. "step of env 1"; empty if there is none.

    rollout_workers: indices of the rollout workers in the process; if several, the text names the worker.
    stepping: [num_workers] int64, which env a rollout worker steps or closes now, see `make_progress`.
    """
    for index in rollout_workers:
        env = stepping[index]
        if env != NO_ENV:
            call = f"step of env {env}" if env > NO_ENV else f"close of env {in_close(env)}"
            return call + (f" of worker {index}" if len(rollout_workers) > 1 else "")
    return ""


def starting_text(
    num_processes: int, starting: Sequence[str], seconds: float, ray: Cluster | None = None
) -> str:
    """Returns how many processes are ready, and what the run waits for, as one line for the log.

    starting: roles of the processes that are not ready yet. seconds: time since the start.
    ray: the Ray cluster of --num_nodes.
    """
    num_ready = num_processes - len(starting)
    waiting = next(text for role, text in STARTING.items() if role in starting)
    if waiting == STARTING[INGEST] and ray is not None:
        waiting = f"waiting for Ray at {ray.address}"
    return f"{num_ready} of {num_processes} processes ready after {seconds:.0f} s; {waiting}"
