"""A process with a few EnvVectors: it steps one while the others await their actions."""

import collections
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.exchange.channels import NO_ENV, Channels
from sample_factory.exchange.messages import (
    ActionsReady,
    ComponentReady,
    Incident,
    NewShaping,
    Opponents,
    StatsReport,
    Trajectories,
)
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.clock import Clock, Every
from sample_factory.runtime.cpu import rss_mb
from sample_factory.sampling.matchmaking.matchmaker import Matchmaker, PastSelves
from sample_factory.sampling.rollout.env_vector import EnvVector, FullTrajectory
from sample_factory.sampling.rollout.guarded_env import GuardedEnv
from sample_factory.sampling.rollout.leak_watch import LeakWatch
from sample_factory.sampling.rollout.process_watch import ProcessWatch
from sample_factory.sampling.rollout.random_actions import RandomActions
from sample_factory.sampling.settings import RolloutWorkerArgs

MAX_RANDOM_ROLLOUTS = 8  # decorrelation: each env begins with up to this many rollouts of random actions
POLL_SECONDS = 0.002  # while a split waits for something that sends no message
REPORT_SECONDS = 5.0


class RolloutWorker:
    """In the child: owns the envs of one worker. `run` loops `step` until asked to stop."""

    def __init__(
        self,
        args: RolloutWorkerArgs,
        buffers: TrajectoryBuffers,
        channels: Channels,
        context: ChildContext,
    ):
        worker_index, family, cfg, settings = args
        self._index, self._settings, self._stopping = worker_index, settings, context.stopping
        self._keep_going, self._beat = context.keep_going, context.beat
        self._buffers, self._channels = buffers, channels
        self._stepping = self._channels.progress["stepping"][worker_index : worker_index + 1]
        self._topology = self._buffers.topology
        self._inbox = self._channels.inboxes[worker_index]
        self._rng = np.random.default_rng([settings.seed, worker_index])
        self._clock, self._time_to_report = Clock(), Every(REPORT_SECONDS)
        self._past_selves = PastSelves(settings.past_share)
        self._vectors = [self._make_vector(split, family, cfg) for split in range(self._topology.num_splits)]
        self._awaited = [0] * len(self._vectors)  # policies whose outputs a split still waits for
        self._parked: set[int] = set()  # splits that wait for free buffers or for the learner
        # A worker that replaces a dead one takes part from the present iteration on.
        done = int(self._channels.progress["iterations"][0])
        self._rollouts = [done * (self._topology.rollouts_per_iteration or 0)] * len(self._vectors)
        self._slept = False
        self._leak_watch = LeakWatch(worker_index)
        self._incarnation = os.getpid()
        self._started = False
        self._stepping[0] = NO_ENV
        ready = ComponentReady("rollout_worker", f"worker {worker_index}: envs are ready")
        self._channels.reports.put(ready, self._keep_going)

    def run(self) -> None:
        """Until asked to stop: serve the splits that are ready, one after another."""
        self.watch_simulators()
        try:
            while not self._stopping.is_set():
                self.step(timeout=0.1)
        finally:
            self.close()

    def watch_simulators(self) -> None:
        """From now on this process ends itself rather than wait for a dead one."""
        envs = [env for vector in self._vectors for env in vector.envs]
        ProcessWatch(envs, self._stepping, self._stopping).start()

    def step(self, timeout: float) -> bool:
        """Serves every split that can go on; waits at most `timeout` seconds for one. True if any did."""
        self._beat()
        if not self._started:
            self._started = True
            self._parked.update(range(len(self._vectors)))
        self._clock.lap("other")
        messages = self._inbox.get_many(timeout=min(timeout, POLL_SECONDS) if self._parked else timeout)
        self._clock.lap("wait")
        for message in messages:
            match message:
                case ActionsReady():
                    self._answered(message)
                case NewShaping(policy_id, shaping):
                    for vector in self._vectors:
                        vector.set_shaping(policy_id, shaping)
                case Opponents():
                    self._past_selves.update(message)
        parked = tuple(self._parked)
        for split in parked:
            self._go_on(split)
        if self._time_to_report():
            self._report_stats()
        return bool(messages) or len(self._parked) < len(parked)

    def close(self) -> None:
        for vector in self._vectors:
            vector.close()

    def _answered(self, message: ActionsReady) -> None:
        if message.incarnation != self._incarnation:
            return  # an answer to a predecessor with this index
        self._awaited[message.split] -= 1
        if self._awaited[message.split] == 0:
            self._step_vector(message.split)
            self._go_on(message.split)

    def _step_vector(self, split: int) -> None:
        vector = self._vectors[split]
        vector.step()
        self._stepping[0] = NO_ENV
        self._clock.lap("env_step")
        for report in vector.log.reports:
            self._channels.reports.put(report, self._keep_going)
        vector.log.reports.clear()

    def _go_on(self, split: int) -> None:
        """Asks for the actions of the coming step. Parks the split if it
        must wait for buffers or for the learner."""
        vector = self._vectors[split]
        while self._keep_going():
            can_go_on = not vector.rollout_is_full or self._finish_rollout(split)
            if not can_go_on or self._must_wait_for_learner(split):
                self._parked.add(split)
                return
            self._parked.discard(split)
            requests = vector.requests(self._incarnation)
            if requests:
                break
            self._step_vector(split)  # no agent is active
        else:
            return
        self._awaited[split] = len(requests)
        for policy, request in requests:
            self._channels.requests[policy].put(request, self._keep_going)
        self._clock.lap("request")

    def _finish_rollout(self, split: int) -> bool:
        finished = self._vectors[split].finish_rollout()
        if finished is None:
            return False
        self._send(finished)
        self._rollouts[split] += 1
        if not self._slept:
            self._slept = True
            self._sleep(self._settings.decorrelate_seconds * self._index / self._topology.num_workers)
        return True

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._keep_going():
            self._beat()
            self._stopping.wait(min(1.0, end - time.monotonic()))

    def _must_wait_for_learner(self, split: int) -> bool:
        """With --async_rl=False: this split's share of the iteration is
        delivered, and not yet learned from."""
        share = self._topology.rollouts_per_iteration
        return share is not None and self._rollouts[split] // share > self._channels.progress["iterations"][0]

    def _send(self, finished: Sequence[FullTrajectory]) -> None:
        tickets: dict[int, list[int]] = collections.defaultdict(list)
        for trajectory in finished:
            for policy in trajectory.policy_ids:
                tickets[policy].append(trajectory.buffer)
        for policy, buffers in tickets.items():
            self._channels.learners[policy].put(Trajectories(buffers), self._keep_going)

    def _report_stats(self) -> None:
        shares = self._clock.take_shares()
        shares["memory_mb"] = rss_mb()
        self._channels.reports.put(StatsReport("rollout_worker", 0, shares), self._keep_going)
        leak = self._leak_watch.look()
        if leak is not None:
            self._channels.reports.put(leak, self._keep_going)

    def _make_vector(self, split: int, family: EnvFamily, cfg: Any) -> EnvVector:
        topology, settings = self._topology, self._settings
        first = split * topology.envs_per_split
        indices = range(first, first + topology.envs_per_split)
        envs_per_worker = topology.envs_per_split * topology.num_splits
        configs = [EnvConfig(self._index, i, self._index * envs_per_worker + i) for i in indices]
        envs = [self._make_env(family, cfg, config) for config in configs]
        rules = topology.num_policies, topology.kind_of_agent, settings.mix_policies
        matchmakers = [Matchmaker(*rules, self._rng, self._past_selves) for _ in envs]
        vector = EnvVector(envs, matchmakers, self._buffers, (self._index, split), settings.reward_rule)
        seed = int(self._rng.integers(2**31))
        random_actions = RandomActions(envs[0].kinds, seed)
        random_steps = [self._num_random_steps() for _ in indices]
        vector.reset([self._env_seed(config) for config in configs], random_steps, random_actions)
        return vector

    def _make_env(self, family: EnvFamily, cfg: Any, config: EnvConfig) -> GuardedEnv:
        def make() -> MultiAgentEnv:
            return make_adapted_env(family, cfg, config)

        def tell(text: str) -> None:
            self._channels.reports.put(Incident("env_rebuilds", text), self._keep_going)

        name = f"worker {self._index}: env {config.vector_index} ({cfg.env})"
        return GuardedEnv(make, name, config.vector_index, self._stepping, tell)

    def _env_seed(self, config: EnvConfig) -> int:
        """Below 2**31, which every env accepts."""
        return int(np.random.SeedSequence([self._settings.seed, config.env_id]).generate_state(1)[0] >> 1)

    def _num_random_steps(self) -> int:
        if not self._settings.decorrelate_envs:
            return 0
        return int(self._rng.integers(MAX_RANDOM_ROLLOUTS * self._topology.rollout))
