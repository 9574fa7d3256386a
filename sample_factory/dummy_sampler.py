"""Random actions on every core, without a network: the upper bound on throughput.

python -m sample_factory.dummy_sampler --env=doom_benchmark --num_workers=8 --num_envs_per_worker=16
"""

import dataclasses
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sample_factory.config.flags import flag
from sample_factory.config.sections import ROLLOUT_WORKER_NICENESS

if TYPE_CHECKING:
    from sample_factory.config.config import Config
    from sample_factory.envs.env_registry import EnvFamily
    from sample_factory.runtime.child import Child
    from sample_factory.runtime.shared_arrays import SharedArrays
    from sample_factory.runtime.supervisor import StopSignals, Supervisor

REPORT_SECONDS = 5.0
POLL_SECONDS = 0.05
STOP_GRACE_SECONDS = 10.0
NUM_RANDOM_ACTIONS = 1024  # drawn beforehand: drawing is no part of what is measured
CACHE_LINE = 8  # int64 numbers; each worker counts in a line of its own


@dataclass(frozen=True)
class DummySamplerFlags:
    """Random sampling: when to stop."""

    sample_env_frames: int = flag(2_000_000_000, "stop after this many env frames in total", at_least=1)
    sample_env_frames_per_worker: int = flag(
        1_000_000_000, "a worker ends after this many env frames", at_least=1
    )
    timeout_seconds: int = flag(600, "stop after this many seconds", at_least=1)
    sampler_worker_gpus: tuple[int, ...] = flag((), "GPUs that the workers see, in turn; empty: all")


class WorkerThroughput(NamedTuple):
    """What one worker did."""

    env_frames: int
    seconds: float

    @property
    def fps(self) -> float:
        return self.env_frames / self.seconds if self.seconds > 0 else 0.0


class Throughput(NamedTuple):
    """What all did, from the moment that every env was ready. Env frames count for each agent."""

    env_frames: int
    seconds: float
    workers: tuple[WorkerThroughput, ...]

    @property
    def fps(self) -> float:
        return self.env_frames / self.seconds if self.seconds > 0 else 0.0


class SamplerSettings(NamedTuple):
    """The few numbers that a worker needs."""

    num_envs: int
    frameskip: int
    max_env_frames: int
    seed: int | None


class RandomSampler:
    """In the child: steps its envs with random actions, one after another, and counts in shared memory.

    progress: "go" [1], nonzero once all workers are to begin; "env_frames" and "microseconds" [workers, 8].
    """

    def __init__(
        self,
        index: int,
        recipe: "tuple[EnvFamily, Any]",
        settings: SamplerSettings,
        progress: "SharedArrays",
        context: Any,
    ):
        from sample_factory.envs.env_info import make_adapted_env
        from sample_factory.envs.protocol import EnvConfig, ObservationRows
        from sample_factory.sampling.rollout.random_actions import RandomActions

        family, cfg = recipe
        self._settings, self._progress, self._stopping = settings, progress, context.stopping
        self._env_frames, self._microseconds = progress["env_frames"][index], progress["microseconds"][index]
        first = index * settings.num_envs
        configs = [EnvConfig(index, i, first + i) for i in range(settings.num_envs)]
        self._envs = [make_adapted_env(family, cfg, config) for config in configs]
        self._rows = [ObservationRows.allocate(env.kinds) for env in self._envs]
        for i, env in enumerate(self._envs):
            seed = None if settings.seed is None else settings.seed + first + i
            env.reset(seed, self._rows[i])
        self._random_actions = RandomActions(
            self._envs[0].kinds, None if settings.seed is None else settings.seed + index
        )
        # Drawing takes as long as a fast env's step, so a table of actions is drawn before; not where it
        # depends on the observation what is allowed.
        self._table = [self._random_actions(self._rows[0]) for _ in range(NUM_RANDOM_ACTIONS)]

    def run(self) -> None:
        """Until it has its frames, or is asked to stop."""
        try:
            while not self._progress["go"][0]:
                if self._stopping.wait(0.001):
                    return
            self._sample()
        finally:
            for env in self._envs:
                env.close()

    def _sample(self) -> None:
        settings, stopping = self._settings, self._stopping
        frames_per_sweep = settings.frameskip * sum(env.num_agents for env in self._envs)
        started, sweep = time.perf_counter(), 0
        while not stopping.is_set() and self._env_frames[0] < settings.max_env_frames:
            actions = [self._actions(i, sweep) for i in range(len(self._envs))]
            for env, action, rows in zip(self._envs, actions, self._rows):
                env.step(action, rows)
            sweep += 1
            self._env_frames[0] += frames_per_sweep
            self._microseconds[0] = (time.perf_counter() - started) * 1e6

    def _actions(self, env: int, sweep: int) -> np.ndarray:
        if self._random_actions.has_masks:
            return self._random_actions(self._rows[env])
        return self._table[(sweep + 37 * env) % NUM_RANDOM_ACTIONS]


def sample(config: "Config", family: "EnvFamily") -> Throughput:
    """In the parent: samples until a limit or a signal, printing the speed.

    config: from `parse_config` with the extra section `dummy_sampler`. Raises ChildFailed.
    """
    from sample_factory.runtime.shared_arrays import ArraySpec, SharedArrays
    from sample_factory.runtime.supervisor import StopSignals, Supervisor

    num_workers = config.sampling.num_workers
    progress = SharedArrays(
        {
            "go": ArraySpec((CACHE_LINE,), np.int64),
            "env_frames": ArraySpec((num_workers, CACHE_LINE), np.int64),
            "microseconds": ArraySpec((num_workers, CACHE_LINE), np.int64),
        }
    )
    workers = [_make_worker(config, family, progress, index) for index in range(num_workers)]
    with StopSignals() as signals, Supervisor(workers) as supervisor:
        supervisor.start_all()
        supervisor.wait_ready(config.sampling.reset_timeout_seconds, signals)
        _watch(supervisor, signals, progress, config.extra["dummy_sampler"])
        supervisor.stop_all(grace_seconds=STOP_GRACE_SECONDS)
    frames, micros = (progress[name][:, 0].tolist() for name in ("env_frames", "microseconds"))
    per_worker = tuple(WorkerThroughput(count, time_ / 1e6) for count, time_ in zip(frames, micros))
    return Throughput(sum(frames), max(worker.seconds for worker in per_worker), per_worker)


def _make_worker(config: "Config", family: "EnvFamily", progress: "SharedArrays", index: int) -> "Child":
    """Pinned, and limited in its threads, like the rollout workers of training."""
    from sample_factory.runtime import cpu
    from sample_factory.runtime.child import Child, ChildOptions

    sampling, flags = config.sampling, config.extra["dummy_sampler"]
    settings = SamplerSettings(
        sampling.num_envs_per_worker,
        config.env.env_frameskip or 1,
        flags.sample_env_frames_per_worker,
        config.run.seed,
    )
    environment = {}
    if sampling.force_envs_single_thread:
        environment = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if flags.sampler_worker_gpus:
        gpus = flags.sampler_worker_gpus
        environment["CUDA_VISIBLE_DEVICES"] = str(gpus[index % len(gpus)])
    cores = cpu.worker_cores(index, sampling.num_workers) if sampling.set_workers_cpu_affinity else None
    niceness = sampling.default_niceness + ROLLOUT_WORKER_NICENESS
    options = ChildOptions(cores, niceness, environment, one_shot=True, own_session=True)
    args = (index, (family, config.namespace()), settings, progress)
    return Child(f"sampler_{index}", RandomSampler, args, options)


def _watch(
    supervisor: "Supervisor", signals: "StopSignals", progress: "SharedArrays", flags: DummySamplerFlags
) -> None:
    """Starts the measurement, reports every 5 s, and returns when it is over. Raises ChildFailed."""
    from sample_factory.runtime.clock import Every

    counters = progress["env_frames"]
    time_to_report = Every(REPORT_SECONDS)
    started = reported = time.monotonic()
    frames_reported = 0
    progress["go"][0] = 1
    while not signals.requested and time.monotonic() - started < flags.timeout_seconds:
        supervisor.wait(POLL_SECONDS, [signals])
        supervisor.check()
        total, now = int(counters[:, 0].sum()), time.monotonic()
        if total >= flags.sample_env_frames or all(child.finished for child in supervisor.children):
            break
        if time_to_report():
            fps = (total - frames_reported) / (now - reported)
            print(f"{now - started:.0f} s: {fps:.0f} FPS, {total} frames", flush=True)
            frames_reported, reported = total, now


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done or stopped, 1 an env or a process failed, 2 bad input."""
    from sample_factory.config.config import ConfigError, parse_config
    from sample_factory.envs.env_registry import UnknownEnvError, resolve_family
    from sample_factory.runtime.child import ChildFailed
    from sample_factory.runtime.log import log, setup_logging

    def family_of(env: str) -> "EnvFamily":
        # There is nothing to overlap with, so the envs are in one group, and any number will do.
        family = resolve_family(env)
        return dataclasses.replace(
            family, defaults={**family.defaults, "num_envs_per_worker": 1, "worker_num_splits": 1}
        )

    arguments = sys.argv[1:] if argv is None else argv
    try:
        config = parse_config(arguments, family_of, extra_sections={"dummy_sampler": DummySamplerFlags})
        setup_logging("main")
        result = sample(config, family_of(config.run.env))
    except (ConfigError, UnknownEnvError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ChildFailed as failure:
        log.error("%s failed: %s", failure.name, failure.reason)
        return 1
    for index, worker in enumerate(result.workers):
        print(f"worker {index}: {worker.env_frames} frames, {worker.fps:.0f} FPS")
    print(f"total: {result.env_frames} frames in {result.seconds:.1f} s, {result.fps:.0f} FPS")
    return 0


if __name__ == "__main__":
    # The classes that travel to the children should come from the module, not from this script.
    from sample_factory.dummy_sampler import main as main_of_module

    sys.exit(main_of_module())
