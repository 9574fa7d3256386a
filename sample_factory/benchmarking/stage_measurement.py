"""Measures the stages of a benchmark by the figures that they wrote and their use of CPU and memory."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sample_factory.benchmarking.program import FinishedProgram, Usage
from sample_factory.monitoring.component_stats import KEEP_SECONDS
from sample_factory.monitoring.figures import Figures

OTHERS = "others"  # role of the processes that the run's own processes have started, e.g. simulators
NOT_A_SHARE = ("memory_mb", "avg_batch_size")


class NotMeasured(ValueError):
    """A program ran to its end without enough figures; the message says what is missing."""


class Window(NamedTuple):
    """The time that is measured, in seconds since 1970."""

    begin: float
    end: float


class Counts(NamedTuple):
    """Processes of each kind, and the size of their work: converts shares of time into milliseconds."""

    frameskip: int
    rollout_workers: int
    policy_workers: int  # of all policies
    learners: int
    samples_per_iteration: int  # of one learner


class Part(NamedTuple):
    """One part of the work of one kind of process."""

    share: float  # 0..1 of a process's time
    milliseconds: float | None  # of one step, batch or iteration; None where none was counted


class Memory(NamedTuple):
    """Resident memory of the processes of one role."""

    processes: int
    total_mb: float


class Cores(NamedTuple):
    """Number of cores that were busy, on average."""

    ours: float
    of_others: float  # with programs that are no part of the measurement


class Stage(NamedTuple):
    """fps: env frames per second, frameskip counted."""

    command: str
    fps: float
    ready_seconds: float | None  # from the command until all processes were up
    first_fps_seconds: float | None  # from the command until its first FPS were known
    cores: Cores | None
    memory: Mapping[str, Memory]  # by role of the processes
    # Component -> name -> Part. Empty when the run was too short for a report of its processes.
    parts: Mapping[str, Mapping[str, Part]] = {}
    rows_per_batch: float | None = None  # observations in one forward pass of a policy worker
    learner: str = ""  # device and precision, e.g. "on cpu in fp32"
    device: str = ""  # of the learner, as torch prints it
    agents: int = 0  # in all envs; 0 without a learner

    @property
    def waits(self) -> dict[str, float]:
        """Component -> share of its time that it waits for others, as for `describe_bottleneck`."""
        return {component: parts["wait"].share for component, parts in self.parts.items() if "wait" in parts}


def measure_simulation(
    command: str, program: FinishedProgram, figures: Sequence[Figures], warmup_seconds: float
) -> Stage:
    """Measures a run of `dummy_sampler`.

    The measurement begins with the first figures after the warm-up; if there are none, with the first frame.
    Raises NotMeasured.
    """
    if not figures or figures[-1].seconds <= 0:
        raise NotMeasured("it made no frames")
    start = figures[0]
    end = figures[-1]
    if warmup_seconds > 0:
        warm = [line for line in figures if warmup_seconds <= line.seconds < end.seconds - 1]
        start = next(iter(warm), start)
    window = Window(figures[0].time + start.seconds, figures[0].time + end.seconds)
    return Stage(
        command,
        (end.env_frames - start.env_frames) / (end.seconds - start.seconds),
        figures[0].time - program.began,
        _first_fps_seconds(program, figures),
        busy_cores(program.usages, window),
        memory(program.usages, window, _roles(figures)),
    )


def measure_run(
    command: str,
    program: FinishedProgram,
    figures: Sequence[Figures],
    seconds: tuple[float, float],
    counts: Counts,
) -> Stage:
    """Measures a run of `train`, with or without --sampler_only. Raises NotMeasured.

    seconds: of the warm-up and of the measurement.
    """
    if not figures:
        raise NotMeasured("it wrote no figures")
    warm = figures[0].time + seconds[0]
    window = Window(warm, warm + seconds[1])
    fps = sum(frame_rate(figures, policy_id, window) for policy_id in range(counts.learners))
    stats = _component_stats(figures, window)
    learner = next(iter(figures[-1].learners), None)
    return Stage(
        command,
        fps,
        figures[0].time - program.began,
        _first_fps_seconds(program, figures),
        busy_cores(program.usages, window),
        memory(program.usages, window, _roles(figures)),
        parts_of_work(stats, fps, counts),
        stats.get("policy_worker", {}).get("avg_batch_size"),
        "" if learner is None else f"on {learner.device} in {learner.precision}",
        "" if learner is None else learner.device,
        figures[-1].agents,
    )


def _first_fps_seconds(program: FinishedProgram, figures: Sequence[Figures]) -> float | None:
    return next((line.time - program.began for line in figures if line.env_frames > 0), None)


def _roles(figures: Sequence[Figures]) -> dict[int, str]:
    """Role by process id."""
    return {process.pid: process.role for line in figures for process in line.processes}


def frame_rate(figures: Sequence[Figures], policy_id: int, window: Window) -> float:
    """Returns env frames per second of one policy within the window. Raises NotMeasured.

    The frames grow by whole iterations of training, which may take seconds. So the rate is that between the
    ends of two iterations. If fewer than two end within the window, it is that between two lines.
    """
    counters = [line.policies[policy_id] for line in figures]
    points = sorted({(policy.time, policy.env_frames) for policy in counters})
    inside = [(time, frames) for time, frames in points if window.begin <= time <= window.end]
    if len(inside) < 2:
        lines = [(line.time, policy.env_frames) for line, policy in zip(figures, counters)]
        inside = [(time, frames) for time, frames in lines if window.begin <= time <= window.end]
    if len(inside) < 2 or inside[-1][1] <= inside[0][1]:
        raise NotMeasured("no batch was completed while it was measured: give it more --seconds")
    first_time, first_frames = inside[0]
    last_time, last_frames = inside[-1]
    return (last_frames - first_frames) / (last_time - first_time)


def _component_stats(figures: Sequence[Figures], window: Window) -> dict[str, dict[str, float]]:
    """Component -> stat -> mean over its processes and the window."""
    known = [line for line in figures if line.components and line.time <= window.end]
    # Each line holds means over the last KEEP_SECONDS, which must not include the warm-up.
    warm = [line for line in known if line.time >= window.begin + KEEP_SECONDS]
    found: dict[str, dict[str, list[float]]] = {}
    for line in warm or known[-1:]:
        for component, stats in line.components.items():
            for name, value in stats.items():
                found.setdefault(component, {}).setdefault(name, []).append(value)
    return {
        component: {name: sum(values) / len(values) for name, values in stats.items()}
        for component, stats in found.items()
    }


def parts_of_work(
    stats: Mapping[str, Mapping[str, float]], fps: float, counts: Counts
) -> dict[str, dict[str, Part]]:
    """Returns component -> name -> Part.

    Milliseconds are those of one agent's step in a rollout worker, of one batch in a policy worker and of one
    iteration in a learner, for each process on its own.
    """
    steps = fps / counts.frameskip  # of agents, per second
    rows = stats.get("policy_worker", {}).get("avg_batch_size", 0.0)
    per_second = {
        "rollout_worker": steps / counts.rollout_workers,
        "policy_worker": steps / counts.policy_workers / rows if rows > 0 else 0.0,
        "learner": steps / counts.learners / counts.samples_per_iteration,
    }
    parts: dict[str, dict[str, Part]] = {}
    for component, shares in stats.items():
        rate = per_second[component]
        parts[component] = {
            name: Part(share, 1000 * share / rate if rate > 0 else None)
            for name, share in shares.items()
            if name not in NOT_A_SHARE
        }
    return parts


def busy_cores(usages: Sequence[Usage], window: Window) -> Cores | None:
    """Returns the mean number of busy cores; None if the window has fewer than two usages."""
    inside = [usage for usage in usages if window.begin <= usage.wall_time <= window.end]
    if len(inside) < 2:
        return None
    first = inside[0]
    last = inside[-1]
    seconds = last.wall_time - first.wall_time
    ours = (last.cpu_seconds - first.cpu_seconds) / seconds
    all_ = (last.machine_seconds - first.machine_seconds) / seconds
    return Cores(max(0.0, ours), max(0.0, all_ - ours))


def memory(usages: Sequence[Usage], window: Window, roles: Mapping[int, str]) -> dict[str, Memory]:
    """Returns role -> Memory at the moment of the window when the program used most memory.

    roles: by process id; any other process has the role OTHERS.
    """
    inside = [usage for usage in usages if window.begin <= usage.wall_time <= window.end] or usages[-1:]
    found: dict[str, Memory] = {}
    most = max(inside, key=lambda usage: sum(p.rss_mb for p in usage.processes), default=None)
    for process in most.processes if most else ():
        role = roles.get(process.pid, OTHERS)
        before = found.get(role, Memory(0, 0.0))
        found[role] = Memory(before.processes + 1, before.total_mb + process.rss_mb)
    return found
