"""The benchmark: an optional sweep, three measured stages, a report, files."""

import contextlib
import dataclasses
import importlib.metadata
import json
import platform
import shlex
import signal
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from sample_factory.benchmarking.advice import advice, advice_for_fast_env
from sample_factory.benchmarking.benchmark_request import (
    SWEPT_FLAGS,
    BenchmarkFlags,
    BenchmarkRequest,
    parse_arguments,
    with_values,
)
from sample_factory.benchmarking.stages import OTHERS, STAGES, Stage, StageFailed, num_processes, run_stage
from sample_factory.config.flags import ConfigError
from sample_factory.monitoring.bottleneck import EnvCounts, describe_bottleneck
from sample_factory.plotting.drawing import COLOURS, LIGHT_GREY, draw_bars
from sample_factory.plotting.plot_command import aligned
from sample_factory.runtime.cpu import num_usable_cores

NOT_IN_CFG = ("cfg", "experiment", "train_dir", "experiments_root", "restart_behavior")
RECORDED_PACKAGES = ("torch", "numpy", "gymnasium")
USUAL_START_SECONDS = 6  # for the announced durations
PRINTED_WIDTH = 80  # characters
FASTER = 1.03  # a gain below 3 % may be chance
MAX_STEPS = 3  # doublings or halvings of one flag in a sweep
MAX_BATCH_SIZE = 16384  # larger batches change what is learned more than the speed
MAX_LOAD = 1.0  # processes that wait for a core before anything has been started
MAX_TRAINING = 1.05  # of the speed of sampling: learning can only slow a run down
FOREIGN_CORES = 0.25  # less than that is the usual background load of a system
ROLES = {
    "main": "main process",
    "rollout_worker": "rollout workers",
    "policy_worker": "policy workers",
    "learner": "learner",
    "sampler": "inline samplers",
    OTHERS: "started by them (simulators)",
}


class Trial(NamedTuple):
    """One short run of a sweep. fps: None if it failed; `note` then says why."""

    values: Mapping[str, int]
    changed: str | None  # the flag that was tried; None in the first trial
    fps: float | None
    is_kept: bool
    note: str = ""


def benchmark(request: BenchmarkRequest, version: str) -> None:
    """Measures, prints the report and writes the files that the flags name.

    version: of this package, for the --json file.
    Raises StageFailed, KeyboardInterrupt, and ConfigError for a file that cannot be written.
    """
    flags = request.flags
    load = psutil.getloadavg()[0]
    request = with_chosen_values(request)
    trials: list[Trial] = []
    with _guarded(), tempfile.TemporaryDirectory(prefix="sample_factory_benchmark_") as folder:
        if flags.sweep:
            seconds = (flags.warmup_seconds, flags.sweep_seconds)
            print(f"sweep: a dozen or so training runs of about {_duration(seconds)}", flush=True)
            request, trials = sweep(request, lambda tried: _measure(tried, "training", seconds, folder))
        if flags.sweep_cfg is not None:
            _write_cfg(request, Path(flags.sweep_cfg).expanduser())
        runs = run_stages(request, folder)
        hardware = describe_hardware()
        print("\n".join(report(request, runs, hardware, load)))
        if flags.json is not None:
            text = json.dumps(figures(request, runs, trials, hardware, version), indent=4)
            Path(flags.json).expanduser().write_text(text + "\n")
        if flags.chart is not None:
            _draw_chart(request, flags.chart, runs, hardware)
    if trials:
        if request.config.learning.batch_size != trials[0].values["batch_size"]:
            print("\nnote: --batch_size changes not only the speed, but also what is learned from a frame")
        command = shlex.join(["python", "-m", "sample_factory.train", *request.training_flags])
        print(f"\nthe fastest: {command}")


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP, unless ignored, raise KeyboardInterrupt, and an OSError a ConfigError."""
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


def with_chosen_values(request: BenchmarkRequest) -> BenchmarkRequest:
    """Returns the request with the flags that a run would choose itself, so that the report can name them."""
    # These load gymnasium, which the help does without.
    from sample_factory.envs.env_registry import resolve_family
    from sample_factory.launch.plan import plan_run

    config = request.config
    plan = plan_run(config, resolve_family(config.env_name))
    values = {
        "num_envs_per_worker": plan.config.sampling.envs_per_worker,
        "inline_samplers": plan.topology.num_inline_samplers,
    }
    return with_values(request, values)


def _measure(request: BenchmarkRequest, stage: str, seconds: tuple[float, float], folder: str) -> Stage:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        return run_stage(request.training_flags, request.config, stage, seconds, Path(place))


def _duration(seconds: Sequence[float], runs: int = 1) -> str:
    """Returns a text such as "81 s, until about 12:34:56". seconds: of each of the runs, after its start."""
    each = sum(seconds) + USUAL_START_SECONDS
    clock = time.strftime("%H:%M:%S", time.localtime(time.time() + runs * each))
    return f"{each:.0f} s each, until about {clock}" if runs > 1 else f"{each:.0f} s, until about {clock}"


def sweep(
    request: BenchmarkRequest, measure: Callable[[BenchmarkRequest], Stage]
) -> tuple[BenchmarkRequest, list[Trial]]:
    """Searches for faster values of SWEPT_FLAGS, one flag at a time, and prints each trial.

    Doubles a flag for as long as that is faster; if it never is, halves it.

    measure: may raise StageFailed, which propagates for the values of the request.
    Returns the fastest request, and all trials in their order.
    """
    now = request.config.flat()
    values: Mapping[str, int] = {flag: now[flag] for flag in SWEPT_FLAGS}
    fps = measure(request).fps
    print(f"  {' '.join(f'--{flag}={value}' for flag, value in values.items())}: {fps:,.0f} FPS", flush=True)
    trials = [Trial(values, None, fps, True)]
    for flag in SWEPT_FLAGS:
        before = request
        for factor in (2.0, 0.5):
            for value in _ladder(flag, values, factor) if request is before else ():
                try:
                    tried = with_values(request, {**values, flag: value})
                except ConfigError:  # it contradicts another flag
                    break
                trials.append(_try(tried, {**values, flag: value}, flag, fps, measure))
                if not trials[-1].is_kept:
                    break
                request, values, fps = tried, trials[-1].values, trials[-1].fps or fps
    return request, trials


def _try(
    request: BenchmarkRequest,
    values: Mapping[str, int],
    flag: str,
    to_beat: float,
    measure: Callable[[BenchmarkRequest], Stage],
) -> Trial:
    """Measures and prints a trial."""
    try:
        fps = measure(request).fps
    except StageFailed as failure:
        print(f"  --{flag}={values[flag]}: does not run ({failure.note})", flush=True)
        return Trial(values, flag, None, False, failure.note)
    gain = fps / to_beat
    verdict = "kept" if gain > FASTER else "not kept"
    print(f"  --{flag}={values[flag]}: {fps:,.0f} FPS ({100 * (gain - 1):+.0f} %), {verdict}", flush=True)
    return Trial(values, flag, fps, gain > FASTER)


def _ladder(flag: str, values: Mapping[str, int], factor: float) -> list[int]:
    """Returns the values of a flag to try, nearest first, as far as they suit this machine."""
    cores = num_usable_cores()
    if flag == "inline_samplers":  # one per core, or none
        other = min(cores, values["num_workers"]) if factor > 1 else 0
        return [other] if other != values[flag] else []
    most = {
        "worker_num_splits": 4,
        "policy_workers_per_policy": 1 if values["inline_samplers"] else max(1, cores // 2),
        "batch_size": MAX_BATCH_SIZE,
        "num_workers": 2 * cores,
    }
    ladder = [values[flag] * factor**step for step in range(1, MAX_STEPS + 1)]
    fewest = values["inline_samplers"] if flag == "num_workers" else 1
    return [
        int(value) for value in ladder if value == int(value) and fewest <= value <= most.get(flag, value)
    ]


def run_stages(request: BenchmarkRequest, folder: str) -> dict[str, list[Stage]]:
    """Runs the stages one after another, --repeats times; returns the runs of each.

    Prints what is measured and how long it takes, and the speed of each run.
    """
    seconds = (request.flags.warmup_seconds, request.flags.seconds)
    total = len(STAGES) * request.flags.repeats
    print(f"{total} measurements of about {_duration(seconds, total)}", flush=True)
    runs: dict[str, list[Stage]] = {stage: [] for stage in STAGES}
    for number, stage in enumerate([*STAGES] * request.flags.repeats, start=1):
        print(f"{number}/{total} {STAGES[stage]}, about {_duration(seconds)} ... ", end="", flush=True)
        try:
            run = _measure(request, stage, seconds, folder)
        except BaseException:  # also Ctrl+C: the error message that follows needs a line of its own
            print(flush=True)
            raise
        print(f"{run.fps:,.0f} FPS", flush=True)
        runs[stage].append(run)
    return runs


def median_run(runs: Sequence[Stage]) -> Stage:
    """Returns the run of median speed; of an even number, the slower one of the two in the middle."""
    return sorted(runs, key=lambda run: run.fps)[(len(runs) - 1) // 2]


def describe_hardware() -> dict[str, Any]:
    """Describes the part of the machine that this process may use. Imports torch, which knows the GPUs."""
    import torch

    model = platform.processor() or platform.machine()
    if sys.platform == "linux":
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        model = next(names, model)
    return {
        "cpu": model,
        "cores": num_usable_cores(),
        "memory_gb": psutil.virtual_memory().total / 2**30,
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
    }


def _headings(request: BenchmarkRequest, hardware: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns texts about the run, its length, and the machine."""
    config = request.config
    flags = request.flags
    envs = f"{config.sampling.num_workers} workers x {config.sampling.envs_per_worker} envs"
    number = "1 run" if flags.repeats == 1 else f"median of {flags.repeats} runs"
    cores = "1 core" if hardware["cores"] == 1 else f"{hardware['cores']} cores"
    gpus = ", ".join(hardware["gpus"]) or "no GPU"
    return (
        f"{config.env_name}: {envs}, batch size {config.learning.batch_size:,}",
        f"{number} of {flags.seconds:g} s (after {flags.warmup_seconds:g} s of warm-up)",
        f"{hardware['cpu']}, {cores}, {hardware['memory_gb']:.0f} GB, {gpus}",
    )


def report(
    request: BenchmarkRequest,
    runs: Mapping[str, Sequence[Stage]],
    hardware: Mapping[str, Any],
    load: float = 0.0,
) -> list[str]:
    """Returns the lines that are printed at the end. runs: of each stage. load: before them."""
    stages = {name: median_run(several) for name, several in runs.items()}
    simulation, training = stages["simulation"], stages["training"]
    what, length, machine = _headings(request, hardware)
    lines = [f"{what}, {length}; learner {training.learner}", machine, ""]
    lines += table(request, runs)
    for name, fps in request.others:
        lines.append(f"{name}: {fps:,.0f} FPS, {fps / simulation.fps:.0%}")
    lines.append(
        "FPS: env frames per second, frameskip counted; share: of the simulation's speed; below: shares of a "
        "process's time, and ms; MB: shared memory counts in each process that has touched it"
    )
    note = disturbance(stages, load)
    lines += [f"note: {note}: repeat it on an idle machine", ""] if note else [""]
    flags = request.config.flat()
    limits = describe_bottleneck(training.waits)
    if limits:
        in_sampling = describe_bottleneck(stages["sampling"].waits)
        lines += [in_sampling.replace("bottleneck", "bottleneck without learning", 1)] if in_sampling else []
        cores = num_usable_cores()
        busy = training.cores["ours"] if training.cores else None
        found = advice(
            training.waits, flags, _env_counts(request, training), training.device != "cpu", cores, busy
        )
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


def _env_counts(request: BenchmarkRequest, training: Stage) -> EnvCounts:
    sampling = request.config.sampling
    per_worker = sampling.envs_per_worker
    return EnvCounts(
        sampling.worker_num_splits,
        per_worker // sampling.worker_num_splits,
        max(1, training.agents // (sampling.num_workers * per_worker)),
        not sampling.async_rl,
    )


def disturbance(stages: Mapping[str, Stage], load: float) -> str:
    """Returns a text about the load of other programs; empty if it was small. load: before the stages."""
    measured = [stage.cores["of_others"] for stage in stages.values() if stage.cores is not None]
    if max(measured, default=0.0) >= FOREIGN_CORES:
        return f"other programs kept up to {max(measured):.1f} cores busy"
    is_too_fast = stages["training"].fps > MAX_TRAINING * stages["sampling"].fps
    if is_too_fast or (load > MAX_LOAD and len(measured) < len(stages)):
        return "other programs were using the CPU"
    return ""


def table(request: BenchmarkRequest, runs: Mapping[str, Sequence[Stage]]) -> list[str]:
    """Returns a table with a column for each stage: its speed, where its time goes, and its memory."""
    stages = {name: median_run(several) for name, several in runs.items()}
    rows = [["", *stages]]

    def add(label: str, form: str, values: Iterable[float | None]) -> None:
        rows.append([label, *("-" if value is None else form.format(value) for value in values)])

    add("FPS", "{:,.0f}", [stage.fps for stage in stages.values()])
    if request.flags.repeats > 1:
        extremes = [(min(run.fps for run in of), max(run.fps for run in of)) for of in runs.values()]
        spreads = [(most - least) / stage.fps for (least, most), stage in zip(extremes, stages.values())]
        add("spread of the runs / median", "{:.0%}", spreads)
    add("share", "{:.0%}", [stage.fps / stages["simulation"].fps for stage in stages.values()])
    busy = [stage.cores["ours"] if stage.cores else None for stage in stages.values()]
    add("cores busy (in runs of 15 s)", "{:.1f}", busy)
    add("seconds until all is ready", "{:.1f}", [stage.ready_seconds for stage in stages.values()])
    add("seconds until the first frames", "{:.1f}", [stage.first_fps_seconds for stage in stages.values()])
    learning = request.config.learning
    units = {
        "rollout_worker": "ms per agent step",
        "policy_worker": "ms per batch",
        "learner": f"ms per {learning.batch_size * learning.num_batches_per_iteration:,} samples",
    }
    for component, count in num_processes(request.config).items():
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
            texts = []
            for of in memory:
                texts.append(f"{of['processes']} x {of['total_mb'] / of['processes']:,.0f}" if of else "-")
            rows.append([f"MB of {name}", *texts])
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
    request: BenchmarkRequest,
    runs: Mapping[str, Sequence[Stage]],
    trials: Sequence[Trial],
    hardware: Mapping[str, Any],
    version: str,
) -> dict[str, Any]:
    """Returns the contents of the --json file. runs: of each stage. version: of this package."""
    stages = {name: median_run(several) for name, several in runs.items()}
    packages = {name: importlib.metadata.version(name) for name in RECORDED_PACKAGES}
    return {
        "hardware": hardware,
        "env": request.config.env_name,
        "flags": list(request.training_flags),
        "seconds": request.flags.seconds,
        "warmup_seconds": request.flags.warmup_seconds,
        "repeats": request.flags.repeats,
        "fps_of_repeats": {name: [run.fps for run in several] for name, several in runs.items()},
        "stages": {name: stage._asdict() for name, stage in stages.items()},
        "bottleneck": describe_bottleneck(stages["training"].waits),
        "compare": dict(request.others),
        "sweep": [trial._asdict() for trial in trials],
        "versions": {"sample_factory": version, "python": platform.python_version(), **packages},
    }


def _draw_chart(
    request: BenchmarkRequest, file: str, runs: Mapping[str, Sequence[Stage]], hardware: Mapping[str, Any]
) -> None:
    bars = [(STAGES[name], median_run(several).fps, COLOURS[0]) for name, several in runs.items()]
    bars += [(name, fps, LIGHT_GREY) for name, fps in request.others]
    what, length, machine = _headings(request, hardware)
    notes = [machine, f"blue: {length}"]
    if request.others:
        notes.append("grey: other programs, as given by --compare")
    figure = draw_bars(bars, what, "env frames per second", "\n".join(notes))
    figure.savefig(Path(file).expanduser(), dpi="figure")


def _write_cfg(request: BenchmarkRequest, file: Path) -> None:
    """Writes the flags of the sweep, and those that differ from the defaults of the env."""
    env = request.config.env_name
    default = parse_arguments([f"--env={env}"]).config.flat()
    not_in_cfg = {*NOT_IN_CFG, *(field.name for field in dataclasses.fields(BenchmarkFlags))}
    flags = {
        name: value
        for name, value in request.config.flat().items()
        if name in SWEPT_FLAGS or (value != default[name] and name not in not_in_cfg)
    }
    file.write_text(json.dumps({"env": env, **flags}, indent=4) + "\n")
    print(f"the fastest flags are in {file}, for sample_factory.train --cfg={file}")
