"""A process that simulates and infers: rollout and policy workers that take turns, without messages."""

from collections.abc import Sequence

from sample_factory.exchange.channels import Channels, with_local_queues
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.runtime.child_side import ChildContext
from sample_factory.sampling.inference.policy_worker import PolicyWorker
from sample_factory.sampling.rollout.rollout_worker import RolloutWorker
from sample_factory.sampling.settings import PolicyWorkerArgs, RolloutWorkerArgs

IDLE_SECONDS = 0.001  # while all splits wait for the learner to free their buffers


class InlineSampler:
    """In the child: every turn steps all envs that have their actions, then answers all requests at once.

    For envs whose step takes less time than a message to another process and the switch to it.
    """

    def __init__(
        self,
        rollout_workers: Sequence[RolloutWorkerArgs],
        policy_workers: Sequence[PolicyWorkerArgs],
        buffers: TrajectoryBuffers,
        channels: Channels,
        context: ChildContext,
    ):
        channels = with_local_queues(channels, buffers.topology)
        self._stopping, self._weights = context.stopping, channels.weights
        self._policy_workers = [PolicyWorker(args, buffers, channels, context) for args in policy_workers]
        self._rollout_workers = [RolloutWorker(args, buffers, channels, context) for args in rollout_workers]

    def run(self) -> None:
        """Until asked to stop."""
        for worker in self._rollout_workers:
            worker.watch_simulators()
        try:
            for weights in self._weights:
                if not weights.wait_published(lambda: not self._stopping.is_set()):
                    return
            while not self._stopping.is_set():
                if not self.step():
                    self._stopping.wait(IDLE_SECONDS)
        finally:
            for worker in self._rollout_workers:
                worker.close()

    def step(self) -> bool:
        """One turn. True if anything was done."""
        turns = [worker.step(timeout=0.0) for worker in (*self._rollout_workers, *self._policy_workers)]
        return any(turns)
