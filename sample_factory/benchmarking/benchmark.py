"""The benchmark: an optional sweep, three measured stages, a report, files."""

import importlib.metadata
import json
import platform
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sample_factory.benchmarking.advice import Situation, advice
from sample_factory.benchmarking.benchmark_request import BenchmarkRequest, with_values
from sample_factory.benchmarking.benchmark_table import (
    disturbance,
    memory_table,
    parts_table,
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
from sample_factory.runtime.cpu import available_cores

RECORDED_PACKAGES = ("torch", "numpy", "gymnasium")
USUAL_START_SECONDS = 6  # for the announced durations


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
    trials = run_sweep(request, folder) if request.flags.sweep else []
    if trials:
        request = with_values(request, fastest(trials).values)
    stages = run_stages(request, folder)
    hardware = describe_hardware()
    print("\n".join(report(request, stages, hardware)))
    if request.flags.json is not None:
        text = json.dumps(figures(request, stages, trials, hardware) | versions(version), indent=4)
        Path(request.flags.json).expanduser().write_text(text + "\n")
    if request.flags.chart is not None:
        draw_chart(request, request.flags.chart, stages, hardware)
    if trials:
        _print_fastest(request, trials)


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
    print(f"sweep: a dozen or so training runs of about {each:.0f} s; values 3 % faster are kept")
    known = {**vars(sampling), **vars(learning)}
    start = {name: known[name] for name in SWEPT_FLAGS}
    return sweep(start, learning.rollout, len(available_cores()), measure, print_trial)


def run_stages(request: BenchmarkRequest, folder: Path) -> dict[str, Stage]:
    """Runs the three stages one after another; prints a line for each, with its duration and its speed."""
    seconds = (request.flags.warmup_seconds, request.flags.seconds)
    stages = {}
    for stage, name in STAGES.items():
        print(f"{name} (about {sum(seconds) + USUAL_START_SECONDS:.0f} s) ... ", end="", flush=True)
        try:
            stages[stage] = run_stage(request.training_flags, request.config, stage, seconds, folder)
        except BaseException:  # also Ctrl+C: the error message that follows needs a line of its own
            print(flush=True)
            raise
        print(f"{stages[stage].fps:,.0f} FPS", flush=True)
    return stages


def report(request: BenchmarkRequest, stages: Mapping[str, Stage], hardware: Hardware) -> list[str]:
    """Returns the lines that are printed at the end."""
    config = request.config
    sampling = config.sampling
    training = stages["training"]
    heading = (
        f"{config.env_name}: {sampling.num_workers} x {sampling.num_envs_per_worker} envs, batch size "
        f"{config.learning.batch_size:,}, {request.flags.seconds:g} s each; learner {training.learner}"
    )
    tables = [
        stages_table(stages, request.others),
        parts_table(stages["sampling"], training, counts(config)),
        memory_table(training),
    ]
    lines = ["", heading, str(hardware)]
    for table in tables:
        lines += ["", *table] if table else []
    return [*lines, "", *_limits(request, stages)]


def _limits(request: BenchmarkRequest, stages: Mapping[str, Stage]) -> list[str]:
    training = stages["training"]
    in_sampling = describe_bottleneck(stages["sampling"].waits)
    in_training = describe_bottleneck(training.waits)
    if not in_training:
        return ["bottleneck: not known; the processes report every 5 s, so give it more --seconds"]
    lines = [in_sampling.replace("bottleneck", "bottleneck without learning", 1)] if in_sampling else []
    found = advice(training.waits, situation(request, training))
    return [*lines, in_training, *(f"  {line}" for line in found)]


def situation(request: BenchmarkRequest, training: Stage) -> Situation:
    flags = request.config.flat()
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
        cores=len(available_cores()),
        busy_cores=training.cores.ours if training.cores else None,
        envs=_env_counts(request.config, training),
    )


def _env_counts(config: Config, training: Stage) -> EnvCounts:
    sampling = config.sampling
    num_envs = sampling.num_workers * sampling.num_envs_per_worker
    return EnvCounts(
        sampling.worker_num_splits,
        sampling.num_envs_per_worker // sampling.worker_num_splits,
        max(1, training.agents // num_envs),
        not sampling.async_rl,
    )


def figures(
    request: BenchmarkRequest, stages: Mapping[str, Stage], trials: Sequence[Trial], hardware: Hardware
) -> dict[str, Any]:
    """Returns the contents of the --json file without the versions."""
    return {
        "hardware": hardware._asdict(),
        "env": request.config.env_name,
        "flags": list(request.training_flags),
        "seconds": request.flags.seconds,
        "warmup_seconds": request.flags.warmup_seconds,
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
    sampling = request.config.sampling
    title = f"{request.config.env_name}, {sampling.num_workers} x {sampling.num_envs_per_worker} envs"
    draw_bars(bars, title, str(hardware)).savefig(Path(file).expanduser(), dpi="figure")


def _print_fastest(request: BenchmarkRequest, trials: Sequence[Trial]) -> None:
    best = fastest(trials)
    if best.values["batch_size"] != trials[0].values["batch_size"]:
        print("\nnote: --batch_size changes not only the speed, but also what is learned from a frame")
    command = shlex.join(["python", "-m", "sample_factory.train", *request.training_flags])
    print(f"\nthe fastest: {command}")
