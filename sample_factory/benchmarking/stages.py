"""Runs a stage of the benchmark, the real command in a process of its own, and measures it.

The command writes figures, which give the speed; the use of CPU and memory is looked up from outside.
"""

import collections
import math
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from sample_factory.benchmarking.benchmark_flags import simulation_flags, training_flags
from sample_factory.config.config import Config
from sample_factory.config.flags import NEVER
from sample_factory.monitoring.bottleneck import PARTS
from sample_factory.monitoring.figures import Figures, read_figures
from sample_factory.runtime import cpu
from sample_factory.runtime.failures import CommandFailed
from sample_factory.runtime.gpu import gpu_busy
from sample_factory.runtime.programs import Program

# Stage -> what it is called.
STAGES = {
    "simulation": "simulation, random actions",
    "sampling": "sampling, no learning",
    "training": "training",
}
STATUS_SECONDS = 1  # between the figures that a stage writes
STUCK_SECONDS = 300.0  # beyond start and measurement: a slow machine may take some of them to stop
NUM_LAST_LINES = 20  # of the output of a stage that fails
USAGE_SECONDS = 2.0  # a look at all processes and the GPU takes a few milliseconds of one core
# Seconds that a program may take to end after SIGINT, a request to stop, and after SIGTERM. The first is more
# than `dummy_sampler` gives its workers before it kills them.
GRACE_SECONDS = ((signal.SIGINT, 15.0), (signal.SIGTERM, 5.0))
STOLEN = "steal"  # of a virtual machine, while another one had the core
# The time of guests is also part of another state.
NOT_BUSY = ("idle", "iowait", STOLEN, "guest", "guest_nice")
WARNING = "] WARNING "  # in the log
NOT_A_SHARE = ("memory_mb", "avg_batch_size")
MAIN = "main"  # role of the program itself
SAMPLER = "sampler"  # of an inline sampler, and of a worker of `dummy_sampler`
OTHERS = "others"  # role of the processes that the run's own processes have started, e.g. simulators


class StageFailed(CommandFailed):
    """Raised if a stage of the benchmark (a key of STAGES) fails or nothing could be measured; the message
    has the end of its output."""

    def __init__(self, stage: str, reason: str, output: str = ""):
        lines = output.rstrip().splitlines()[-NUM_LAST_LINES:]
        heading = f"{STAGES[stage]}: {reason}"
        super().__init__("\n".join([f"{heading}; the end of its output:", *lines] if lines else [heading]))


class Usage(NamedTuple):
    """Describes what a program and all processes that it has started use of the machine at one moment.

    time: seconds since 1970.
    cpu_seconds: CPU time that the processes that are alive have used so far.
    machine_seconds: CPU time that all programs have used of the available cores so far.
    memory_mb: role -> resident memory of each process.
    stolen_seconds: time that the host of this virtual machine has taken from the available cores.
    gpu_busy: utilisation of the busiest GPU, 0..1; None if unknown.
    """

    time: float
    cpu_seconds: float
    machine_seconds: float
    memory_mb: Mapping[str, Sequence[float]]
    stolen_seconds: float = 0.0
    gpu_busy: float | None = None


class Stage(NamedTuple):
    """Results of measuring a stage of the benchmark: simulation, sampling or training.

    fps: env frames per second, frameskip counted.
    cores: mean numbers of cores that this run ("ours") and other programs ("of_others") kept busy, and that
        the host of a virtual machine took away ("stolen"). None if unknown.
    ready_seconds, first_fps_seconds: time from the command until all processes were ready, and had frames.
    memory: role of processes -> their number ("processes") and resident memory ("total_mb").
    parts: component -> kind of work -> "share" of a process's time, 0..1, and "milliseconds" per step of an
        agent (rollout worker), batch (policy worker) or iteration (learner), None if unknown. Empty if the
        run was too short for a report of its processes.
    rows_per_batch: mean number of observations in one forward pass of a policy worker.
    learner: device and precision, e.g. "on cpu in fp32". device: name of the learner's torch device.
    agents: number of agents in all envs. num_parameters: size of the network.
    gpu_busy: share of the time, 0..1, in which a GPU ran kernels; None without a GPU.
    command: the command line. warnings: texts of the warnings in the log of the run.
    """

    fps: float
    ready_seconds: float | None = None
    first_fps_seconds: float | None = None
    cores: Mapping[str, float] | None = None
    memory: Mapping[str, Mapping[str, float]] = {}
    parts: Mapping[str, Mapping[str, Mapping[str, float | None]]] = {}
    rows_per_batch: float | None = None
    learner: str = ""
    device: str = ""
    agents: int = 0
    command: str = ""
    num_parameters: int = 0
    gpu_busy: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def waits(self) -> dict[str, float]:
        """Returns component -> share of its time, 0..1, in which it waits for other components."""
        return {name: parts["wait"]["share"] or 0.0 for name, parts in self.parts.items() if "wait" in parts}


def run_stage(config: Config, stage: str, seconds: tuple[float, float], folder: Path) -> Stage:
    """Runs a stage as a command in a new process, and returns what was measured.

    config: a Config in which the values that a run chooses itself are filled in, see `plan_of`.
    stage: a key of STAGES. seconds: lengths of warm-up and measurement.
    folder: folder for the files that the command writes.

    Raises StageFailed if the command fails, does not end in time, or nothing could be measured.
    """
    total = math.ceil(sum(seconds)) + STATUS_SECONDS
    file = folder / f"{stage}.jsonl"
    command = [sys.executable, "-m", *_command(config, stage, total, folder)]
    command += [f"--figures_file={file}", f"--status_interval={STATUS_SECONDS}"]
    limit = config.sampling.reset_timeout_seconds + total + STUCK_SECONDS
    began = time.time()
    exit_code, output, usages = run_program(command, folder / f"{stage}.txt", limit)
    if exit_code is None:
        raise StageFailed(stage, f"did not end within {limit:.0f} s", output)
    if exit_code != 0:
        raise StageFailed(stage, f"failed with exit code {exit_code}", output)
    found = measure(stage, config, read_figures(file), usages, seconds, began)
    warnings = [line.partition(WARNING)[2] for line in output.splitlines() if WARNING in line]
    command_line = shlex.join(["python", *command[1:]])
    return found._replace(command=command_line, warnings=tuple(dict.fromkeys(warnings)))


def _command(config: Config, stage: str, seconds: int, folder: Path) -> list[str]:
    """Returns the arguments after `python -m` that run a stage for `seconds`, with its files in `folder`.
    Where a flag is given twice, the last value counts."""
    sampling = config.sampling
    chosen = [f"--num_envs_per_worker={sampling.num_envs_per_worker}"]
    if stage == "simulation":
        limit = f"--timeout_seconds={seconds}"
        return ["sample_factory", "dummy_sampler", *simulation_flags(config), *chosen, limit]
    fixed = [
        *chosen,
        f"--inline_samplers={sampling.inline_samplers}",
        f"--train_dir={folder}",
        "--experiments_root=.",
        f"--experiment={stage}",
        f"--train_for_seconds={seconds}",
        f"--train_for_env_steps={NEVER}",
        # These are effects of --benchmark=True, which also ends the run after a number of frames.
        "--benchmark=False",
        "--decorrelate_envs_on_one_worker=False",
        "--decorrelate_experience_max_seconds=0",
        f"--sampler_only={stage == 'sampling'}",
        "--with_wandb=False",  # a measurement is no run to compare others with
    ]
    if stage == "sampling":
        # Without learning there is nothing to alternate with, and nothing to share among learners.
        fixed += ["--async_rl=True", "--learners_per_policy=1"]
    return ["sample_factory", "train", *training_flags(config), *fixed]


def run_program(
    command: Sequence[str], output_file: Path, limit_seconds: float
) -> tuple[int | None, str, list[Usage]]:
    """Runs a command to its end, or for `limit_seconds`. An exception in this process also ends the command.
    Returns the exit code (None if the limit was reached), the output, and a Usage every USAGE_SECONDS."""
    usages: list[Usage] = []
    end = time.monotonic() + limit_seconds
    with open(output_file, "wb") as output:
        process = Program(command, output)
    try:
        while process.poll() is None and time.monotonic() < end:
            try:
                process.wait(min(USAGE_SECONDS, max(0.0, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                if (usage := usage_of(process.pid)) is not None:
                    usages.append(usage)
        exit_code = process.poll()
    finally:
        process.end(*GRACE_SECONDS)
    return exit_code, output_file.read_text(errors="replace"), usages


def usage_of(pid: int) -> Usage | None:
    """Returns what a program and its descendants use now; None if there is no process `pid`."""
    cpu_seconds = 0.0
    memory = collections.defaultdict(list)
    try:
        program = psutil.Process(pid)
        processes = [program, *program.children(recursive=True)]
    except psutil.NoSuchProcess:
        return None
    for process in processes:
        try:
            with process.oneshot():
                times = process.cpu_times()
                role = MAIN if process == program else role_of(process.name())
                memory[role].append(process.memory_info().rss / 2**20)
        except psutil.Error:
            continue  # it has ended meanwhile
        cpu_seconds += times.user + times.system
    cores = set(cpu.available_cores())
    busy = stolen = 0.0
    for core, of_core in enumerate(psutil.cpu_times(percpu=True)):
        if core in cores:
            states = of_core._asdict()
            busy += sum(seconds for state, seconds in states.items() if state not in NOT_BUSY)
            stolen += states.get(STOLEN, 0.0)
    return Usage(time.time(), cpu_seconds, busy, memory, stolen, gpu_busy())


def role_of(name: str) -> str:
    """Returns the role of a process by the name that `top` shows: "policy_0_1" -> "policy_worker"."""
    roles = {role.removesuffix("_worker"): role for role in (*PARTS, SAMPLER)}
    return roles.get(name.rstrip("_0123456789"), OTHERS)


def measure(
    stage: str,
    config: Config,
    figures: Sequence[Figures],
    usages: Sequence[Usage],
    seconds: tuple[float, float],
    began: float,
) -> Stage:
    """Computes the results of a stage. Raises StageFailed if nothing was measured.

    figures: lines that the command has written.
    usages: what the command has used, every USAGE_SECONDS.
    seconds: lengths of warm-up and measurement.
    began: when the command was started, in seconds since 1970.
    """
    if not figures:
        raise StageFailed(stage, "it wrote no figures")
    start = figures[0].time + seconds[0]
    window = (start, start + seconds[1])
    policies = range(len(figures[0].policies)) or (None,)  # `dummy_sampler` has none
    total = sum(frame_rate(figures, policy_id, window) for policy_id in policies)
    if not total > 0:
        raise StageFailed(stage, "no batch was completed while it was measured: give it more --seconds")
    # Each line holds means over the last 20 s, which in a measurement of that length is free of the warm-up.
    known = [line.components for line in figures if line.components and line.time <= window[1]]
    stats = known[-1] if known else {}
    parts = parts_of_work(stats, total, config)
    if stage == "sampling":  # without learning the learner only counts frames
        parts.pop("learner", None)
    learner = next(iter(figures[-1].learners), None)
    inside = [usage for usage in usages if window[0] <= usage.time <= window[1]]
    return Stage(
        total,
        figures[0].time - began,
        next((line.time - began for line in figures if line.env_frames > 0), None),
        busy_cores(inside),
        memory_by_role(inside or usages[-1:]),
        parts,
        stats.get("policy_worker", {}).get("avg_batch_size"),
        "" if learner is None else f"on {learner.device} in {learner.precision}",
        "" if learner is None else learner.device,
        figures[-1].agents,
        num_parameters=0 if learner is None else learner.num_parameters,
        gpu_busy=mean_gpu_busy(inside),
    )


def frame_rate(figures: Sequence[Figures], policy_id: int | None, window: tuple[float, float]) -> float:
    """Returns env frames per second within a window of time; 0 if fewer than two measurements lie in it.

    figures: lines that the command has written about every second.
    policy_id: None for `dummy_sampler`, which has no policies. window: start and end, in seconds since 1970.

    The frames of a policy grow by whole iterations of training, which may take seconds. So the rate is taken
    between the ends of two iterations, or between two lines if fewer than two iterations end in the window.
    """
    if policy_id is None:
        ends = lines = [(figures[0].time + line.seconds, line.env_frames) for line in figures]
    else:
        counters = [line.policies[policy_id] for line in figures]
        ends = sorted({(policy.time, policy.env_frames) for policy in counters})
        lines = [(line.time, policy.env_frames) for line, policy in zip(figures, counters)]
    for points in (ends, lines):
        inside = [point for point in points if window[0] <= point[0] <= window[1]]
        if len(inside) >= 2:
            (first_time, first_frames), (last_time, last_frames) = inside[0], inside[-1]
            return (last_frames - first_frames) / (last_time - first_time)
    return 0.0


def num_processes(config: Config) -> dict[str, int]:
    """Returns component -> number of its processes."""
    sampling = config.sampling
    inference = sampling.num_policies * (sampling.inline_samplers or sampling.policy_workers_per_policy)
    return {
        "rollout_worker": sampling.num_workers,
        "policy_worker": inference,
        "learner": sampling.num_policies,
    }


def parts_of_work(
    stats: Mapping[str, Mapping[str, float]], fps: float, config: Config
) -> dict[str, dict[str, dict[str, float | None]]]:
    """Computes `parts` of Stage: component -> kind of work -> share and milliseconds of one process.
    stats: component -> kind of work -> share of the time. fps: env frames per second."""
    steps = fps / (config.env.env_frameskip or 1)  # of agents, per second
    rows = stats.get("policy_worker", {}).get("avg_batch_size", 0.0)
    samples_per_iteration = config.learning.batch_size * config.learning.num_batches_per_iteration
    steps_each = {"rollout_worker": 1.0, "policy_worker": rows, "learner": samples_per_iteration}
    parts: dict[str, dict[str, dict[str, Any]]] = {}
    for component, shares in stats.items():
        of_one = steps_each[component] * num_processes(config)[component] / steps if steps > 0 else 0.0
        parts[component] = {
            name: {"share": share, "milliseconds": 1000 * share * of_one if of_one > 0 else None}
            for name, share in shares.items()
            if name not in NOT_A_SHARE
        }
    return parts


def mean_gpu_busy(usages: Sequence[Usage]) -> float | None:
    """Returns the mean of the known `gpu_busy`; None if none is known."""
    shares = [usage.gpu_busy for usage in usages if usage.gpu_busy is not None]
    return sum(shares) / len(shares) if shares else None


def busy_cores(usages: Sequence[Usage]) -> dict[str, float] | None:
    """Computes `cores` of Stage from the first and last usage; None for fewer than two usages."""
    if len(usages) < 2:
        return None
    first, last = usages[0], usages[-1]
    seconds = last.time - first.time
    ours = (last.cpu_seconds - first.cpu_seconds) / seconds
    of_all = (last.machine_seconds - first.machine_seconds) / seconds
    stolen = (last.stolen_seconds - first.stolen_seconds) / seconds
    return {"ours": max(0.0, ours), "of_others": max(0.0, of_all - ours), "stolen": max(0.0, stolen)}


def memory_by_role(usages: Sequence[Usage]) -> dict[str, dict[str, float]]:
    """Returns role -> {"processes": number, "total_mb": memory} at the moment of the largest total memory."""
    memories = (usage.memory_mb for usage in usages)
    most = max(memories, key=lambda memory: sum(map(sum, memory.values())), default={})
    return {role: {"processes": len(each), "total_mb": sum(each)} for role, each in most.items()}
