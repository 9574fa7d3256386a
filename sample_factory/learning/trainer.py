"""The trainer thread of a learner process: trains on batches, publishes weights, reports."""

import threading
from collections import deque
from collections.abc import Callable, Mapping

import numpy as np

from sample_factory.checkpoints.milestones import DONATION
from sample_factory.exchange.channels import Channels
from sample_factory.exchange.messages import Report, SettingsTaken, SnapshotRequest, StatsReport, TrainReport
from sample_factory.learning.learner import Learner, Weights
from sample_factory.learning.learner_group import Order
from sample_factory.learning.receiver import Handover
from sample_factory.learning.saver import Saver
from sample_factory.runtime import cpu
from sample_factory.runtime.clock import Clock, Every

REPORT_SECONDS = 5.0
# Seconds between train/ summaries: SUMMARY_SECONDS[i] after SUMMARY_STEPS[i] SGD steps, linear in between.
SUMMARY_STEPS = (0, 100_000, 1_000_000)
SUMMARY_SECONDS = (2.0, 60.0, 120.0)


class Trainer:
    """Trains a learner, publishes its weights, reports its progress, and saves checkpoints.

    All fields belong to the trainer thread (to the main thread before it starts and after it ends), with two
    exceptions: both threads use `handover`, and the batching thread calls `report_time`, so that time spent
    is reported even during an SGD step that takes minutes. With --sampler_only nothing is trained: the
    batching thread calls `count_frames` and `report_time`, and no other method is called.
    """

    def __init__(
        self,
        learner: Learner,
        saver: Saver,
        handover: Handover,
        channels: Channels,
        send: Callable[[Report], None],
        forced_lag: int = 0,
    ):
        """Prepares the training; publishes no weights yet. send: sends a report to the main process.
        forced_lag: value of --forced_policy_lag, in SGD steps."""
        self._learner = learner
        self._others_differ = True  # whether the other learners of the policy need this learner's state
        self._saver = saver
        self._handover = handover
        self._weights = channels.weights[learner.policy_id]
        self._late_weights = LateWeights(forced_lag)
        self._num_iterations = channels.progress["iterations"]
        self._diverged = channels.progress["diverged"]
        self._send = send
        self._clock = Clock()
        self._activity = "other"  # of the trainer thread, since the clock's last lap
        self._clock_lock = threading.Lock()  # for the clock and the activity
        self._time_to_report = Every(REPORT_SECONDS)
        self._time_to_summarise = Every(SUMMARY_SECONDS[0], at_first=True)

    def publish(self) -> None:
        """Publishes weights to policy workers: the current ones, or earlier ones with --forced_policy_lag."""
        self._weights.publish(*self._late_weights.newest_to_act(self._learner.weights()))

    def train_once(self, timeout: float) -> bool:
        """Trains on a batch if one arrives within `timeout` seconds; then publishes weights, reports, and
        saves a checkpoint if it is due. Returns whether it has trained."""
        self._answer_requests()
        self._begin("wait")
        batch = self._handover.take_batch(timeout)
        self._begin("other" if batch is None else "train")
        self._give_order(trains=batch is not None)
        if batch is None:
            return False
        summaries = self._learner.train(batch, want_summaries=self._time_to_summarise())
        self._begin("publish")
        self.publish()
        policy_id = self._learner.policy_id
        self._num_iterations[policy_id] += 1
        self._diverged[policy_id] = max(self._diverged[policy_id], self._learner.newest_diverged)
        self._begin("other")
        self.report(summaries)
        self._saver.save_when_due(self._send)
        return True

    def _begin(self, activity: str) -> None:
        with self._clock_lock:
            self._clock.lap(self._activity)
            self._activity = activity

    def _give_order(self, trains: bool) -> None:
        """Orders the other learners of the policy to train, or (trains=False) to wait for the next order.
        Sends this learner's state along if the others need it."""
        group = self._learner.group
        if group.size == 1:
            return
        state = self._learner.shared_state() if trains and self._others_differ else None
        group.give_order(Order(trains, state=state))
        self._others_differ = self._others_differ and not trains

    def end(self) -> None:
        """Orders the other learners of the policy to end."""
        self._learner.group.give_order(Order(trains=False, ends=True))

    def _answer_requests(self) -> None:
        """Carries out and answers the requests of the main process that have arrived since the last call."""
        while (request := self._handover.take_request()) is not None:
            answer = self._saver.answer(request)
            if isinstance(answer, SettingsTaken):
                self._others_differ = True
                self.publish()
            if answer is not None:
                self._send(answer)

    def write_last_snapshots(self) -> None:
        """After the last iteration: writes the snapshots that the main process has requested, and drops all
        other requests, for which it is too late."""
        while (request := self._handover.take_request()) is not None:
            if isinstance(request, SnapshotRequest) and request.name != DONATION:
                answer = self._saver.answer(request)
                assert answer is not None
                self._send(answer)

    def count_frames(self, env_frames: int) -> None:
        """With --sampler_only: counts and reports env frames as if they had been trained on."""
        self._learner.env_frames += env_frames
        self.report({})

    def report(self, summaries: Mapping[str, float]) -> None:
        """Sends the progress of the training, with summaries by tag, to the main process."""
        learner = self._learner
        report = TrainReport(
            learner.policy_id,
            learner.version,
            learner.env_frames,
            learner.samples,
            summaries or None,
        )
        self._send(report)
        if summaries:
            seconds = np.interp(learner.version, SUMMARY_STEPS, SUMMARY_SECONDS)
            self._time_to_summarise = Every(float(seconds))

    def report_time(self) -> None:
        """In the batching thread, which calls this method often: reports, every REPORT_SECONDS, the share of
        time that the trainer thread spends on each activity."""
        if not self._time_to_report():
            return
        with self._clock_lock:
            self._clock.lap(self._activity)
            shares = {"wait": 0.0, **self._clock.take_shares()}
        shares["memory_mb"] = cpu.rss_mb()
        self._send(StatsReport("learner", self._learner.policy_id, shares))


class LateWeights:
    """Delays the publication of weights by `lag` SGD steps, for --forced_policy_lag; 0 for no delay."""

    def __init__(self, lag: int):
        self._lag = lag
        self._held: deque[Weights] = deque()  # the oldest, which act now, first

    def newest_to_act(self, learned: Weights) -> Weights:
        """Stores the learner's present weights, and returns the weights to act with: the newest that are at
        least `lag` SGD steps old, or the oldest if all are newer.

        learned: the learner's present weights. Must be called after each iteration of training.
        """
        if self._lag == 0:
            return learned
        if self._held and self._held[0].stamp.generation != learned.stamp.generation:
            self._held.clear()  # samples of a former generation are not trained on
        state = {name: array.copy() for name, array in learned.state.items()}
        self._held.append(Weights(state, learned.stamp))
        while len(self._held) > 1 and self._held[1].stamp.version <= learned.stamp.version - self._lag:
            self._held.popleft()
        return self._held[0]
