"""The process around a Learner: batching and training overlap, with back-pressure; checkpoints."""

import threading

import torch

from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.checkpoints.store import Checkpoints
from sample_factory.exchange.channels import Channels
from sample_factory.exchange.messages import JoinGroup, Report
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.learning.batcher import Batcher
from sample_factory.learning.handover import Handover
from sample_factory.learning.learner import Learner
from sample_factory.learning.learner_group import LearnerGroup
from sample_factory.learning.receiver import Receiver
from sample_factory.learning.saver import Saver, Takeover
from sample_factory.learning.settings import LearnerWorkerArgs
from sample_factory.learning.trainer import Trainer
from sample_factory.runtime import cpu
from sample_factory.runtime.child_side import ChildContext


class LearnerWorker:
    """In the child: one thread makes batches of tickets (Receiver), another trains on them (Trainer, Saver).

    The main thread is the batching thread; `run` starts and ends the trainer thread. `_failure` is written by
    the trainer thread and read by the main thread, `_is_ending` the other way round. No other field changes
    after the construction.
    """

    def __init__(
        self,
        args: LearnerWorkerArgs,
        buffers: TrajectoryBuffers,
        channels: Channels,
        context: ChildContext,
    ):
        """Resumes the learner and publishes its weights. Raises CheckpointError."""
        policy_id, settings, rank = args
        group = LearnerGroup(rank, settings.num_learners)
        port = _announce_port(group, channels, policy_id)
        cpu.keep_freed_memory()
        torch.set_num_threads(settings.num_threads)
        self._channels = channels
        self._context = context
        self._learns = settings.learn
        self._failure: BaseException | None = None
        self._is_ending = False
        self._learner = Learner(policy_id, settings.learner, group)
        self._checkpoints = Checkpoints(settings.experiment_dir, policy_id, settings.keep_checkpoints)
        handover = Handover(buffers.topology.max_ready_batches)
        batcher = Batcher(buffers, policy_id, self._learner.device)
        self._receiver = Receiver(policy_id, buffers, batcher, channels, handover, self._send)
        self._saver = Saver(self._learner, self._checkpoints, settings)
        takeover = Takeover(self._learner, self._checkpoints)
        self._trainer = Trainer(self._learner, self._saver, takeover, handover, channels, self._send)
        self._trainer.publish()
        if port is not None:
            group.connect(self._learner.device, port)
        self._send(self._learner.describe())
        self._trainer.report({})

    def _send(self, report: Report) -> None:
        """To the main process. Called in both threads."""
        self._channels.reports.put(report, self._context.keep_going)

    def run(self) -> None:
        """Batches in this thread and trains in another until asked to stop. Then saves if it has trained."""
        trainer = threading.Thread(target=self._train_until_stopped, name="trainer")
        trainer.start()
        try:
            while not self._context.stopping.is_set() and self._failure is None:
                self.step(timeout=0.05)
        finally:
            self._is_ending = True
            trainer.join()
            is_saved = self._learner.version == 0 or self._saver.save()
        if self._failure is not None:
            raise self._failure
        if not is_saved:
            raise CheckpointError(
                f"the newest progress is lost: no checkpoint could be written to {self._checkpoints.folder}"
            )

    def _train_until_stopped(self) -> None:
        """Body of the trainer thread."""
        try:
            while not self._context.stopping.is_set() and not self._is_ending:
                self._context.beat()
                self.train_once(timeout=0.1)
            self._trainer.end()
        except BaseException as error:  # raised in the main thread, which ends the process with it
            self._failure = error

    def step(self, timeout: float) -> bool:
        """In the batching thread: receives, and makes a batch or discards; see `Receiver.step`."""
        if self._learns:
            return self._receiver.step(self._learner.trajectories_per_batch, timeout)
        self._receiver.receive(timeout)
        env_frames = self._receiver.discard()
        if env_frames is None:
            return False
        self._trainer.count_frames(env_frames)
        return True

    def train_once(self, timeout: float) -> bool:
        """In the trainer thread: see `Trainer.train_once`."""
        return self._trainer.train_once(timeout)

    def save(self) -> bool:
        """Saves a checkpoint; returns False if that failed. Not while the trainer thread runs."""
        return self._saver.save()


def _announce_port(group: LearnerGroup, channels: Channels, policy_id: int) -> int | None:
    """Sends the other learners of the policy the port at which they find this one; None without others."""
    if group.size == 1:
        return None
    port = group.listen()
    for inbox in channels.other_learners[policy_id]:
        inbox.put(JoinGroup(port))
    return port
