"""What the stages of a benchmark did: out of their TensorBoard files, their output and their processes."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sample_factory.benchmarking.program import FinishedProgram, Usage
from sample_factory.monitoring.component_stats import KEEP_SECONDS, component_and_stat
from sample_factory.plotting.read_summaries import Moment, read_moments

SUMMARY_SECONDS = 1  # --experiment_summaries_interval of what is to be measured
# A summary of a run, written every SUMMARY_SECONDS from the start of its clock; those of training are written
# when an iteration ends, to which it may come earlier and later.
TAG_OF_RUN = "0_aux/master_process_memory_mb"
TRAINING = "train/"
NOT_A_SHARE = ("memory_mb", "avg_batch_size")
# The lines of `dummy_sampler`.
SAMPLER_PROGRESS = re.compile(r"^(\d+) s: \d+ FPS, (\d+) frames$", re.MULTILINE)
# What `train` says when its learner is ready.
LEARNER = re.compile(r"policy 0 learns (on \S+ in [^,\n]+)")
SAMPLER_TOTAL = re.compile(r"^total: (\d+) frames in ([\d.]+) s", re.MULTILINE)


class NotMeasured(ValueError):
    """A program ran to its end, but too little happened; the message says what."""


class Window(NamedTuple):
    """What is measured, in wall time."""

    begin: float
    end: float


class Counts(NamedTuple):
    """How much the processes of each kind do at once: turns shares of time into milliseconds."""

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
    """The processes of one kind."""

    processes: int
    total_mb: float


class Cores(NamedTuple):
    """How many cores were busy, on average."""

    ours: float
    of_others: float  # with programs that are no part of the measurement


class Stage(NamedTuple):
    """fps: env frames per second, frameskip counted."""

    command: str
    fps: float
    ready_seconds: float | None  # from the command until all processes were up
    first_fps_seconds: float | None  # from the command to the first line that told its FPS
    cores: Cores | None
    memory: Mapping[str, Memory]
    # Component -> name -> Part. Empty when the run was too short for a report of its processes.
    parts: Mapping[str, Mapping[str, Part]] = {}
    rows_per_batch: float | None = None  # observations in one forward pass of a policy worker
    learner: str = ""  # device and precision, e.g. "on cpu in fp32"

    @property
    def waits(self) -> dict[str, float]:
        """Component -> share of its time that it waits for others, as of `describe_bottleneck`."""
        return {component: parts["wait"].share for component, parts in self.parts.items() if "wait" in parts}


def measure_simulation(command: str, program: FinishedProgram, warmup_seconds: float) -> Stage:
    """Of a `dummy_sampler`. It tells its frames every 5 s: the measurement begins with the first such line
    after the warm-up, or, where there is none, with the first frame."""
    lines = [(float(seconds), int(frames)) for seconds, frames in SAMPLER_PROGRESS.findall(program.output)]
    total = SAMPLER_TOTAL.search(program.output)
    if total is None:
        raise NotMeasured("it did not say how many frames it made")
    frames, seconds = int(total[1]), float(total[2])
    warm = [line for line in lines if warmup_seconds > 0 and warmup_seconds <= line[0] < seconds - 1]
    began, frames_before = warm[0] if warm else (0.0, 0)
    if seconds <= began:
        raise NotMeasured("it made no frames")
    ready_seconds, window = None, Window(program.began, program.began)
    if program.sign_seconds is not None:
        ready_seconds = program.sign_seconds - lines[0][0]
        window = Window(program.began + ready_seconds + began, program.began + ready_seconds + seconds)
    fps = (frames - frames_before) / (seconds - began)
    cores = busy_cores(program.usages, window)
    return Stage(command, fps, ready_seconds, program.sign_seconds, cores, memory(program.usages, window))


def measure_run(
    command: str, program: FinishedProgram, experiment_dir: Path, seconds: tuple[float, float], counts: Counts
) -> Stage:
    """Of a `train`, with or without --sampler_only. seconds: of the warm-up and of the measurement."""
    policies = [read_moments(experiment_dir / ".summary" / str(i)) for i in range(counts.learners)]
    regular = [moment for moment in policies[0] if TAG_OF_RUN in moment.scalars]
    if not regular:
        raise NotMeasured("it wrote no summaries")
    started = regular[0].wall_time - SUMMARY_SECONDS
    warm = started + seconds[0]
    window = Window(warm, warm + seconds[1])
    fps = sum(frame_rate(moments, window) for moments in policies)
    stats = _component_stats(policies, window)
    learner = LEARNER.search(program.output)
    return Stage(
        command,
        fps,
        started - program.began,
        program.sign_seconds,
        busy_cores(program.usages, window),
        memory(program.usages, window),
        parts_of_work(stats, fps, counts),
        stats.get("policy_worker", {}).get("avg_batch_size"),
        learner[1] if learner else "",
    )


def frame_rate(moments: Sequence[Moment], window: Window) -> float:
    """Env frames per second of one policy, from the first to the last moment within the window.

    The frames grow by whole iterations of training, which may take seconds. So, where there are two, only
    those moments count at which an iteration has just ended: then no part of one is lost.
    Raises NotMeasured.
    """
    inside = [moment for moment in moments if window.begin <= moment.wall_time <= window.end]
    exact = [moment for moment in inside if any(tag.startswith(TRAINING) for tag in moment.scalars)]
    chosen = exact if len(exact) > 1 else inside
    if len(chosen) < 2 or chosen[-1].step <= chosen[0].step:
        raise NotMeasured("no batch was completed while it was measured: give it more --seconds")
    first, last = chosen[0], chosen[-1]
    return (last.step - first.step) / (last.wall_time - first.wall_time)


def _component_stats(policies: Sequence[Sequence[Moment]], window: Window) -> dict[str, dict[str, float]]:
    """Component -> stat -> mean over its processes and the window."""
    found: dict[str, dict[str, list[float]]] = {}
    for moments in policies:
        inside = [moment for moment in moments if moment.wall_time <= window.end]
        regular = [moment for moment in inside if any(map(component_and_stat, moment.scalars))]
        # Each holds means over the last KEEP_SECONDS, which are not to reach back into the warm-up.
        warm = [moment for moment in regular if moment.wall_time >= window.begin + KEEP_SECONDS]
        for moment in warm or regular[-1:]:
            for tag, value in moment.scalars.items():
                key = component_and_stat(tag)
                if key is not None:
                    found.setdefault(key[0], {}).setdefault(key[1], []).append(value)
    return {
        component: {name: sum(values) / len(values) for name, values in stats.items()}
        for component, stats in found.items()
    }


def parts_of_work(
    stats: Mapping[str, Mapping[str, float]], fps: float, counts: Counts
) -> dict[str, dict[str, Part]]:
    """Component -> name -> Part. Milliseconds are of one agent's step in a rollout worker, of one batch in a
    policy worker and of one iteration in a learner, each process on its own."""
    steps = fps / counts.frameskip  # of agents, in a second
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
    """None if there was no time for two looks at the processes."""
    inside = [usage for usage in usages if window.begin <= usage.wall_time <= window.end]
    if len(inside) < 2:
        return None
    first, last = inside[0], inside[-1]
    seconds = last.wall_time - first.wall_time
    ours = (last.cpu_seconds - first.cpu_seconds) / seconds
    all_ = (last.machine_seconds - first.machine_seconds) / seconds
    return Cores(max(0.0, ours), max(0.0, all_ - ours))


def memory(usages: Sequence[Usage], window: Window) -> dict[str, Memory]:
    """Kind of process -> Memory, when there was most of it in the window."""
    inside = [usage for usage in usages if window.begin <= usage.wall_time <= window.end] or usages[-1:]
    found: dict[str, Memory] = {}
    most = max(inside, key=lambda usage: sum(p.rss_mb for p in usage.processes), default=None)
    for process in most.processes if most else ():
        kind = re.sub(r"(_\d+)+$", "", process.name)
        before = found.get(kind, Memory(0, 0.0))
        found[kind] = Memory(before.processes + 1, before.total_mb + process.rss_mb)
    return found
