"""Steps envs with random actions on every core, without a network."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sample_factory.config.command import Command
from sample_factory.config.config import Config
from sample_factory.config.flags import flag
from sample_factory.config.sampling_flags import ROLLOUT_WORKER_NICENESS
from sample_factory.config.sections import EnvFlags, flags_of
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_registry import resolve_family
from sample_factory.monitoring.figures import Figures, new_figures_file, write_figures
from sample_factory.runtime import cpu
from sample_factory.runtime.child import Child, ChildContext, ChildOptions
from sample_factory.runtime.clock import Every
from sample_factory.runtime.gpu import name_of_gpu
from sample_factory.runtime.shared_arrays import ArraySpec, SharedArrays
from sample_factory.runtime.supervisor import Limits, StopSignals, Supervisor, stop_all

POLL_SECONDS = 0.05
STOP_GRACE_SECONDS = 10.0
NUM_RANDOM_ACTIONS = 1024  # drawn before the measurement, which does not count the time of drawing
CACHE_LINE = 8  # int64 numbers; each worker counts in a cache line of its own


@dataclass(frozen=True)
class RandomSamplerFlags:
    """Random sampling: when to stop."""

    sample_env_frames: int = flag(
        2_000_000_000, "stop after this many env frames of all worker processes together", at_least=1
    )
    sample_env_frames_per_worker: int = flag(
        1_000_000_000, "a worker process ends after this many env frames", at_least=1
    )
    timeout_seconds: int = flag(600, "stop after this many seconds", at_least=1)
    sampler_worker_gpus: tuple[int, ...] = flag(
        (), "indices of the GPUs that environments may use, in turn; all of them if left out", at_least=0
    )


class RandomSampler:
    """In the child: steps the envs of a worker with random actions, one after another, and counts the frames.

    progress: int64 arrays, of which only the first number of a row is used. "go" [8]: nonzero once all
        workers are to begin. "env_frames" and "microseconds" [workers, 8]: frames and time of each worker.
    """

    def __init__(
        self, index: int, family: EnvFamily, config: Config, progress: SharedArrays, context: ChildContext
    ):
        # In the child only: the parent loads no gymnasium.
        from sample_factory.envs.env_info import make_adapted_env
        from sample_factory.envs.protocol import EnvConfig, ObservationRows
        from sample_factory.envs.random_actions import RandomActions

        self._frameskip = config.env.env_frameskip or 1
        self._max_env_frames = config.extra["random_sampler"].sample_env_frames_per_worker
        self._progress = progress
        self._stopping = context.stopping
        num_envs = config.sampling.envs_per_worker
        first = index * num_envs
        cfg = config.namespace()
        env_configs = [EnvConfig(index, i, first + i) for i in range(num_envs)]
        self._envs = [make_adapted_env(family, cfg, env_config) for env_config in env_configs]
        self._rows = [ObservationRows.allocate(env.kinds) for env in self._envs]
        seed = config.run.seed
        for i, env in enumerate(self._envs):
            env.reset(None if seed is None else seed + first + i, self._rows[i])
        self._random_actions = RandomActions(self._envs[0].kinds, None if seed is None else seed + index)
        # Drawing actions takes as long as the step of a fast env, so a table of them is drawn beforehand. It
        # is not used where the allowed actions depend on the observation.
        self._table = [self._random_actions(self._rows[0]) for _ in range(NUM_RANDOM_ACTIONS)]
        self._env_frames = progress["env_frames"][index]
        self._microseconds = progress["microseconds"][index]

    def run(self) -> None:
        """Waits for "go", then samples until --sample_env_frames_per_worker or the request to stop."""
        try:
            while not self._progress["go"][0]:
                if self._stopping.wait(0.001):
                    return
            self._sample()
        finally:
            for env in self._envs:
                env.close()

    def _sample(self) -> None:
        stopping = self._stopping
        frames_per_sweep = self._frameskip * sum(env.num_agents for env in self._envs)
        started = time.perf_counter()
        sweep = 0
        while not stopping.is_set() and self._env_frames[0] < self._max_env_frames:
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


def run_sampler(config: Config) -> None:
    """Runs the command `dummy_sampler`: steps envs with random actions and prints the speed of each
    worker."""
    print("\n".join(sample(config)))


DUMMY_SAMPLER = Command(
    name="dummy_sampler",
    experiment="new",
    description="Steps envs with random actions on every core, without a network. The speed is the upper "
    "bound for training.",
    examples="""
    # How fast is Doom on this machine? Half a minute.
    --env=doom_benchmark --num_envs_per_worker=16 --timeout_seconds=30
    # How fast is a Gymnasium env? Ten seconds.
    --env=gym_CartPole-v1 --timeout_seconds=10
    # On a single core.
    --env=doom_battle --num_workers=1 --timeout_seconds=10
    """,
    run=run_sampler,
    sections={"random_sampler": RandomSamplerFlags},
    # There is no inference to overlap with, so the envs form one split, and any number of them is allowed.
    defaults={"num_envs_per_worker": 1, "worker_num_splits": 1},
    reads=flags_of(EnvFlags)
    | {"env", "cfg", "trust_code"}
    | {"seed", "num_workers", "num_envs_per_worker", "reset_timeout_seconds", "status_interval"}
    | {"set_workers_cpu_affinity", "force_envs_single_thread", "default_niceness", "figures_file"},
    instead={
        "train_for_env_steps": "write --sample_env_frames=N",
        "train_for_seconds": "write --timeout_seconds=N",
        "actor_worker_gpus": "write --sampler_worker_gpus",
    },
)


def sample(config: Config) -> list[str]:
    """In the parent: samples until a limit or a signal, and reports the speed every --status_interval.

    Returns lines with the frames and the speed of each worker and of all workers, counted from when all envs
    are ready. A frame counts once for each agent.

    Raises ConfigError if this account cannot have the GPUs or the priority, and the Failure of a worker that
    fails.
    """
    # Imported here: launch.checks loads Gymnasium, which takes time, and the help does not need it.
    from sample_factory.launch.checks import check_workers

    sampling = config.sampling
    gpus = config.extra["random_sampler"].sampler_worker_gpus
    check_workers(sampling.default_niceness, "--sampler_worker_gpus", gpus)
    num_workers = sampling.num_workers
    progress = SharedArrays(
        {
            "go": ArraySpec((CACHE_LINE,), np.int64),
            "env_frames": ArraySpec((num_workers, CACHE_LINE), np.int64),
            "microseconds": ArraySpec((num_workers, CACHE_LINE), np.int64),
        }
    )
    family = resolve_family(config.env_name)
    workers = [_make_worker(config, family, progress, index) for index in range(num_workers)]
    limits = Limits(start_seconds=config.sampling.reset_timeout_seconds)
    with StopSignals() as signals, Supervisor(workers, limits=limits) as supervisor:
        supervisor.start_all()
        while not supervisor.is_ready and not signals.requested:
            time.sleep(POLL_SECONDS)
            supervisor.check()
        write = _figures_writer(config)
        write(0.0, 0, None)
        _watch(supervisor, signals, progress, config, write)
        stop_all(supervisor.children, STOP_GRACE_SECONDS)
    env_frames = progress["env_frames"][:, 0].tolist()
    seconds = (progress["microseconds"][:, 0] / 1e6).tolist()
    fps = [frames / each if each > 0 else 0.0 for frames, each in zip(env_frames, seconds)]
    lines = [
        f"worker {index}: {frames} frames, {speed:.0f} FPS"
        for index, (frames, speed) in enumerate(zip(env_frames, fps))
    ]
    total, longest = sum(env_frames), max(seconds)
    mean_fps = total / longest if longest > 0 else 0.0
    write(longest, total, mean_fps)
    return [*lines, f"total: {total} frames in {longest:.1f} s, {mean_fps:.0f} FPS"]


def _make_worker(config: Config, family: EnvFamily, progress: SharedArrays, index: int) -> Child:
    """Makes worker `index`, with cores, threads and priority like those of a rollout worker in training."""
    sampling = config.sampling
    gpus = config.extra["random_sampler"].sampler_worker_gpus
    environment = dict(cpu.ONE_THREAD) if sampling.force_envs_single_thread else {}
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = name_of_gpu(gpus[index % len(gpus)])
    cores = cpu.worker_cores(index, sampling.num_workers) if sampling.set_workers_cpu_affinity else None
    niceness = sampling.default_niceness + ROLLOUT_WORKER_NICENESS
    options = ChildOptions(cores, niceness, environment, one_shot=True, own_session=True)
    return Child(f"sampler_{index}", RandomSampler, (index, family, config, progress), options)


def _figures_writer(config: Config) -> Callable[[float, int, float | None], None]:
    """Returns a function (seconds, env_frames, fps) that appends these figures to --figures_file, if given.
    fps: over the last --status_interval; None if unknown."""
    path = config.monitoring.figures_file
    if path is None:
        return lambda seconds, env_frames, fps: None
    file = new_figures_file(path)

    def write(seconds: float, env_frames: int, fps: float | None) -> None:
        by_window = {} if fps is None else {f"{config.monitoring.status_interval:g}": fps}
        write_figures(file, Figures(time.time(), seconds, env_frames, 0, by_window, (), {}, ()))

    return write


def _watch(
    supervisor: Supervisor,
    signals: StopSignals,
    progress: SharedArrays,
    config: Config,
    write: Callable[[float, int, float | None], None],
) -> None:
    """Starts the sampling, and reports the speed until a limit or a signal. `write`: function that
    `_figures_writer` returns; called with each report. Raises the Failure of a worker that fails."""
    flags: RandomSamplerFlags = config.extra["random_sampler"]
    is_due = Every(config.monitoring.status_interval)
    started = reported_at = time.monotonic()
    reported_frames = 0
    progress["go"][0] = 1
    while not signals.requested and time.monotonic() - started < flags.timeout_seconds:
        time.sleep(POLL_SECONDS)
        supervisor.check()
        env_frames = int(progress["env_frames"][:, 0].sum())
        if env_frames >= flags.sample_env_frames or all(child.finished for child in supervisor.children):
            return
        if is_due():
            now = time.monotonic()
            fps = (env_frames - reported_frames) / (now - reported_at)
            print(f"{now - started:.0f} s: {fps:.0f} FPS, {env_frames} frames", flush=True)
            write(now - started, env_frames, fps)
            reported_frames, reported_at = env_frames, now
