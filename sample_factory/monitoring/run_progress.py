"""How far a whole run has come: frames, speed, the time left."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sample_factory.config.flags import NEVER
from sample_factory.config.monitoring_flags import MonitoringFlags
from sample_factory.exchange.messages import StatsReport
from sample_factory.monitoring.bottleneck import EnvCounts
from sample_factory.monitoring.console import FirstBatch, Status
from sample_factory.monitoring.policy_progress import PolicyProgress
from sample_factory.monitoring.run_summary import RunSummary
from sample_factory.runtime.clock import RateWindow

FPS_SECONDS = (10.0, 60.0, 300.0)
STEADY_SECONDS = 60.0


class RunSizes(NamedTuple):
    """Counts of a run that its monitor needs.

    num_agents: of all policies. first_batch: samples of all policies that are taken before each of them can
    have its first batch, about. max_episode_steps: after which an episode ends; None if it is not known.
    """

    num_policies: int
    frameskip: int
    num_agents: int
    first_batch: int
    envs: EnvCounts
    max_episode_steps: int | None = None


class RunProgress:
    """Counters and rates of this run; frames and progress include the runs that it resumes.

    policies: their counters, updated by the caller.
    num_agents: in all envs.
    started, stopped: when all workers were ready, and when the run began to save and stop; None before.
    longest_episode: steps of the longest episode that has been reported so far while it was being played.
    """

    def __init__(self, flags: MonitoringFlags, sizes: RunSizes, now: Callable[[], float]):
        self._flags = flags
        self._sizes = sizes
        self._now = now
        self.num_agents = sizes.num_agents
        num_policies = sizes.num_policies
        agents = sizes.num_agents // num_policies
        self.policies = [PolicyProgress(flags.stats_avg, agents) for _ in range(num_policies)]
        self.longest_episode = 0
        self._sampled = 0  # agent steps reported by rollout workers
        self._frame_rates = RateWindow(FPS_SECONDS)
        self._sampling_rates = RateWindow(FPS_SECONDS)
        # Frames are counted by whole batches: these rates end at the moment when the last was counted.
        self._steady_rates = RateWindow((STEADY_SECONDS,))
        self._last_steady = (-math.inf, -1)  # time and frames of the last sample of these rates
        self._sample_rates = [RateWindow((STEADY_SECONDS,)) for _ in range(num_policies)]
        self.started: float | None = None
        self.stopped: float | None = None

    @property
    def seconds(self) -> float:
        """Time of this run so far."""
        if self.started is None:
            return 0.0
        return (self._now() if self.stopped is None else self.stopped) - self.started

    @property
    def total_frames(self) -> int:
        """Env frames of all policies in all runs of the experiment."""
        return sum(policy.env_frames for policy in self.policies)

    @property
    def new_frames(self) -> int:
        """Env frames of all policies in this run."""
        return sum(policy.new_frames for policy in self.policies)

    @property
    def is_done(self) -> bool:
        """Whether all policies have reached --train_for_env_steps, or --train_for_seconds have passed."""
        if self.seconds >= self._flags.train_for_seconds:
            return True
        return all(policy.env_frames >= self._flags.train_for_env_steps for policy in self.policies)

    def sampled(self, report: StatsReport) -> None:
        """Adds the counts of a rollout worker."""
        self._sampled += report.samples
        self.longest_episode = max(self.longest_episode, report.longest_episode)

    def measure(self) -> None:
        """Adds a point to all rates; to be called about every second."""
        now = self._now()
        self._frame_rates.add(now, self.new_frames)
        self._sampling_rates.add(now, self._sampled * self._sizes.frameskip)
        for rates, policy in zip(self._sample_rates, self.policies):
            rates.add(now, policy.new_samples)
        then, frames = self._last_steady
        if self.new_frames > frames or now - then > STEADY_SECONDS:
            self._last_steady = (now, self.new_frames)
            self._steady_rates.add(now, self.new_frames)

    def fps(self) -> Mapping[float, float]:
        """Returns length of a window in seconds -> env frames per second; NaN where they are not known."""
        return self._frame_rates.rates()

    def samples_per_second(self, policy_id: int) -> float:
        """Returns the mean over the last minute."""
        return self._sample_rates[policy_id].rates()[STEADY_SECONDS]

    def status(self, bottleneck: str) -> Status:
        """Returns the state of the run now. bottleneck: a text; may be empty."""
        self.measure()
        is_first_batch = self.new_frames == 0
        fps = (self._sampling_rates if is_first_batch else self._frame_rates).rates()
        steady = self._sampling_rates if is_first_batch else self._steady_rates
        # The shortest window is always shown. A longer one says the same until the run has covered it.
        covered = {window: fps[window] for window in fps if window <= max(self.seconds, FPS_SECONDS[0])}
        limit = self._flags.train_for_env_steps
        return Status(
            self.total_frames,
            None if limit >= NEVER else limit * len(self.policies),
            covered,
            steady.rates()[STEADY_SECONDS],
            self._progress,
            self._seconds_left(),
            bottleneck,
            self.policies,
            FirstBatch(self._sampled, self._sizes.first_batch) if is_first_batch else None,
        )

    def summary(self, incidents: Mapping[str, int]) -> RunSummary:
        """Returns the results of the run. incidents: counts by kind."""
        return RunSummary(
            self.new_frames,
            self.total_frames,
            self.seconds,
            self.new_frames / self.seconds if self.seconds else 0.0,
            self._progress,
            incidents,
            self.policies,
        )

    @property
    def _progress(self) -> float | None:
        limit = self._flags.train_for_env_steps
        if limit >= NEVER:
            return None
        return sum(min(policy.env_frames, limit) for policy in self.policies) / (limit * len(self.policies))

    def _seconds_left(self) -> float | None:
        """Returns the seconds to the first limit, at the `steady_fps`; None if there is none."""
        estimates: list[float] = []
        limit = self._flags.train_for_env_steps
        fps = self._steady_rates.rates()[STEADY_SECONDS]
        if limit < NEVER and fps > 0:
            estimates.append(sum(max(0, limit - policy.env_frames) for policy in self.policies) / fps)
        if self._flags.train_for_seconds < NEVER:
            estimates.append(max(0.0, self._flags.train_for_seconds - self.seconds))
        return min(estimates, default=None)
