"""The processes around a Learner: batching and training overlap, with back-pressure; checkpoints."""

from concurrent.futures import ThreadPoolExecutor, wait

import torch

from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.checkpoints.store import Checkpoints
from sample_factory.exchange.channels import Channels
from sample_factory.exchange.messages import JoinGroup, Report, Trajectories
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.learning.batch import Batch, Batcher
from sample_factory.learning.learner import Learner
from sample_factory.learning.learner_args import LearnerArgs
from sample_factory.learning.learner_group import LearnerGroup
from sample_factory.learning.receiver import Handover, Receiver
from sample_factory.learning.saver import Saver
from sample_factory.learning.trainer import Trainer
from sample_factory.runtime import cpu
from sample_factory.runtime.child_side import ChildContext


class LearnerWorker:
    """In the child: the process of a policy's first learner. The main thread makes batches (Receiver), and
    the trainer thread trains on them (Trainer, Saver).

    `_is_ending` is written by the main thread and read by the trainer thread. No other field changes after
    the construction.
    """

    def __init__(
        self, args: LearnerArgs, buffers: TrajectoryBuffers, channels: Channels, context: ChildContext
    ):
        """Builds the learner, loads the newest checkpoint if there is one, and publishes the weights.

        Raises CheckpointError if no checkpoint can be read.
        """
        config = args.config
        group = LearnerGroup(args.rank, buffers.topology.learners_per_policy)
        place = _announce(group, channels, args.policy_id)
        self._executor = _trainer_thread(args.num_threads)
        self._channels = channels
        self._context = context
        self._learns = not config.sampling.sampler_only
        self._is_ending = False
        self._learner = Learner(args, group, context.beat)  # an iteration of many steps may take minutes
        self._checkpoints = Checkpoints(
            config.experiment_dir,
            args.policy_id,
            config.monitoring.keep_checkpoints,
            self._learner.check_state,
        )
        handover = Handover(buffers.topology.max_ready_batches)
        batcher = Batcher(buffers, args.policy_id, self._learner.device)
        self._receiver = Receiver(args.policy_id, buffers, batcher, channels, handover, self._send)
        self._saver = Saver(self._learner, self._checkpoints, args)
        self._trainer = Trainer(
            self._learner, self._saver, handover, channels, self._send, config.sampling.forced_policy_lag
        )
        self._trainer.publish()
        if place is not None:
            group.connect(self._learner.device, place)
        cpu.keep_freed_memory()  # not what initialising and loading the network took
        self._send(self._learner.describe())
        self._trainer.report({})

    def _send(self, report: Report) -> None:
        """Sends a report to the main process. Called in both threads."""
        self._channels.reports.put(report, self._context.keep_going)

    def run(self) -> None:
        """Makes batches in this thread and trains in another until the process is asked to stop; then saves a
        checkpoint if an SGD step was made. Raises CheckpointError if it cannot be written."""
        training = self._executor.submit(self._train_until_stopped)
        try:
            while not self._context.stopping.is_set() and not training.done():
                self.step(timeout=0.05)
        finally:
            self._is_ending = True
            wait([training])
            is_saved = self._learner.version == 0 or self.save()
        training.result()  # raises what the trainer thread has raised
        if not is_saved:
            raise CheckpointError(
                f"the newest progress is lost: no checkpoint could be written to {self._checkpoints.folder}"
            )

    def _train_until_stopped(self) -> None:
        """In the trainer thread: trains until the process is asked to stop."""
        while not self._context.stopping.is_set() and not self._is_ending:
            self._context.beat()
            self._trainer.train_once(timeout=0.1)
        self._trainer.end()

    def step(self, timeout: float) -> bool:
        """In the batching thread: receives messages and makes a batch, as `Receiver.step` does; with
        --sampler_only, discards all trajectories. Returns whether anything was done within `timeout` seconds.

        Also reports regularly what the trainer thread spends its time on.
        """
        self._trainer.report_time()
        if self._learns:
            return self._receiver.step(self._learner.trajectories_per_batch, timeout)
        self._receiver.receive(timeout)
        env_frames = self._receiver.discard()
        if env_frames is None:
            return False
        self._trainer.count_frames(env_frames)
        return True

    def train_once(self, timeout: float) -> bool:
        """In serial mode: trains on a batch if one is ready within `timeout` seconds; returns whether it
        has trained."""
        return self._trainer.train_once(timeout)

    def save(self) -> bool:
        """After the last step: writes a checkpoint, and the snapshots that the main process has requested.

        Returns False if the checkpoint could not be written.
        """
        self._receiver.receive(0.0)
        if self._learns:
            self._trainer.write_last_snapshots()
        return self._saver.save()


def _trainer_thread(num_threads: int) -> ThreadPoolExecutor:
    """Makes an executor with a single thread, the trainer thread, in which torch uses `num_threads` threads.
    In the calling thread, torch then uses only one thread.

    OpenMP has a pool of threads for each thread that computes with several. If all pools together have more
    threads than there are cores, the threads sleep at every barrier. Measured with doom_battle on two cores:
    10,800 frames/s if only the trainer thread has a pool of two threads, 6,400 if the calling thread has one
    too.
    """
    torch.set_num_threads(1)
    return ThreadPoolExecutor(1, "trainer", torch.set_num_threads, (num_threads,))


def _announce(group: LearnerGroup, channels: Channels, policy_id: int) -> JoinGroup | None:
    """Sends the address of this learner to the policy's other learners, and returns it; does nothing and
    returns None if the group has no other learner."""
    if group.size == 1:
        return None
    place = group.listen()
    for inbox in channels.other_learners[policy_id]:
        inbox.put(place)
    return place


class OtherLearner:
    """In the child, with --learners_per_policy: the process of any learner of a policy but the first. It
    trains on its share of every batch whenever the first learner orders it.

    The main thread copies shares out of the trajectory buffers; another thread trains. Nothing is saved,
    published or reported, since the first learner has the same weights. No field changes after the
    construction.
    """

    def __init__(
        self, args: LearnerArgs, buffers: TrajectoryBuffers, channels: Channels, context: ChildContext
    ):
        """Connects to all other learners of the policy, and waits until they are connected too. Raises
        LearnerLost if one of them cannot be reached."""
        self._executor = _trainer_thread(args.num_threads)
        self._context = context
        index = args.rank - 1  # among the other learners
        self._inbox = channels.other_learners[args.policy_id][index]
        self._num_copied = channels.progress["copied"][args.policy_id, index : index + 1]
        self._group = LearnerGroup(args.rank, buffers.topology.learners_per_policy)
        self._learner = Learner(args, self._group, context.beat)
        self._batcher = Batcher(buffers, args.policy_id, self._learner.device)
        self._handover = Handover(buffers.topology.max_ready_batches)
        self._group.connect(self._learner.device, self._receive_place())
        cpu.keep_freed_memory()

    def _receive_place(self) -> JoinGroup:
        while True:
            for message in self._inbox.get_many(timeout=0.1, max_messages=1):
                assert isinstance(message, JoinGroup), "it is sent before the first share"
                return message

    def run(self) -> None:
        """Trains until the first learner sends the order to end. Raises LearnerLost if a learner is lost."""
        training = self._executor.submit(self._train_until_ended)
        while not training.done():
            self._receive(timeout=0.05)
        training.result()

    def _receive(self, timeout: float) -> None:
        """In the main thread: copies the shares that arrive within `timeout` seconds."""
        for message in self._inbox.get_many(timeout=timeout):
            assert isinstance(message, Trajectories)
            self._handover.put_batch(self._batcher.next_batch(message.buffer_indices))
            self._num_copied += 1

    def _train_until_ended(self) -> None:
        """In the trainer thread: carries out the first learner's orders, up to the order to end."""
        while self._follow_order():
            self._context.beat()

    def _follow_order(self) -> bool:
        """Receives an order of the first learner and carries it out. Returns False after the order to end."""
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
