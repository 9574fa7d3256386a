"""The benchmark: an optional sweep, three measured stages, a report, files."""

import contextlib
import dataclasses
import json
import math
import shlex
import signal
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from sample_factory.benchmarking.advice import advice, advice_for_fast_env
from sample_factory.benchmarking.benchmark_flags import (
    SWEPT_FLAGS,
    BenchmarkFlags,
    parse_arguments,
    training_flags,
    with_values,
)
from sample_factory.benchmarking.machine import describe_hardware, used_by_others, versions
from sample_factory.benchmarking.stages import OTHERS, STAGES, Stage, StageFailed, num_processes, run_stage
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.monitoring.bottleneck import PARTS, describe_bottleneck
from sample_factory.plotting.drawing import COLOURS, LIGHT_GREY, draw_bars
from sample_factory.plotting.plot_command import aligned
from sample_factory.runtime.cpu import num_usable_cores

if TYPE_CHECKING:  # importing it would load gymnasium, also for --help
    from sample_factory.exchange.run_plan import RunPlan

NOT_IN_CFG = ("cfg", "experiment", "train_dir", "experiments_root", "restart_behavior")
USUAL_START_SECONDS = 6  # for the announced durations
USUAL_TRIALS = 12  # the same, of a sweep
PRINTED_WIDTH = 80  # characters
FASTER = 1.03  # a gain below 3 % may be chance
MAX_STEPS = 3  # doublings or halvings of one flag in a sweep
MAX_BATCH_SIZE = 16384  # larger batches change what is learned more than the speed
# If one of these flags is typed, the defaults that follow the observation no longer apply to the others. The
# sweep types --batch_size, so the benchmark types all of them.
SIZES = ("rollout", "batch_size", "num_batches_per_iteration", "async_rl")
MAX_LOAD = 1.0  # processes that wait for a core before anything has been started
MAX_TRAINING = 1.05  # of the speed of sampling: learning can only slow a run down
ROLES = {
    "main": "main process",
    **{component: processes for component, (_, processes) in PARTS.items()},
    "sampler": "inline samplers",
    OTHERS: "started by them (simulators)",
}


def benchmark(config: Config) -> None:
    """Measures, prints the report and writes the files that the flags name.

    config: from `benchmark_flags.parse_arguments`.
    Raises StageFailed, KeyboardInterrupt, and ConfigError for a file that cannot be written.
    """
    flags: BenchmarkFlags = config.extra["benchmark"]
    load = psutil.getloadavg()[0]
    config, plan = with_chosen_values(config)
    first = config
    trials: list[dict[str, Any]] = []
    with guarded(), tempfile.TemporaryDirectory(prefix="sample_factory_benchmark_") as folder:
        if flags.sweep:
            seconds = (flags.warmup_seconds, flags.sweep_seconds)
            announced = _duration(seconds, USUAL_TRIALS)
            print(f"sweep: about {USUAL_TRIALS} training runs of {announced}", flush=True)
            config, trials = sweep(config, lambda tried: _measure(tried, "training", seconds, folder).fps)
        if flags.sweep and flags.sweep_cfg is not None:
            _write_cfg(config, Path(flags.sweep_cfg).expanduser())
        runs = run_stages(config, folder)
        hardware = describe_hardware()
        measured = plan.config if config is first else with_chosen_values(config)[1].config
        print("\n".join(report(measured, runs, hardware, load)))
        if flags.json is not None:
            found = {**figures(measured, runs, hardware), "sweep": trials}
            Path(flags.json).expanduser().write_text(json.dumps(found, indent=4) + "\n")
        if flags.chart is not None:
            _draw_chart(measured, flags.chart, runs, hardware)
    if flags.sweep:
        if config.learning.batch_size != first.learning.batch_size:
            print("\nnote: --batch_size changes not only the speed, but also what is learned from a frame")
        command = shlex.join(["python", "-m", "sample_factory.train", *training_flags(config)])
        print(f"\nthe fastest: {command}")


@contextlib.contextmanager
def guarded() -> Iterator[None]:
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


def with_chosen_values(config: Config) -> tuple[Config, "RunPlan"]:
    """Returns the flags with the values that a run would choose itself, and the plan of such a run.

    The plan's configuration has these values too, and the sizes that follow what the env observes.
    """
    # Not at the top of the file: these load gymnasium, which --help does not need.
    from sample_factory.envs.env_registry import resolve_family
    from sample_factory.launch.plan import plan_run

    plan = plan_run(config, resolve_family(config.env_name))
    sampling = dataclasses.replace(plan.config.sampling, inline_samplers=plan.topology.num_inline_samplers)
    plan = plan._replace(config=dataclasses.replace(plan.config, sampling=sampling))
    chosen, given = plan.config.flat(), config.flat()
    names = ("num_envs_per_worker", "inline_samplers", *SIZES)
    return with_values(config, {name: chosen[name] for name in names if chosen[name] != given[name]}), plan


def _measure(config: Config, stage: str, seconds: tuple[float, float], folder: str) -> Stage:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        return run_stage(config, stage, seconds, Path(place))


def _duration(seconds: Sequence[float], runs: int = 1) -> str:
    """Returns a text such as "81 s, until about 12:34:56". seconds: of each of the runs, after its start."""
    each = sum(seconds) + USUAL_START_SECONDS
    clock = time.strftime("%H:%M:%S", time.localtime(time.time() + runs * each))
    return f"{each:.0f} s each, until about {clock}" if runs > 1 else f"{each:.0f} s, until about {clock}"


def sweep(config: Config, measure: Callable[[Config], float]) -> tuple[Config, list[dict[str, Any]]]:
    """Searches for faster values of SWEPT_FLAGS, one flag at a time, and prints each trial.

    Doubles a flag for as long as that is faster; if it never is, halves it.

    measure: returns the FPS of a configuration; may raise StageFailed, which propagates for the first one.
    Returns the fastest configuration, and the `flag`, `value` and `fps` of each trial, 0 if it does not run.
    """
    fps = measure(config)
    typed = [f"--{flag}={config.flat()[flag]}" for flag in SWEPT_FLAGS]
    print(f"  {' '.join(typed)}: {fps:,.0f} FPS", flush=True)
    trials: list[dict[str, Any]] = []
    for flag in SWEPT_FLAGS:
        start = config
        for factor in (2.0, 0.5):
            for value in _ladder(flag, config.flat(), factor) if config is start else ():
                tried, tried_fps = config, 0.0
                try:
                    tried = with_values(config, {flag: value})
                    tried_fps = measure(tried)
                    result = f"{tried_fps:,.0f} FPS ({100 * (tried_fps / fps - 1):+.0f} %)"
                except (ConfigError, StageFailed) as failure:
                    result = f"does not run ({str(failure).splitlines()[-1]})"
                trials.append({"flag": flag, "value": value, "fps": tried_fps})
                is_kept = tried_fps > FASTER * fps
                print(f"  --{flag}={value}: {result}, {'kept' if is_kept else 'not kept'}", flush=True)
                if not is_kept:
                    break
                config, fps = tried, tried_fps
    return config, trials


def _ladder(flag: str, values: Mapping[str, Any], factor: float) -> list[int]:
    """Returns the values of a flag to try, nearest first. values: of all flags."""
    if flag == "inline_samplers":  # one per core, or none
        other = min(num_usable_cores(), values["num_workers"]) if factor > 1 else 0
        return [other] if other != values[flag] else []
    if flag == "policy_workers_per_policy" and values["inline_samplers"]:
        return []  # an inline sampler infers itself
    most = {"batch_size": MAX_BATCH_SIZE, "num_workers": 2 * num_usable_cores()}.get(flag, math.inf)
    ladder = [values[flag] * factor**step for step in range(1, MAX_STEPS + 1)]
    return [int(value) for value in ladder if value == int(value) and 1 <= value <= most]


def run_stages(config: Config, folder: str) -> dict[str, list[Stage]]:
    """Runs the stages one after another, --repeats times; returns the runs of each.

    Prints what is measured and how long it takes, and the speed of each run.
    """
    flags: BenchmarkFlags = config.extra["benchmark"]
    seconds = (flags.warmup_seconds, flags.seconds)
    total = len(STAGES) * flags.repeats
    print(f"{total} measurements of about {_duration(seconds, total)}", flush=True)
    runs: dict[str, list[Stage]] = {stage: [] for stage in STAGES}
    for number, stage in enumerate([*STAGES] * flags.repeats, start=1):
        print(f"{number}/{total} {STAGES[stage]}, about {_duration(seconds)} ... ", end="", flush=True)
        try:
            run = _measure(config, stage, seconds, folder)
        except BaseException:  # also Ctrl+C: the error message that follows needs a line of its own
            print(flush=True)
            raise
        print(f"{run.fps:,.0f} FPS", flush=True)
        runs[stage].append(run)
    return runs


def median_run(runs: Sequence[Stage]) -> Stage:
    """Returns the run of median speed; of an even number, the slower one of the two in the middle."""
    return sorted(runs, key=lambda run: run.fps)[(len(runs) - 1) // 2]


def _headings(config: Config, hardware: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns texts about the run, its length, and the machine."""
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


def report(
    config: Config, runs: Mapping[str, Sequence[Stage]], hardware: Mapping[str, Any], load: float = 0.0
) -> list[str]:
    """Returns the lines that are printed at the end. runs: of each stage. load: before them."""
    stages = {name: median_run(several) for name, several in runs.items()}
    simulation, training = stages["simulation"], stages["training"]
    what, length, machine = _headings(config, hardware)
    lines = [f"{what}, {length}; learner {training.learner}", machine, ""]
    lines += table(config, runs)
    for name, fps in config.extra["benchmark"].others.items():
        lines.append(f"{name}: {fps:,.0f} FPS, {fps / simulation.fps:.0%}")
    lines.append(
        "FPS: env frames per second, frameskip counted; share: of the simulation's speed; below: shares of a "
        "process's time, and ms; MB: shared memory counts in each process that has touched it"
    )
    note = disturbance(stages, load)
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


def disturbance(stages: Mapping[str, Stage], load: float) -> str:
    """Returns a text about the load of other programs; empty if it was small. load: before the stages."""
    if used := used_by_others(stages.values()):
        return used
    num_measured = sum(stage.cores is not None for stage in stages.values())
    is_too_fast = stages["training"].fps > MAX_TRAINING * stages["sampling"].fps
    if is_too_fast or (load > MAX_LOAD and num_measured < len(stages)):
        return "other programs were using the CPU"
    return ""


def table(config: Config, runs: Mapping[str, Sequence[Stage]]) -> list[str]:
    """Returns a table with a column for each stage: its speed, where its time goes, and its memory."""
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
    """Returns the contents of the --json file. runs: of each stage."""
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
        "compare": flags.others,
        "versions": versions(),
    }


def _draw_chart(
    config: Config, file: str, runs: Mapping[str, Sequence[Stage]], hardware: Mapping[str, Any]
) -> None:
    bars = [(STAGES[name], median_run(several).fps, COLOURS[0]) for name, several in runs.items()]
    others = config.extra["benchmark"].others
    bars += [(name, fps, LIGHT_GREY) for name, fps in others.items()]
    what, length, machine = _headings(config, hardware)
    notes = [machine, f"blue: {length}"]
    if others:
        notes.append("grey: other programs, as given by --compare")
    figure = draw_bars(bars, what, "env frames per second", "\n".join(notes))
    figure.savefig(Path(file).expanduser(), dpi="figure")


def _write_cfg(config: Config, file: Path) -> None:
    """Writes SWEPT_FLAGS, and the other flags that differ from the defaults of the env."""
    env = config.env_name
    default = parse_arguments([f"--env={env}"]).flat()
    not_in_cfg = {*NOT_IN_CFG, *(field.name for field in dataclasses.fields(BenchmarkFlags))}
    flags = {
        name: value
        for name, value in config.flat().items()
        if name in SWEPT_FLAGS or (value != default[name] and name not in not_in_cfg)
    }
    file.write_text(json.dumps({"env": env, **flags}, indent=4) + "\n")
    print(f"the fastest flags are in {file}, for sample_factory.train --cfg={file}")
