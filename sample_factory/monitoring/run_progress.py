"""How far a whole run has come: frames, speed, the time left."""

import math
from collections.abc import Callable, Mapping

from sample_factory.config.flags import NEVER
from sample_factory.config.monitoring_flags import MonitoringFlags
from sample_factory.exchange.messages import StatsReport
from sample_factory.exchange.topology import Topology
from sample_factory.monitoring.policy_progress import PolicyProgress
from sample_factory.runtime.clock import RateWindow

FPS_SECONDS = (10.0, 60.0, 300.0)
STEADY_SECONDS = 60.0


class RunProgress:
    """Counts what a run has sampled and trained on, and measures rates. Frames and progress include the runs
    that it resumes.

    policies: counters of each policy, updated by the caller.
    incidents: counts of handled failures by kind, updated by the caller.
    num_agents: number of agents in all envs.
    started, stopped: when all workers were ready, and when the run began to save and stop, in seconds of the
        clock `now`; None before.
    first_batch: about how many samples are taken before every policy can have its first batch.
    has_batch: whether a learner has its first batch.
    num_sampled: samples (agent steps) that rollout workers have reported.
    longest_episode: steps of the longest episode, among all that were reported while they were played.
    """

    def __init__(
        self,
        flags: MonitoringFlags,
        topology: Topology,
        incidents: Mapping[str, int],
        now: Callable[[], float],
    ):
        self._flags = flags
        self._now = now
        self.incidents = incidents
        self.num_agents = topology.num_agents
        num_policies = topology.num_policies
        agents = topology.num_agents // num_policies
        self.policies = [PolicyProgress(flags.stats_avg, agents) for _ in range(num_policies)]
        # Agents fill their rollouts side by side.
        rounds = math.ceil(num_policies * topology.trajectories_per_batch / topology.num_agents)
        self.first_batch = rounds * topology.num_agents * topology.rollout
        self.has_batch = False
        self.num_sampled = 0
        self.longest_episode = 0
        self._frame_rates = RateWindow(FPS_SECONDS)
        # By policy. Frames are counted by whole batches: these rates end when the last was counted.
        self._steady_rates = [RateWindow((STEADY_SECONDS,)) for _ in range(num_policies)]
        self._last_steady = (-math.inf, -1)  # time and frames of the last sample of these rates
        self._sample_rates = [RateWindow((STEADY_SECONDS,)) for _ in range(num_policies)]
        self.started: float | None = None
        self.stopped: float | None = None

    @property
    def seconds(self) -> float:
        """Duration of this run so far in seconds; 0 before it has started."""
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
    def target(self) -> int | None:
        """Env frames of all policies together at which the run is done; None without
        --train_for_env_steps."""
        limit = self._flags.train_for_env_steps
        return None if limit >= NEVER else limit * len(self.policies)

    @property
    def frames_to_target(self) -> int:
        """Env frames that count towards `target`, of all policies together; of each policy at most
        --train_for_env_steps."""
        limit = self._flags.train_for_env_steps
        return sum(min(policy.env_frames, limit) for policy in self.policies)

    @property
    def share_done(self) -> float | None:
        """Fraction of the target that is reached, 0..1; None without a target."""
        return None if self.target is None else self.frames_to_target / self.target

    @property
    def is_done(self) -> bool:
        """Whether all policies have reached --train_for_env_steps, or --train_for_seconds have passed."""
        if self.seconds >= self._flags.train_for_seconds:
            return True
        return all(policy.env_frames >= self._flags.train_for_env_steps for policy in self.policies)

    def add(self, report: StatsReport) -> None:
        """Adds a rollout worker's number of samples, and updates the longest episode."""
        self.num_sampled += report.samples
        self.longest_episode = max(self.longest_episode, report.longest_episode)

    def measure(self) -> None:
        """Records the current counts, from which all rates are computed; to be called about every second, and
        before rates are read."""
        now = self._now()
        self._frame_rates.add(now, self.new_frames)
        for rates, policy in zip(self._sample_rates, self.policies):
            rates.add(now, policy.new_samples)
        then, frames = self._last_steady
        if self.new_frames > frames or now - then > STEADY_SECONDS:
            self._last_steady = (now, self.new_frames)
            for rates, policy in zip(self._steady_rates, self.policies):
                rates.add(now, policy.new_frames)

    def fps(self) -> Mapping[float, float]:
        """Returns length of a window in seconds -> env frames per second in the window; NaN if not known."""
        return self._frame_rates.rates()

    def steady_fps(self) -> float:
        """Returns the env frames per second over the last minute, or over the whole run if it is shorter; NaN
        before the first batch is trained on. The window ends at the last batch that was counted, since a
        batch may take many seconds."""
        return sum(self._fps_of_policies()) if self.new_frames else math.nan

    def _fps_of_policies(self) -> list[float]:
        return [rates.rates()[STEADY_SECONDS] for rates in self._steady_rates]

    def mean_fps(self) -> float:
        """Returns the env frames per second over the whole of this run; 0 before it has started."""
        return self.new_frames / self.seconds if self.seconds else 0.0

    def samples_per_second(self, policy_id: int) -> float:
        """Returns the samples per second that a policy was trained on over the last minute."""
        return self._sample_rates[policy_id].rates()[STEADY_SECONDS]

    def seconds_left(self) -> float | None:
        """Returns the estimated seconds until the run reaches its first limit, at the speed of the last
        minute; None if not known."""
        estimates: list[float] = []
        limit = self._flags.train_for_env_steps
        # A run is done when its slowest policy is.
        left = [max(0, limit - policy.env_frames) for policy in self.policies]
        training = [(frames, rate) for frames, rate in zip(left, self._fps_of_policies()) if frames]
        if limit < NEVER and all(rate > 0 for _, rate in training):
            estimates.append(max((frames / rate for frames, rate in training), default=0.0))
        if self._flags.train_for_seconds < NEVER:
            estimates.append(max(0.0, self._flags.train_for_seconds - self.seconds))
        return min(estimates, default=None)
