"""The benchmark: an optional sweep, three measured stages, a report, files."""

import dataclasses
import importlib.metadata
import json
import platform
import shlex
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from sample_factory.benchmarking.advice import Situation, advice
from sample_factory.benchmarking.benchmark_request import (
    BenchmarkFlags,
    BenchmarkRequest,
    parse_arguments,
    with_values,
)
from sample_factory.benchmarking.benchmark_table import (
    disturbance,
    median_run,
    memory_table,
    parts_table,
    spreads,
    stages_table,
    trial_text,
)
from sample_factory.benchmarking.flag_sweep import SWEPT_FLAGS, Trial, fastest, sweep
from sample_factory.benchmarking.hardware import Hardware, describe_hardware
from sample_factory.benchmarking.program import signals_like_ctrl_c
from sample_factory.benchmarking.run_stage import STAGES, counts, run_stage
from sample_factory.benchmarking.stage_measurement import Stage
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.monitoring.bottleneck import EnvCounts, describe_bottleneck
from sample_factory.plotting.draw_bars import Bar, draw_bars
from sample_factory.runtime.cpu import num_usable_cores

NOT_IN_CFG = ("cfg", "experiment", "train_dir", "experiments_root", "restart_behavior")
RECORDED_PACKAGES = ("torch", "numpy", "gymnasium")
USUAL_START_SECONDS = 6  # for the announced durations
SWEEP_RUNS = 12
PRINTED_WIDTH = 80  # characters


def benchmark(request: BenchmarkRequest, version: str) -> None:
    """Measures, prints the report and writes the files that the flags name.

    version: of this package, for the --json file.
    Raises StageFailed, KeyboardInterrupt, and ConfigError for a file that cannot be written.
    """
    with signals_like_ctrl_c(), tempfile.TemporaryDirectory(prefix="sample_factory_benchmark_") as folder:
        try:
            _measure_and_report(request, version, Path(folder))
        except OSError as error:
            raise ConfigError(f"cannot use {error.filename}: {error.strerror}") from error


def _measure_and_report(request: BenchmarkRequest, version: str, folder: Path) -> None:
    load = psutil.getloadavg()[0]
    request = with_chosen_values(request)
    trials = run_sweep(request, folder) if request.flags.sweep else []
    if trials:
        request = with_values(request, fastest(trials).values)
    if request.flags.sweep_cfg is not None:
        _write_cfg(request, Path(request.flags.sweep_cfg).expanduser())
    runs = run_stages(request, folder)
    stages = {name: median_run(several) for name, several in runs.items()}
    hardware = describe_hardware()
    print("\n".join(report(request, runs, hardware, load)))
    if request.flags.json is not None:
        text = json.dumps(figures(request, runs, trials, hardware) | versions(version), indent=4)
        Path(request.flags.json).expanduser().write_text(text + "\n")
    if request.flags.chart is not None:
        draw_chart(request, request.flags.chart, stages, hardware)
    if trials:
        _print_fastest(request, trials)


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


def run_sweep(request: BenchmarkRequest, folder: Path) -> list[Trial]:
    """Prints each trial. Raises StageFailed if not even the given values run."""
    sampling = request.config.sampling
    learning = request.config.learning
    seconds = (request.flags.warmup_seconds, request.flags.sweep_seconds)
    to_beat: list[float] = []
    latest: list[Stage] = []  # of the newest trial; empty if that has failed

    def measure(values: Mapping[str, int]) -> float:
        latest.clear()
        changed = with_values(request, values)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            stage = run_stage(changed.training_flags, changed.config, "training", seconds, Path(place))
        latest.append(stage)
        return stage.fps

    def print_trial(trial: Trial) -> None:
        disturbed = disturbance(latest)
        text = trial_text(trial, to_beat[-1] if to_beat else None)
        print(f"  {text} ({disturbed})" if disturbed else f"  {text}", flush=True)
        if trial.is_kept and trial.fps is not None:
            to_beat.append(trial.fps)

    each = sum(seconds) + USUAL_START_SECONDS
    print(
        f"sweep: a dozen or so training runs of about {each:.0f} s, "
        f"until about {_clock(SWEEP_RUNS * each)}; values 3 % faster are kept",
        flush=True,
    )
    known = {**vars(sampling), **vars(learning)}
    start = {name: known[name] for name in SWEPT_FLAGS}
    return sweep(start, learning.rollout, num_usable_cores(), measure, print_trial)


def run_stages(request: BenchmarkRequest, folder: Path) -> dict[str, list[Stage]]:
    """Runs the stages one after another, --repeats times; returns the runs of each.

    Prints what is measured and how long it takes, and the speed of each run.
    """
    seconds = (request.flags.warmup_seconds, request.flags.seconds)
    each = sum(seconds) + USUAL_START_SECONDS
    total = len(STAGES) * request.flags.repeats
    print(f"{total} measurements of about {each:.0f} s each, until about {_clock(total * each)}", flush=True)
    runs: dict[str, list[Stage]] = {stage: [] for stage in STAGES}
    for number, stage in enumerate([*STAGES] * request.flags.repeats, start=1):
        print(f"{number}/{total} {STAGES[stage]}, until about {_clock(each)} ... ", end="", flush=True)
        try:
            run = run_stage(request.training_flags, request.config, stage, seconds, folder)
        except BaseException:  # also Ctrl+C: the error message that follows needs a line of its own
            print(flush=True)
            raise
        print(f"{run.fps:,.0f} FPS", flush=True)
        runs[stage].append(run)
    return runs


def _clock(seconds: float) -> str:
    """Returns the time of day in that many seconds."""
    return time.strftime("%H:%M:%S", time.localtime(time.time() + seconds))


def report(
    request: BenchmarkRequest, runs: Mapping[str, Sequence[Stage]], hardware: Hardware, load: float = 0.0
) -> list[str]:
    """Returns the lines that are printed at the end. runs: of each stage. load: before them."""
    config = request.config
    stages = {name: median_run(several) for name, several in runs.items()}
    training = stages["training"]
    heading = [f"{_what(request)}, {run_length(request)}; learner {training.learner}", str(hardware)]
    tables = [
        stages_table(stages, request.others, spreads(runs), load),
        parts_table(stages["sampling"], training, counts(config)),
        memory_table(training),
    ]
    lines = ["", *(part for line in heading for part in _wrapped(line))]
    for table in tables:
        lines += ["", *table] if table else []
    limits = (part for line in _limits(request, stages) for part in _wrapped(line))
    return [*lines, "", *limits]


def _what(request: BenchmarkRequest) -> str:
    sampling = request.config.sampling
    envs = f"{sampling.num_workers} workers x {sampling.envs_per_worker} envs"
    return f"{request.config.env_name}: {envs}, batch size {request.config.learning.batch_size:,}"


def run_length(request: BenchmarkRequest) -> str:
    """Returns a text such as "median of 3 runs of 60 s (after 15 s of warm-up)"."""
    flags = request.flags
    number = "1 run" if flags.repeats == 1 else f"median of {flags.repeats} runs"
    return f"{number} of {flags.seconds:g} s (after {flags.warmup_seconds:g} s of warm-up)"


def _wrapped(line: str) -> list[str]:
    indent = line[: len(line) - len(line.lstrip())] + "  "
    return textwrap.wrap(
        line, PRINTED_WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _limits(request: BenchmarkRequest, stages: Mapping[str, Stage]) -> list[str]:
    training = stages["training"]
    in_sampling = describe_bottleneck(stages["sampling"].waits)
    in_training = describe_bottleneck(training.waits)
    if not in_training:
        return ["bottleneck: not known; the processes report every 5 s, so give it more --seconds"]
    lines = [in_sampling.replace("bottleneck", "bottleneck without learning", 1)] if in_sampling else []
    found = advice(training.waits, situation(request, training, stages["simulation"]))
    return [*lines, in_training, *(f"  {line}" for line in found)]


def situation(request: BenchmarkRequest, training: Stage, simulation: Stage) -> Situation:
    flags = request.config.flat()
    frameskip = request.config.env.env_frameskip or 1
    simulators = min(flags["num_workers"], num_usable_cores())
    has_resolution = "res_w" in flags and "res_h" in flags
    return Situation(
        flags["num_workers"],
        flags["num_envs_per_worker"],
        flags["policy_workers_per_policy"],
        flags["inline_samplers"],
        flags["batch_size"],
        flags["ppo_epochs"],
        flags["precision"],
        (flags["res_w"], flags["res_h"]) if has_resolution else None,
        on_gpu=training.device.startswith("cuda"),
        cores=num_usable_cores(),
        busy_cores=training.cores.ours if training.cores else None,
        envs=_env_counts(request.config, training),
        step_microseconds=1e6 * simulators * frameskip / simulation.fps,
        vector_env_copies=flags.get("vector_env_copies") if frameskip == 1 else None,
    )


def _env_counts(config: Config, training: Stage) -> EnvCounts:
    sampling = config.sampling
    num_envs = sampling.num_workers * sampling.envs_per_worker
    return EnvCounts(
        sampling.worker_num_splits,
        sampling.envs_per_worker // sampling.worker_num_splits,
        max(1, training.agents // num_envs),
        not sampling.async_rl,
    )


def figures(
    request: BenchmarkRequest,
    runs: Mapping[str, Sequence[Stage]],
    trials: Sequence[Trial],
    hardware: Hardware,
) -> dict[str, Any]:
    """Returns the contents of the --json file without the versions. runs: of each stage."""
    stages = {name: median_run(several) for name, several in runs.items()}
    return {
        "hardware": hardware._asdict(),
        "env": request.config.env_name,
        "flags": list(request.training_flags),
        "seconds": request.flags.seconds,
        "warmup_seconds": request.flags.warmup_seconds,
        "repeats": request.flags.repeats,
        "fps_of_repeats": {name: [run.fps for run in several] for name, several in runs.items()},
        "stages": {name: _plain(stage) for name, stage in stages.items()},
        "bottleneck": describe_bottleneck(stages["training"].waits),
        "compare": dict(request.others),
        "sweep": [trial._asdict() for trial in trials],
    }


def versions(own: str) -> dict[str, dict[str, str]]:
    """Returns the versions of the software for the --json file. own: that of this package."""
    found = {"sample_factory": own, "python": platform.python_version()}
    return {"versions": found | {name: importlib.metadata.version(name) for name in RECORDED_PACKAGES}}


def _plain(stage: Stage) -> dict[str, Any]:
    parts = {
        component: {name: part._asdict() for name, part in parts.items()}
        for component, parts in stage.parts.items()
    }
    memory = {role: memory._asdict() for role, memory in stage.memory.items()}
    cores = stage.cores._asdict() if stage.cores else None
    return {**stage._asdict(), "cores": cores, "parts": parts, "memory": memory}


def draw_chart(request: BenchmarkRequest, file: str, stages: Mapping[str, Stage], hardware: Hardware) -> None:
    bars = [Bar(STAGES[name], stage.fps, True) for name, stage in stages.items()]
    bars += [Bar(name, fps, False) for name, fps in request.others]
    notes = [str(hardware), f"blue: {run_length(request)}"]
    if request.others:
        notes.append("grey: other programs, as given by --compare")
    draw_bars(bars, _what(request), notes).savefig(Path(file).expanduser(), dpi="figure")


def _print_fastest(request: BenchmarkRequest, trials: Sequence[Trial]) -> None:
    best = fastest(trials)
    if best.values["batch_size"] != trials[0].values["batch_size"]:
        print("\nnote: --batch_size changes not only the speed, but also what is learned from a frame")
    command = shlex.join(["python", "-m", "sample_factory.train", *request.training_flags])
    print(f"\nthe fastest: {command}")


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
