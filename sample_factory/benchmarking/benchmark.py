"""The benchmark: three measured stages, a report, files."""

import contextlib
import dataclasses
import json
import platform
import signal
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from sample_factory.benchmarking.advice import advice, advice_for_fast_env
from sample_factory.benchmarking.benchmark_flags import BenchmarkFlags, training_flags
from sample_factory.benchmarking.stages import MAIN, OTHERS, SAMPLER, STAGES, Stage, num_processes, run_stage
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.versions import versions
from sample_factory.monitoring.bottleneck import PARTS, describe_bottleneck
from sample_factory.monitoring.console import aligned
from sample_factory.runtime.cpu import num_usable_cores

if TYPE_CHECKING:  # importing it would load gymnasium, also for --help
    from sample_factory.exchange.run_plan import RunPlan

USUAL_START_SECONDS = 6  # for the announced durations
PRINTED_WIDTH = 80  # characters
FOREIGN_CORES = 0.25  # less than that is the usual background load of a system
STOLEN_CORES = 0.05  # on an idle host, nothing is stolen
ROLES = {
    MAIN: "main process",
    **{component: processes for component, (_, processes) in PARTS.items()},
    SAMPLER: "inline samplers",
    OTHERS: "started by them (simulators)",
}


def benchmark(config: Config) -> None:
    """Runs the command `benchmark`: measures the speed of simulation, sampling and training, prints the
    report and writes the --json file.

    Raises StageFailed if a measurement fails, ConfigError if a file cannot be written, and KeyboardInterrupt
    on a signal.
    """
    flags: BenchmarkFlags = config.extra["benchmark"]
    config = plan_of(config).config
    with guarded(), tempfile.TemporaryDirectory(prefix="sample_factory_benchmark_") as folder:
        runs = run_stages(config, folder)
        hardware = describe_hardware()
        print("\n".join(report(config, runs, hardware)))
        if flags.json is not None:
            text = json.dumps(figures(config, runs, hardware), indent=4)
            Path(flags.json).expanduser().write_text(f"{text}\n")


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Returns a block in which SIGTERM and SIGHUP, unless ignored, act like Ctrl+C, and an OSError becomes a
    ConfigError."""
    former = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                former[number] = signal.signal(number, signal.default_int_handler)
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot use {error.filename}: {error.strerror}") from error
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def plan_of(config: Config) -> "RunPlan":
    """Returns the plan of a training run; in its Config, values that a run chooses itself are filled in."""
    # Not at the top of the file: these load gymnasium, which --help does not need.
    from sample_factory.envs.env_registry import resolve_family
    from sample_factory.launch.plan import plan_run

    plan = plan_run(config, resolve_family(config.env_name))
    sampling = dataclasses.replace(
        plan.config.sampling, inline_samplers=plan.sampling.topology.num_inline_samplers
    )
    return plan._replace(config=dataclasses.replace(plan.config, sampling=sampling))


def _duration(seconds: Sequence[float], runs: int = 1) -> str:
    """Returns how long `runs` measurements take that begin now, as a text such as "81 s, until about
    12:34:56".
    seconds: lengths of warm-up and measurement; the usual time for starting the processes is added."""
    each = sum(seconds) + USUAL_START_SECONDS
    clock = time.strftime("%H:%M:%S", time.localtime(time.time() + runs * each))
    return f"{each:.0f} s each, until about {clock}" if runs > 1 else f"{each:.0f} s, until about {clock}"


def run_stages(config: Config, folder: str) -> dict[str, list[Stage]]:
    """Measures simulation, sampling and training one after another, --repeats times; returns stage -> its
    measurements. Prints what is measured and how long it takes, then the speed. `folder`: folder for
    temporary files."""
    flags: BenchmarkFlags = config.extra["benchmark"]
    seconds = (flags.warmup_seconds, flags.seconds)
    total = len(STAGES) * flags.repeats
    print(f"{total} measurements of about {_duration(seconds, total)}", flush=True)
    runs: dict[str, list[Stage]] = {stage: [] for stage in STAGES}
    for number, stage in enumerate([*STAGES] * flags.repeats, start=1):
        print(f"{number}/{total} {STAGES[stage]}, about {_duration(seconds)} ... ", end="", flush=True)
        try:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                run = run_stage(config, stage, seconds, Path(place))
        except BaseException:  # also Ctrl+C: the error message that follows needs a line of its own
            print(flush=True)
            raise
        print(f"{run.fps:,.0f} FPS", flush=True)
        runs[stage].append(run)
    return runs


def median_run(runs: Sequence[Stage]) -> Stage:
    """Returns the measurement of median speed; of an even number, the slower of the two in the middle."""
    return sorted(runs, key=lambda run: run.fps)[(len(runs) - 1) // 2]


def _headings(config: Config, hardware: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns the phrases that begin a report: (env and sizes, number and length of runs, machine)."""
    flags: BenchmarkFlags = config.extra["benchmark"]
    envs = f"{config.sampling.num_workers} workers x {config.sampling.envs_per_worker} envs"
    number = "1 run" if flags.repeats == 1 else f"median of {flags.repeats} runs"
    cores = "1 core" if hardware["cores"] == 1 else f"{hardware['cores']} cores"
    gpus = ", ".join(hardware["gpus"]) or "no GPU"
    return (
        f"{config.env_name}: {envs}, batch size {config.learning.batch_size:,}",
        f"{number} of {flags.seconds:g} s (after {flags.warmup_seconds:g} s of warm-up)",
        f"{hardware['cpu']}, {cores}, {hardware['memory_gb']:.0f} GB, {gpus}",
    )


def report(config: Config, runs: Mapping[str, Sequence[Stage]], hardware: Mapping[str, Any]) -> list[str]:
    """Returns the lines that the command `benchmark` prints at its end: a table, the bottleneck, and advice.
    runs: stage -> its measurements. hardware: result of `describe_hardware`."""
    stages = {name: median_run(several) for name, several in runs.items()}
    simulation, training = stages["simulation"], stages["training"]
    what, length, machine = _headings(config, hardware)
    lines = [f"{what}, {length}; learner {training.learner}", machine, ""]
    lines += table(config, runs)
    lines.append(
        "FPS: env frames per second, frameskip counted; share: of the simulation's speed; below: shares of a "
        "process's time, and ms; MB: shared memory counts in each process that has touched it"
    )
    note = used_by_others(stages.values())
    lines += [f"note: {note}: repeat it on an idle machine", ""] if note else [""]
    flags = config.flat()
    limits = describe_bottleneck(training.waits)
    if limits:
        in_sampling = describe_bottleneck(stages["sampling"].waits)
        lines += [in_sampling.replace("bottleneck", "bottleneck without learning", 1)] if in_sampling else []
        cores = num_usable_cores()
        busy = training.cores["ours"] if training.cores else None
        num_envs = flags["num_workers"] * flags["num_envs_per_worker"]
        agents_per_env = max(1, training.agents // num_envs)
        found = advice(training.waits, flags, agents_per_env, training.device != "cpu", cores, busy)
        frameskip = flags["env_frameskip"] or 1
        each = 1e6 * min(flags["num_workers"], cores) * frameskip / simulation.fps
        lines += [limits, *(f"  {line}" for line in [*found, *advice_for_fast_env(flags, each)])]
    else:
        lines.append("bottleneck: not known; the processes report every 5 s, so give it more --seconds")
    return ["", *(part for line in lines for part in _wrapped(line))]


def _wrapped(line: str) -> list[str]:
    if len(line) <= PRINTED_WIDTH:
        return [line]
    indent = line[: len(line) - len(line.lstrip())] + "  "
    return textwrap.wrap(
        line, PRINTED_WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def table(config: Config, runs: Mapping[str, Sequence[Stage]]) -> list[str]:
    """Returns the lines of a table with a column for each stage: speed, shares of time, and memory.
    runs: stage -> its measurements."""
    stages = {name: median_run(several) for name, several in runs.items()}
    rows = [["", *stages]]

    def add(label: str, form: str, values: Iterable[float | None]) -> None:
        rows.append([label, *("-" if value is None else form.format(value) for value in values)])

    add("FPS", "{:,.0f}", [stage.fps for stage in stages.values()])
    if config.extra["benchmark"].repeats > 1:
        extremes = [(min(run.fps for run in of), max(run.fps for run in of)) for of in runs.values()]
        spreads = [(most - least) / stage.fps for (least, most), stage in zip(extremes, stages.values())]
        add("spread of the runs / median", "{:.0%}", spreads)
    add("share", "{:.0%}", [stage.fps / stages["simulation"].fps for stage in stages.values()])
    busy = [stage.cores["ours"] if stage.cores else None for stage in stages.values()]
    add("cores busy (in runs of 15 s)", "{:.1f}", busy)
    if any(stage.gpu_busy is not None for stage in stages.values()):
        add("GPU busy", "{:.0%}", [stage.gpu_busy for stage in stages.values()])
    add("seconds until all is ready", "{:.1f}", [stage.ready_seconds for stage in stages.values()])
    add("seconds until the first frames", "{:.1f}", [stage.first_fps_seconds for stage in stages.values()])
    learning = config.learning
    units = {
        "rollout_worker": "ms per agent step",
        "policy_worker": "ms per batch",
        "learner": f"ms per {learning.batch_size * learning.num_batches_per_iteration:,} samples",
    }
    for component, count in num_processes(config).items():
        of_stages = [stage.parts.get(component, {}) for stage in stages.values()]
        shares = {name: part["share"] or 0.0 for parts in of_stages for name, part in parts.items()}
        if shares:
            rows.append([f"{ROLES[component]} ({count}), {units[component]}", *("" for _ in stages)])
        for name in sorted(shares, key=lambda name: -shares[name]):
            rows.append([f"  {name}", *(_part_text(parts.get(name)) for parts in of_stages)])
        if component == "policy_worker" and shares:
            add("  observations in a batch", "{:.1f}", [stage.rows_per_batch for stage in stages.values()])
    for role, name in ROLES.items():
        memory = [stage.memory.get(role) for stage in stages.values()]
        if any(memory):
            each = (of and f"{of['processes']} x {of['total_mb'] / of['processes']:,.0f}" for of in memory)
            rows.append([f"MB of {name}", *(text or "-" for text in each)])
    return aligned(rows, "<>")


def _part_text(part: Mapping[str, Any] | None) -> str:
    if part is None:
        return "-"
    milliseconds = part["milliseconds"]
    if milliseconds is None:
        return f"{part['share']:.0%}"
    digits = 0 if milliseconds >= 100 else 1 if milliseconds >= 10 else 3
    return f"{part['share']:.0%} {milliseconds:8,.{digits}f}"


def figures(
    config: Config, runs: Mapping[str, Sequence[Stage]], hardware: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the contents of the --json file.
    runs: stage -> its measurements. hardware: result of `describe_hardware`."""
    flags: BenchmarkFlags = config.extra["benchmark"]
    stages = {name: median_run(several) for name, several in runs.items()}
    return {
        "hardware": hardware,
        "env": config.env_name,
        "flags": training_flags(config),
        "seconds": flags.seconds,
        "warmup_seconds": flags.warmup_seconds,
        "repeats": flags.repeats,
        "fps_of_repeats": {name: [run.fps for run in several] for name, several in runs.items()},
        "stages": {name: stage._asdict() for name, stage in stages.items()},
        "bottleneck": describe_bottleneck(stages["training"].waits),
        "versions": dict(versions()),
    }


def describe_hardware() -> dict[str, Any]:
    """Returns "cpu" (name), "cores" (usable number), "memory_gb" and "gpus" (names) of this machine.
    Imports torch, which knows the GPUs."""
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": next(names, platform.machine()),
        "cores": num_usable_cores(),
        "memory_gb": psutil.virtual_memory().total / 2**30,
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
    }


def used_by_others(stages: Iterable[Stage]) -> str:
    """Returns a sentence about the cores that other programs and virtual machines have used during the
    measurements; "" if they have used hardly any."""
    measured = [stage.cores for stage in stages if stage.cores is not None]
    others = max((cores["of_others"] for cores in measured), default=0.0)
    stolen = max((cores["stolen"] for cores in measured), default=0.0)
    parts = []
    if others >= FOREIGN_CORES:
        parts.append(f"other programs kept up to {others:.1f} cores busy")
    if stolen >= STOLEN_CORES:
        parts.append(f"the host of this virtual machine took up to {stolen:.1f} cores away (steal time)")
    return ", and ".join(parts)
