"""A process in which rollout and policy workers take turns, so that no message leaves it for an action."""

import torch

from sample_factory.exchange.channels import Channels
from sample_factory.exchange.run_plan import ActingPlan, EnvPlan
from sample_factory.exchange.trajectory_buffers import FIRST_INCARNATION, TrajectoryBuffers
from sample_factory.runtime import cpu
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.clock import Every
from sample_factory.runtime.failures import Failure, one_line
from sample_factory.runtime.queues import LocalQueue
from sample_factory.sampling.inference.policy_worker import PolicyWorker
from sample_factory.sampling.rollout.rollout_worker import RolloutWorker

READ_SECONDS = 0.2  # between reads of the inbox: no message is urgent
IDLE_SECONDS = 0.001  # pause while all splits wait for free buffers


class InlineSampler:
    """In the child: runs rollout workers and policy workers in one process. Each turn steps all envs that
    have their actions, then answers all requests.

    Sampler `index` of n holds the rollout workers index, index + n, ..., and one policy worker per policy.
    This is faster than separate processes if an env step takes less time than a message between processes.
    """

    def __init__(
        self,
        envs: EnvPlan,
        acting: ActingPlan,
        index: int,
        buffers: TrajectoryBuffers,
        channels: Channels,
        context: ChildContext,
    ):
        """Builds the rollout workers and policy workers. `index` is the number of this sampler and of its
        inbox."""
        topology = buffers.topology
        workers = topology.workers_of_sampler(index)
        self._inbox = channels.inboxes[index]
        self._time_to_read = Every(READ_SECONDS)
        channels = channels._replace(  # no message between these workers leaves the process
            inboxes=[LocalQueue() for _ in range(topology.num_workers)],
            requests=[LocalQueue() for _ in range(topology.num_policies)],
        )
        self._inboxes = [channels.inboxes[worker] for worker in workers]
        self._forward_messages()  # rollout workers need the first messages when they are built
        self._name = context.name
        self._stopping = context.stopping
        self._keep_going = context.keep_going
        self._weights = [channels.weights[policy_id] for policy_id in acting.policies]
        self._policy_workers = [
            PolicyWorker(acting, policy_id, index, buffers, channels, context)
            for policy_id in acting.policies
        ]
        num_replaced = int(buffers.incarnations[workers[0]]) - FIRST_INCARNATION
        if num_replaced:  # the same random numbers may let it die again
            torch.manual_seed(torch.initial_seed() + 10**9 * num_replaced)
        self._rollout_workers = [
            RolloutWorker(envs, worker, buffers, channels, context) for worker in workers
        ]

    def run(self) -> None:
        """Takes turns until the process is asked to stop, then closes the envs."""
        # Where freed memory is kept, a step of Brax's pendulum (1,024 envs, on a CPU) takes 7.1 ms, not 5.2.
        if not any(worker.steps_simulators for worker in self._rollout_workers):
            cpu.keep_freed_memory()
        for worker in self._rollout_workers:
            worker.watch_process()
        try:
            for weights in self._weights:
                if not weights.wait_published(self._keep_going):
                    return
            while self._keep_going():
                if not self.step():
                    self._pause()
        finally:
            for worker in self._rollout_workers:
                worker.close()

    def step(self) -> bool:
        """Takes one turn: steps envs, then answers requests. Returns whether there was anything to do."""
        if self._time_to_read():
            self._forward_messages()
        has_sampled = [worker.step(timeout=0.0) for worker in self._rollout_workers]
        try:
            has_answered = [worker.step(timeout=0.0) for worker in self._policy_workers]
        except Exception as error:  # of a user's network, which would raise again in a new process
            text = f"computing actions raised {one_line(error)}"
            raise Failure.of(error, self._name, text, permanent=True) from error
        return any(has_sampled) or any(has_answered)

    def _pause(self) -> None:
        """Sleeps for IDLE_SECONDS, which the clocks of all workers in this process count as waiting."""
        clocks = [worker.clock for worker in self._rollout_workers]
        clocks += [worker.clock for worker in self._policy_workers]
        for clock in clocks:
            clock.lap("other")
        self._stopping.wait(IDLE_SECONDS)
        for clock in clocks:
            clock.lap("wait")

    def _forward_messages(self) -> None:
        """Forwards messages of the main process to all rollout workers."""
        for message in self._inbox.get_many(timeout=0.0):
            for inbox in self._inboxes:
                inbox.put(message)
