"""A process with a few EnvVectors: it steps one of them while the others wait for their actions."""

import collections
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sample_factory.exchange.channels import NO_ENV, Channels
from sample_factory.exchange.messages import (
    MAX_REPORTS,
    ActionsReady,
    ComponentReady,
    Incident,
    NewShaping,
    NewTrainingInfo,
    Opponents,
    Report,
    RolloutMessage,
    StatsReport,
    Trajectories,
    rows_of_messages,
)
from sample_factory.exchange.run_plan import EnvPlan
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.clock import Clock, Every
from sample_factory.runtime.cpu import private_mb, rss_mb
from sample_factory.runtime.log import log
from sample_factory.runtime.queues import MessageTooLarge
from sample_factory.sampling.matchmaking.matchmaking import PastSelves
from sample_factory.sampling.rollout.env_setup import EnvSetup
from sample_factory.sampling.rollout.env_vector import EnvVector
from sample_factory.sampling.rollout.guarded_env import SimulatorWatch

POLL_SECONDS = 0.002  # between attempts to continue parked splits: nothing announces a free buffer
REPORT_SECONDS = 5.0
LEAK_MB = 200.0  # a doubled memory is reported if it has grown by more than this


@dataclass
class Split:
    """Holds the state of one split of a rollout worker: its EnvVector, and what it waits for before its next
    step.

    num_awaited: number of requests of the current step that have not been answered yet.
    is_parked: whether the split waits for free buffers, for the learner, or for the end of a pause.
    undelivered: reward shaping and training info to be sent to the envs when their current step has ended.
    """

    vector: EnvVector
    index: int
    num_awaited: int = 0
    is_parked: bool = True
    undelivered: list[NewShaping | NewTrainingInfo] = field(default_factory=list)


class RolloutWorker:
    """In the child: steps the envs of one rollout worker; `run` calls `step` until the process is asked to
    stop. clock: measures what the worker spends its time on; an inline sampler adds its pauses."""

    def __init__(
        self,
        plan: EnvPlan,
        index: int,
        buffers: TrajectoryBuffers,
        channels: Channels,
        context: ChildContext,
    ):
        self._index = index
        self._incarnation = int(buffers.incarnations[index])
        self._topology = buffers.topology
        self._channels = channels
        self._inbox = channels.inboxes[index]
        self._iterations = channels.progress["iterations"]
        # By split. A worker that replaces a dead one goes on from there.
        self._num_rollouts = channels.progress["rollouts"][index]
        self._stepping = channels.progress["stepping"][index : index + 1]
        self._stopping = context.stopping
        self._keep_going = context.keep_going
        self._beat = context.beat
        self.clock = Clock()
        self._time_to_report = Every(REPORT_SECONDS)
        # Memory when the worker was ready, or at the last report of growth; None: it is not watched.
        self._reference_mb: float | None = None
        # Each step of the only env of this process is shown, also one in which no policy acts.
        self._is_single = plan.is_single
        self._past_selves = PastSelves(plan.past_share)
        self._pause_seconds = plan.pause_seconds * index / self._topology.num_workers
        self._not_before = -math.inf  # time.monotonic() before which no split takes a step
        self._in_background: collections.deque[Split] = collections.deque()  # step in background threads
        setup = EnvSetup(plan, index, buffers, self._past_selves, self._stepping, self._report, context.beat)
        # The main process sent messages before it started this worker. Answers among them are to an earlier
        # incarnation.
        values: list[NewShaping | NewTrainingInfo] = []
        for message in self._inbox.get_many(timeout=0.0):
            match message:
                case NewShaping() | NewTrainingInfo():
                    values.append(message)
                case Opponents():  # before the first matches are drawn
                    self._past_selves.update(message)
        self._splits = [
            Split(setup.make_vector(split, values), split) for split in range(self._topology.num_splits)
        ]
        self._compare_starts(channels.progress["starts"])
        self._num_reported = self._num_samples()
        self._stepping[0] = NO_ENV
        self._report(ComponentReady("rollout_worker", f"worker {index}: envs are ready", is_detail=True))

    @property
    def steps_simulators(self) -> bool:
        """Whether the envs of this worker are batched simulators."""
        return any(env.is_simulator for split in self._splits for env in split.vector.envs)

    def _compare_starts(self, starts: np.ndarray) -> None:
        """Logs a warning if the simulator of another worker has begun with the same observations. starts:
        [num_workers] int64 in shared memory, a checksum of each worker's first observations, 0 before its
        first reset; this call writes this worker's entry."""
        vector = self._splits[0].vector
        if vector.envs[0].is_simulator and vector.envs[0].num_agents > 1:
            starts[self._index] = vector.checksum_of_starts()
            same = np.flatnonzero((starts == starts[self._index]) & (starts != 0))
            if len(same) > 1:
                log.warning(
                    "The simulators of workers %s begin with the same observations, as with the same random "
                    "numbers: make_env should use (cfg.seed or 0) + env_config.env_id",
                    " and ".join(map(str, same)),
                )

    def run(self) -> None:
        """Steps the envs until the process is asked to stop, then closes them."""
        self.watch_process()
        try:
            while not self._stopping.is_set():
                self.step(timeout=0.1)
        finally:
            self.close()

    def watch_process(self) -> None:
        """Starts to watch this process: ends the process when it waits for a simulator that has died, and
        reports when its memory doubles.

        Not called in a process that also learns (--serial_mode), where SGD steps take memory.
        """
        self._reference_mb = private_mb()
        envs = [env for split in self._splits for env in split.vector.envs]
        SimulatorWatch(envs, self._stepping, self._stopping).start()

    def step(self, timeout: float) -> bool:
        """Handles the messages that arrive within `timeout` seconds, and continues parked splits if possible.

        If splits step in background threads, completes the step of only one of them per call, so that
        meanwhile other splits can start their steps, and an inline sampler can compute actions.

        Returns whether there was anything to do.
        """
        in_background = self._in_background.popleft() if self._in_background else None
        messages = self._receive(timeout if in_background is None else 0.0)
        for message in messages:
            self._handle(message)
        if in_background is not None:
            self._step_envs(in_background)
            self._continue(in_background)
        parked = [split for split in self._splits if split.is_parked]
        for split in parked:
            self._continue(split)
        self._report_when_due()
        has_resumed = not all(split.is_parked for split in parked)
        return bool(messages) or in_background is not None or has_resumed

    def close(self) -> None:
        """Closes all envs, and drops the references to them. Envs are part of a reference cycle, which Python
        does not collect at exit, so libraries such as nanobind would report their objects as leaked."""
        for split in self._splits:
            split.vector.close()
        self._stepping[0] = NO_ENV
        self._splits.clear()

    def _receive(self, timeout: float) -> Sequence[RolloutMessage]:
        self._beat()
        self.clock.lap("other")
        is_any_parked = any(split.is_parked for split in self._splits)
        messages = self._inbox.get_many(timeout=min(timeout, POLL_SECONDS) if is_any_parked else timeout)
        self.clock.lap("wait")
        return messages

    def _handle(self, message: RolloutMessage) -> None:
        match message:
            case ActionsReady(index, _, incarnation):
                # An answer to an earlier incarnation, which has died, is ignored.
                if incarnation == self._incarnation:
                    self._receive_actions(self._splits[index])
            case NewShaping() | NewTrainingInfo():
                for split in self._splits:
                    split.undelivered.append(message)
                    self._deliver(split)
            case Opponents():
                self._past_selves.update(message)

    def _deliver(self, split: Split) -> None:
        """Sends reward shaping and training info that the worker has received to a split's envs; does nothing
        while these are in the middle of a step."""
        if split.vector.is_stepping:
            return
        for message in split.undelivered:
            split.vector.values.update(message)
        split.undelivered.clear()

    def _receive_actions(self, split: Split) -> None:
        split.num_awaited -= 1
        if split.num_awaited > 0:
            return
        if split.vector.steps_in_background:
            split.vector.send()
            self._in_background.append(split)
        else:
            self._step_envs(split)
            self._continue(split)

    def _continue(self, split: Split) -> None:
        """Requests the actions of a split's next step. A step without active agents is taken at once, and
        followed by the next one. Parks the split if it has to wait for free buffers, the learner, or the end
        of a pause."""
        while self._keep_going():
            split.is_parked = not self._can_step(split)
            if split.is_parked:
                return
            requests = split.vector.requests(self._incarnation)
            if requests:
                split.num_awaited = len(requests)
                for policy_id, request in requests:
                    self._channels.requests[policy_id].put(request, self._keep_going)
                self.clock.lap("request")
                return
            if split.vector.is_done:
                split.is_parked = True
                return
            self._step_envs(split)
            if self._is_single:
                split.is_parked = True
                return

    def _can_step(self, split: Split) -> bool:
        """Finishes the split's rollout if it is full. Returns whether the split can take its next step; False
        while it waits for free buffers, for the learner (--async_rl=False), or for the end of a pause."""
        if split.vector.memory.is_full and not self._finish_rollout(split):
            return False
        if time.monotonic() < self._not_before:
            return False
        # With --async_rl=False, a split samples for iteration i after the learner has finished iteration
        # i - 1; with --sample_ahead, after iteration i - 2.
        share = self._topology.rollouts_per_iteration
        if share is None:
            return True
        num_sampled = self._num_rollouts[split.index] // share
        return bool(num_sampled <= self._iterations[0] + self._topology.samples_ahead)

    def _step_envs(self, split: Split) -> None:
        split.vector.step()
        self._stepping[0] = NO_ENV
        self._deliver(split)
        self.clock.lap("env_step")
        reports = split.vector.log.take_reports()
        for first in range(0, len(reports), MAX_REPORTS):
            self._report_all(reports[first : first + MAX_REPORTS])

    def _report_all(self, reports: list[Report]) -> None:
        """Sends reports to the main process in one message, or in several if one would be too large."""
        try:
            self._report(reports)
        except MessageTooLarge:
            if len(reports) == 1:
                raise
            half = len(reports) // 2
            self._report_all(reports[:half])
            self._report_all(reports[half:])

    def _finish_rollout(self, split: Split) -> bool:
        """Sends tickets for the split's full buffers to the learners, and begins the next rollout. Returns
        False, and does nothing, while there are too few free buffers."""
        full = split.vector.finish_rollout()
        if full is None:
            return False
        buffer_indices, acted = full
        for policy_id, has_acted in enumerate(acted.T):
            if has_acted.any():
                for indices in rows_of_messages(buffer_indices[has_acted]):
                    tickets = Trajectories(indices.tolist())
                    self._channels.learners[policy_id].put(tickets, self._keep_going)
        # After the tickets: a rollout without tickets is lost if this process dies, and sampled again.
        self._num_rollouts[split.index] += 1
        self._pause_once()
        return True

    def _pause_once(self) -> None:
        """After the worker's first rollout: begins a pause, longer in workers with a higher index, to
        decorrelate the workers. Does not sleep, since an inline sampler has other workers to serve."""
        if self._pause_seconds > 0:
            self._not_before = time.monotonic() + self._pause_seconds
            self._pause_seconds = 0.0

    def _report_when_due(self) -> None:
        if not self._time_to_report():
            return
        shares = self.clock.take_shares()
        shares["memory_mb"] = rss_mb()
        num_samples = self._num_samples()
        longest = max(split.vector.log.longest_episode for split in self._splits)
        self._report(StatsReport("rollout_worker", 0, shares, num_samples - self._num_reported, longest))
        self._num_reported = num_samples
        if self._reference_mb is not None:
            self._report_memory_growth(self._reference_mb)

    def _report_memory_growth(self, before: float) -> None:
        """Reports an incident if the memory of this process has grown to more than twice `before`, in MB."""
        now = private_mb()
        if now > 2 * before + LEAK_MB:
            self._reference_mb = now
            text = f"worker {self._index} has grown from {before:,.0f} to {now:,.0f} MB: do its envs leak?"
            self._report(Incident("memory_growth", text))

    def _num_samples(self) -> int:
        """Returns the number of agent steps so far, including the steps of dead workers that this worker
        replaces."""
        topology = self._topology
        rollouts = int(self._num_rollouts.sum())
        steps = rollouts * topology.rollout + sum(split.vector.memory.step for split in self._splits)
        return steps * topology.agents_per_split

    def _report(self, report: Report | list[Report]) -> None:
        self._channels.reports.put(report, self._keep_going)
