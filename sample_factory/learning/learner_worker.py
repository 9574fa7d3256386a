"""The process around a Learner: batching and training overlap, with back-pressure; checkpoints."""

import itertools
import logging
import queue
import threading
import time
from typing import Any

import numpy as np
import torch

from sample_factory.checkpoints.milestone_schedule import MilestoneSchedule
from sample_factory.checkpoints.milestones import Milestone
from sample_factory.checkpoints.store import CheckpointError, Checkpoints
from sample_factory.exchange.channels import Channels
from sample_factory.exchange.messages import (
    ComponentReady,
    DonateRequest,
    MilestoneSaved,
    NewSettings,
    SaveRequest,
    SettingsTaken,
    StatsReport,
    TrainReport,
    Trajectories,
    WorkerDied,
)
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.learning.batch import Batch
from sample_factory.learning.batcher import Batcher
from sample_factory.learning.learner import Learner
from sample_factory.learning.settings import LearnerWorkerSettings
from sample_factory.learning.takeover import Takeover
from sample_factory.runtime import cpu
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.clock import Clock, Every

log = logging.getLogger("sample_factory")

REPORT_SECONDS = 5.0
# Seconds between train/ summaries, by number of SGD steps: frequent while a run is young.
SUMMARY_SECONDS = ((0, 2.0), (100_000, 60.0), (1_000_000, 120.0))


class LearnerWorker:
    """In the child: one thread turns tickets into batches, the other trains on them.

    Back-pressure needs no message: while max_ready_batches wait for the trainer, no buffer is released, and
    rollout workers that find no free buffer pause.
    """

    def __init__(
        self,
        policy_id: int,
        settings: LearnerWorkerSettings,
        buffers: TrajectoryBuffers,
        channels: Channels,
        context: ChildContext,
    ):
        cpu.keep_freed_memory()
        torch.set_num_threads(settings.num_threads)
        self._policy_id, self._channels, self._stopping = policy_id, channels, context.stopping
        self._keep_going, self._beat = context.keep_going, context.beat
        self._inbox, self._weights = channels.learners[policy_id], channels.weights[policy_id]
        self._learner = Learner(policy_id, settings.learner)
        self._learn, self._buffers = settings.learn, buffers
        self._batcher = Batcher(buffers, policy_id, self._learner.device)
        self._tickets: list[int] = []
        self._first_tickets: tuple[float, int] | None = None  # when they came, and how many
        self._first_batch_announced = False
        self._ready: queue.Queue[Batch] = queue.Queue(buffers.topology.max_ready_batches)
        self._batch_taken = threading.Event()
        self._failure, self._ended = None, False
        self._wanted_best: SaveRequest | None = None
        self._clock, self._time_to_report = Clock(), Every(REPORT_SECONDS)
        self._time_to_summarise = Every(SUMMARY_SECONDS[0][1], at_first=True)
        self._checkpoints = Checkpoints(settings.experiment_dir, policy_id, settings.keep_checkpoints)
        self._takeover = Takeover(self._learner, self._checkpoints)
        self._for_trainer: queue.SimpleQueue[DonateRequest | NewSettings] = queue.SimpleQueue()
        self._time_to_save = Every(settings.save_every_sec)
        self._resume(settings.load_checkpoint_kind)
        self._milestones = _milestone_schedule(settings, self._learner.env_frames, self._checkpoints)
        self._weights.publish(self._learner.published_state(), self._learner.stamp)
        self._channels.reports.put(self._learner.describe(), self._keep_going)
        self._report_progress({})

    def run(self) -> None:
        """Until asked to stop: batch in this thread, train in another. Saves at the end in any case."""
        trainer = threading.Thread(target=self._train_until_stopped, name="trainer")
        trainer.start()
        try:
            while not self._stopping.is_set() and self._failure is None:
                self.step(timeout=0.05)
        finally:
            self._ended = True
            trainer.join()
            is_saved = self.save()
        if self._failure is not None:
            raise self._failure
        if not is_saved:
            raise CheckpointError(
                f"what was learned last is lost: {self._checkpoints.folder} takes no checkpoint"
            )

    def step(self, timeout: float) -> bool:
        """Takes in messages and makes a batch if there is enough and the trainer can take it."""
        self._batch_taken.clear()
        size = self._learner.trajectories_per_batch
        if len(self._tickets) >= size and self._ready.full():
            # There may be no message until then: sampling can be waiting for these very buffers.
            self._batch_taken.wait(timeout)
            timeout = 0.0
        messages = self._inbox.get_many(timeout=timeout)
        for message in messages:
            match message:
                case Trajectories(buffer_indices):
                    self._tickets.extend(buffer_indices)
                    self._first_tickets = self._first_tickets or (time.monotonic(), len(buffer_indices))
                case WorkerDied(worker_index):
                    self._buffers.release_lost(worker_index, self._policy_id, self._tickets)
                case SaveRequest():
                    self._wanted_best = message
                case DonateRequest() | NewSettings():
                    self._for_trainer.put(message)
        if not self._learn:
            return self._count_and_drop()
        if len(self._tickets) < size or self._ready.full():
            return bool(messages)
        # Oldest first: what waits longest is the furthest off the policy.
        tickets, self._tickets = self._tickets[:size], self._tickets[size:]
        self._ready.put(self._batcher.next_batch(tickets))
        self._announce_first_batch(size)
        return True

    def _announce_first_batch(self, size: int) -> None:
        """Whoever started the run waits for signs of life, and the first SGD step takes a few seconds."""
        if self._first_batch_announced or self._first_tickets is None:
            return
        self._first_batch_announced = True
        topology, (began, num_first) = self._buffers.topology, self._first_tickets
        frames = (size - num_first) * topology.rollout * topology.frameskip
        fps = f"; sampling at {frames / (time.monotonic() - began):,.0f} FPS" if frames > 0 else ""
        text = f"policy {self._policy_id}: the first batch is there{fps}"
        self._channels.reports.put(ComponentReady("learner", text), self._keep_going)

    def _count_and_drop(self) -> bool:
        """--sampler_only: the frames are reported as if they had been trained on."""
        tickets, self._tickets = np.array(self._tickets, np.int64), []
        if not len(tickets):
            return False
        own = self._buffers.policy_ids[tickets] == self._policy_id
        self._learner.env_frames += int(own.sum()) * self._buffers.topology.frameskip
        self._buffers.release(tickets, self._policy_id)
        self._report_progress({})
        return True

    def train_once(self, timeout: float) -> bool:
        """Trains on a batch if one is ready within `timeout` seconds; publishes and reports."""
        self._answer_main()
        self._clock.lap("other")
        try:
            batch = self._ready.get(block=timeout > 0, timeout=timeout or None)
        except queue.Empty:
            self._clock.lap("wait")
            return False
        self._batch_taken.set()
        self._clock.lap("wait")
        stats = self._learner.train(batch, want_summaries=self._time_to_summarise())
        self._clock.lap("train")
        self._weights.publish(self._learner.published_state(), self._learner.stamp)
        self._channels.progress["iterations"][self._policy_id] += 1
        self._clock.lap("publish")
        self._report_progress(stats.summaries)
        self._save_when_due()
        return True

    def _answer_main(self) -> None:
        """Population-based training; a message waits for the end of an iteration."""
        while not self._for_trainer.empty():
            answer = self._takeover.answer(self._for_trainer.get())
            if isinstance(answer, SettingsTaken):
                self._weights.publish(self._learner.published_state(), self._learner.stamp)
            self._channels.reports.put(answer, self._keep_going)

    def save(self) -> bool:
        """A checkpoint of this moment; none if nothing is learned (--sampler_only). False if it failed."""
        if not self._learn:
            return True
        return self._checkpoints.save(*self._state()) is not None

    def _state(self) -> tuple[dict[str, Any], int, int]:
        """What is saved: state, version, env frames."""
        return self._learner.state_dict(), self._learner.version, self._learner.env_frames

    def _train_until_stopped(self) -> None:
        try:
            while not self._stopping.is_set() and not self._ended:
                self._beat()
                self.train_once(timeout=0.1)
        except BaseException as error:  # carried over to the main thread, which ends the process with it
            self._failure = error

    def _resume(self, kind: str) -> None:
        """Continues from the newest usable checkpoint. Raises CheckpointError rather than start over one."""
        state = self._checkpoints.load(kind, check=self._learner.load_state_dict)
        if state is None and not self._checkpoints.is_empty():
            other = "best" if kind == "latest" else "latest"
            raise CheckpointError(
                f"{self._checkpoints.folder} has no {kind} checkpoint yet; try --load_checkpoint_kind={other}"
            )
        if state is not None:
            self._checkpoints.supersede(self._learner.version)
            counts = self._state()[1:]
            log.info("Policy %d resumes at %d SGD steps, %d env frames", self._policy_id, *counts)

    def _report_progress(self, summaries: Any) -> None:
        learner = self._learner
        report = TrainReport(
            self._policy_id,
            learner.version,
            learner.env_frames,
            learner.samples,
            summaries or None,
            learner.best_value,
        )
        self._channels.reports.put(report, self._keep_going)
        if summaries:
            self._time_to_summarise = Every(_summary_seconds(learner.version))
        if self._time_to_report():
            shares = self._clock.take_shares()
            shares["memory_mb"] = cpu.rss_mb()
            self._channels.reports.put(StatsReport("learner", self._policy_id, shares), self._keep_going)

    def _save_when_due(self) -> None:
        learner, saved = self._learner, self._checkpoints
        if self._time_to_save():
            self.save()
        path = self._milestones.save_if_due(learner.env_frames, lambda: saved.save_milestone(*self._state()))
        if path is not None:
            milestone = Milestone(self._policy_id, learner.version, learner.env_frames)
            self._channels.reports.put(MilestoneSaved(milestone), self._keep_going)
        wanted, self._wanted_best = self._wanted_best, None
        if wanted is not None and (learner.best_value is None or wanted.value > learner.best_value):
            learner.best_value = wanted.value
            saved.save_best(*self._state(), wanted.metric, wanted.value)


def _milestone_schedule(
    settings: LearnerWorkerSettings, env_frames: int, checkpoints: Checkpoints
) -> MilestoneSchedule:
    intervals = settings.save_milestones_sec, settings.snapshot_env_frames
    return MilestoneSchedule(*intervals, env_frames, has_milestone=bool(checkpoints.milestones()))


def _summary_seconds(version: int) -> float:
    """Linear between the points of SUMMARY_SECONDS."""
    for (begin, low), (end, high) in itertools.pairwise(SUMMARY_SECONDS):
        if version < end:
            return low + (high - low) * (version - begin) / (end - begin)
    return SUMMARY_SECONDS[-1][1]
