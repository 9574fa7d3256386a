"""The processes beside the first learner of a policy, with --learners_per_policy."""

import threading

import torch

from sample_factory.exchange.channels import Channels
from sample_factory.exchange.messages import JoinGroup, Trajectories
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.learning.batch import Batch
from sample_factory.learning.batcher import Batcher
from sample_factory.learning.handover import Handover
from sample_factory.learning.learner import Learner
from sample_factory.learning.learner_group import LearnerGroup
from sample_factory.learning.settings import LearnerWorkerArgs
from sample_factory.runtime import cpu
from sample_factory.runtime.child_side import ChildContext


class OtherLearner:
    """In the child: trains on a share of every batch, whenever the first learner of the policy does.

    The main thread copies shares out of the trajectory buffers, another thread trains. Nothing is saved,
    published or reported: the first learner has the same weights. `_failure` and `_has_ended` are written by
    the trainer thread and read by the main thread. No other field changes after the construction.
    """

    def __init__(
        self,
        args: LearnerWorkerArgs,
        buffers: TrajectoryBuffers,
        channels: Channels,
        context: ChildContext,
    ):
        """Returns when all learners of the policy have connected to each other. Raises LearnerLost."""
        policy_id, settings, rank = args
        cpu.keep_freed_memory()
        torch.set_num_threads(settings.num_threads)
        self._context = context
        self._failure: BaseException | None = None
        self._has_ended = False
        self._inbox = channels.other_learners[policy_id][rank - 1]
        self._num_copied = channels.progress["copied"][policy_id, rank - 1 : rank]
        self._group = LearnerGroup(rank, settings.num_learners)
        self._learner = Learner(policy_id, settings.learner, self._group)
        self._batcher = Batcher(buffers, policy_id, self._learner.device)
        # The first learner sends a share when it has room for a batch, which may be before the order to train
        # on the one before.
        self._handover = Handover(buffers.topology.max_ready_batches + 1)
        self._group.connect(self._learner.device, self._receive_port())

    def _receive_port(self) -> int:
        while True:
            for message in self._inbox.get_many(timeout=0.1, max_messages=1):
                assert isinstance(message, JoinGroup), "it is sent before the first share"
                return message.port

    def run(self) -> None:
        """Trains until the first learner ends it. Raises LearnerLost, and what `Learner.train` raises."""
        trainer = threading.Thread(target=self._train_until_ended, name="trainer")
        trainer.start()
        while not self._has_ended:
            self._receive(timeout=0.05)
        trainer.join()
        if self._failure is not None:
            raise self._failure

    def _receive(self, timeout: float) -> None:
        """In the main thread: copies the shares that arrive within `timeout` seconds."""
        for message in self._inbox.get_many(timeout=timeout):
            assert isinstance(message, Trajectories)
            self._handover.put_batch(self._batcher.next_batch(message.buffer_indices))
            self._num_copied += 1

    def _train_until_ended(self) -> None:
        """Body of the trainer thread."""
        try:
            while self._follow_order():
                self._context.beat()
        except BaseException as error:  # raised in the main thread, which ends the process with it
            self._failure = error
        finally:
            self._has_ended = True

    def _follow_order(self) -> bool:
        """Does what the first learner does. Returns False if that has ended."""
        order = self._group.receive_order()
        if order.state is not None:
            self._learner.share_state(order.state)
        if order.trains:
            self._learner.train(self._next_batch())
        return not order.ends

    def _next_batch(self) -> Batch:
        while (batch := self._handover.take_batch(timeout=0.1)) is None:
            self._context.beat()
        return batch
