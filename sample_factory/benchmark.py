"""Measures simulation, sampling and training on this machine, and says what limits the speed.

python -m sample_factory.benchmark --env=doom_benchmark --num_workers=8 --num_envs_per_worker=16

It takes all flags of training, and some of its own: --help lists those.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import math
import platform
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sample_factory import __version__
from sample_factory.benchmarking.advice import Situation, advice
from sample_factory.benchmarking.benchmark_table import (
    disturbance,
    memory_table,
    parts_table,
    stages_table,
    trial_text,
)
from sample_factory.benchmarking.flag_sweep import SWEPT_FLAGS, Trial, fastest, sweep
from sample_factory.benchmarking.program import signals_like_ctrl_c
from sample_factory.benchmarking.run_stage import STAGES, StageFailed, counts, run_stage
from sample_factory.benchmarking.stage_measurement import Stage
from sample_factory.config.config import Config, ConfigError, parse_config
from sample_factory.config.flags import add_flags, flag
from sample_factory.monitoring.bottleneck import bottlenecks, describe_bottleneck
from sample_factory.plotting.draw_bars import Bar, check_drawing, draw_bars
from sample_factory.plotting.plot_command import OUT_SUFFIXES
from sample_factory.runtime.cpu import available_cores

if TYPE_CHECKING:
    from sample_factory.benchmarking.hardware import Hardware

USUAL_START_SECONDS = 6  # for telling how long it will take
INTERRUPTED = 130  # as shells report a program that was ended by Ctrl+C


@dataclass(frozen=True)
class BenchmarkFlags:
    """What to measure, and where the figures go."""

    seconds: float = flag(60.0, "seconds of measurement in each stage", at_least=2)
    warmup_seconds: float = flag(15.0, "seconds before it that do not count", at_least=0)
    json: str | None = flag(None, "file for all numbers, with hardware, versions and command lines")
    chart: str | None = flag(None, "picture for a bar chart of the speeds: .png, .svg or .pdf")
    compare: tuple[str, ...] = flag(
        (), "NAME=FPS: what another program reached on this machine, for table and chart; may be repeated"
    )
    sweep: bool = flag(
        False, f"first look for faster values of {', '.join(SWEPT_FLAGS)}, and measure with what was found"
    )
    sweep_seconds: float = flag(20.0, "seconds of measurement in each run of the sweep", at_least=2)


class Plan(NamedTuple):
    """What was asked for."""

    flags: tuple[str, ...]  # of training, as typed
    config: Config
    own: BenchmarkFlags
    others: tuple[tuple[str, float], ...]  # --compare


def parse_arguments(argv: Sequence[str]) -> Plan:
    """Raises ConfigError and UnknownEnvError. Prints the help and exits with 0 on --help."""
    from sample_factory.envs.env_registry import resolve_family

    argv = _join_repeated(argv)
    parser = argparse.ArgumentParser(
        prog="python -m sample_factory.benchmark",
        usage="%(prog)s --env=ENV [flags of training] [flags below]",
        epilog="The flags of training: python -m sample_factory.train --env=ENV --help. Those that say when "
        "to stop and where to write are set by the benchmark.",
        allow_abbrev=False,
        exit_on_error=False,
    )
    add_flags(parser, BenchmarkFlags, BenchmarkFlags.__doc__.rstrip("."), {})
    try:
        _, flags = parser.parse_known_args(argv)
    except argparse.ArgumentError as error:
        raise ConfigError(str(error)) from None
    config = parse_config(argv, resolve_family, extra_sections={"own": BenchmarkFlags})
    own = config.extra["own"]
    _check_files(own)
    return Plan(tuple(flags), config, own, tuple(_name_and_fps(text) for text in own.compare))


def _join_repeated(argv: Sequence[str]) -> list[str]:
    """--compare=A=1 --compare=B=2 becomes --compare A=1 B=2."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--compare", action="append", nargs="*", default=[])
    found, rest = parser.parse_known_args(list(argv))
    values = [value for several in found.compare for value in several]
    return [*rest, "--compare", *values] if values else rest


def _name_and_fps(text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        fps = float(number)
    except ValueError:
        fps = math.nan
    if not name or not 0 <= fps < math.inf:
        raise ConfigError(f"--compare={text}: should be NAME=FPS, e.g. v2=1400")
    return name, fps


def _check_files(own: BenchmarkFlags) -> None:
    """What would go wrong at the end had better go wrong at the beginning."""
    for name, file in (("json", own.json), ("chart", own.chart)):
        if file is not None and not Path(file).expanduser().absolute().parent.is_dir():
            raise ConfigError(f"--{name}={file}: there is no such folder")
    if own.chart is not None:
        if Path(own.chart).suffix.lower() not in OUT_SUFFIXES:
            raise ConfigError(f"--chart={own.chart} should end in one of {', '.join(OUT_SUFFIXES)}")
        check_drawing()


def _run(plan: Plan, stage: str, seconds: tuple[float, float], folder: Path) -> Stage:
    return run_stage(plan.flags, plan.config, stage, seconds, folder)


def with_values(plan: Plan, values: Mapping[str, int]) -> Plan:
    """The same with other values of SWEPT_FLAGS, which are typed last."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in values:
        parser.add_argument(f"--{name}")
    _, others = parser.parse_known_args(plan.flags)
    changed = [
        dataclasses.replace(section, **{name: values[name] for name in values if name in vars(section)})
        for section in (plan.config.sampling, plan.config.learning)
    ]
    config = dataclasses.replace(plan.config, sampling=changed[0], learning=changed[1])
    return plan._replace(
        flags=(*others, *(f"--{key}={value}" for key, value in values.items())), config=config
    )


def run_sweep(plan: Plan, folder: Path) -> list[Trial]:
    """Prints each trial. Raises StageFailed if not even the given values run."""
    own, sampling, learning = plan.own, plan.config.sampling, plan.config.learning
    seconds = (own.warmup_seconds, own.sweep_seconds)
    to_beat: list[float] = []
    latest: list[Stage] = []  # none if the latest one failed

    def measure(values: Mapping[str, int]) -> float:
        latest.clear()
        with tempfile.TemporaryDirectory(dir=folder) as place:
            latest.append(_run(with_values(plan, values), "training", seconds, Path(place)))
        return latest[0].fps

    def tell(trial: Trial) -> None:
        disturbed = disturbance(latest)
        text = trial_text(trial, to_beat[-1] if to_beat else None)
        print(f"  {text} ({disturbed})" if disturbed else f"  {text}", flush=True)
        if trial.is_kept:
            to_beat.append(trial.fps)

    each = sum(seconds) + USUAL_START_SECONDS
    print(f"sweep: a dozen or so training runs of about {each:.0f} s; kept is what is 3 % faster")
    known = {**vars(sampling), **vars(learning)}
    start = {name: known[name] for name in SWEPT_FLAGS}
    return sweep(start, learning.rollout, len(available_cores()), measure, tell)


def run_stages(plan: Plan, folder: Path) -> dict[str, Stage]:
    """All three, one after another, each with a line that says how long it takes and what it gave."""
    seconds = (plan.own.warmup_seconds, plan.own.seconds)
    stages = {}
    for stage, name in STAGES.items():
        print(f"{name} (about {sum(seconds) + USUAL_START_SECONDS:.0f} s) ... ", end="", flush=True)
        try:
            stages[stage] = _run(plan, stage, seconds, folder)
        except BaseException:  # a Ctrl+C too: what is told next begins in a line of its own
            print(flush=True)
            raise
        print(f"{stages[stage].fps:,.0f} FPS", flush=True)
    return stages


def report(plan: Plan, stages: Mapping[str, Stage], hardware: "Hardware") -> list[str]:
    """All that is printed in the end."""
    sampling, training = plan.config.sampling, stages["training"]
    heading = (
        f"{plan.config.run.env}: {sampling.num_workers} x {sampling.num_envs_per_worker} envs, batch size "
        f"{plan.config.learning.batch_size:,}, {plan.own.seconds:g} s each; learner {training.learner}"
    )
    tables = [
        stages_table(stages, plan.others),
        parts_table(stages["sampling"], training, counts(plan.config)),
        memory_table(training),
    ]
    lines = ["", heading, str(hardware)]
    for table in tables:
        lines += ["", *table] if table else []
    return [*lines, "", *_limits(plan, stages)]


def _limits(plan: Plan, stages: Mapping[str, Stage]) -> list[str]:
    training = stages["training"]
    in_sampling, in_training = (describe_bottleneck(stages[name].waits) for name in ("sampling", "training"))
    if not in_training:
        return ["bottleneck: not known; the processes report every 5 s, so give it more --seconds"]
    lines = [in_sampling.replace("bottleneck", "bottleneck without learning", 1)] if in_sampling else []
    guilty = bottlenecks(training.waits)
    return [*lines, in_training, *(f"  {line}" for line in advice(guilty, situation(plan, training)))]


def situation(plan: Plan, training: Stage) -> Situation:
    flags = plan.config.flat()
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
        on_gpu="cuda" in training.learner,
        cores=len(available_cores()),
        busy_cores=training.cores.ours if training.cores else None,
    )


def figures(
    plan: Plan, stages: Mapping[str, Stage], trials: Sequence[Trial], hardware: "Hardware"
) -> dict[str, Any]:
    """What goes into the --json file."""
    versions = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "gymnasium")}
    return {
        "hardware": hardware._asdict(),
        "versions": {"sample_factory": __version__, "python": platform.python_version(), **versions},
        "env": plan.config.run.env,
        "flags": list(plan.flags),
        "seconds": plan.own.seconds,
        "warmup_seconds": plan.own.warmup_seconds,
        "stages": {name: _plain(stage) for name, stage in stages.items()},
        "bottleneck": describe_bottleneck(stages["training"].waits),
        "compare": dict(plan.others),
        "sweep": [trial._asdict() for trial in trials],
    }


def _plain(stage: Stage) -> dict[str, Any]:
    parts = {
        component: {name: part._asdict() for name, part in parts.items()}
        for component, parts in stage.parts.items()
    }
    memory = {kind: memory._asdict() for kind, memory in stage.memory.items()}
    cores = stage.cores._asdict() if stage.cores else None
    return {**stage._asdict(), "cores": cores, "parts": parts, "memory": memory}


def draw_chart(plan: Plan, stages: Mapping[str, Stage], hardware: "Hardware") -> None:
    bars = [Bar(STAGES[name], stage.fps, True) for name, stage in stages.items()]
    bars += [Bar(name, fps, False) for name, fps in plan.others]
    sampling = plan.config.sampling
    title = f"{plan.config.run.env}, {sampling.num_workers} x {sampling.num_envs_per_worker} envs"
    figure = draw_bars(bars, title, str(hardware))
    figure.savefig(Path(plan.own.chart).expanduser(), dpi="figure")


def benchmark(plan: Plan, folder: Path) -> None:
    """Raises StageFailed, and OSError for a file that cannot be written."""
    trials = run_sweep(plan, folder) if plan.own.sweep else []
    if trials:
        plan = with_values(plan, fastest(trials).values)
    stages = run_stages(plan, folder)

    from sample_factory.benchmarking.hardware import describe_hardware

    hardware = describe_hardware()
    print("\n".join(report(plan, stages, hardware)))
    if plan.own.json is not None:
        text = json.dumps(figures(plan, stages, trials, hardware), indent=4)
        Path(plan.own.json).expanduser().write_text(text + "\n")
    if plan.own.chart is not None:
        draw_chart(plan, stages, hardware)
    if trials:
        _print_fastest(plan, trials)


def _print_fastest(plan: Plan, trials: Sequence[Trial]) -> None:
    first, best = trials[0], fastest(trials)
    if best.values["batch_size"] != first.values["batch_size"]:
        print("\nnote: --batch_size changes not only the speed, but also what is learned from a frame")
    print(f"\nthe fastest: {shlex.join(['python', '-m', 'sample_factory.train', *plan.flags])}")


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done, 1 a stage failed, 2 bad input, 130 interrupted."""
    from sample_factory.envs.env_registry import UnknownEnvError

    try:
        plan = parse_arguments(sys.argv[1:] if argv is None else argv)
        with signals_like_ctrl_c(), tempfile.TemporaryDirectory(prefix="sample_factory_benchmark_") as folder:
            benchmark(plan, Path(folder))
    except (ConfigError, UnknownEnvError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except StageFailed as failure:
        print(failure.report, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: cannot use {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
