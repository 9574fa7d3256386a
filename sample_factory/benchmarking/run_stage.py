"""Runs one stage of a benchmark: the real command, in a process of its own."""

import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from sample_factory.benchmarking.flag_sweep import DoesNotRun
from sample_factory.benchmarking.program import FinishedProgram, run_program
from sample_factory.benchmarking.stage_measurement import (
    Counts,
    NotMeasured,
    Stage,
    measure_run,
    measure_simulation,
)
from sample_factory.config.config import Config
from sample_factory.config.flags import NEVER
from sample_factory.monitoring.figures import read_figures

# Stage -> what it is called.
STAGES = {
    "simulation": "simulation, random actions",
    "sampling": "sampling, no learning",
    "training": "training",
}
STATUS_SECONDS = 1  # between the figures that a stage writes
STUCK_SECONDS = 300.0  # beyond start and measurement: a slow machine may take some of them to stop
NUM_LAST_LINES = 20


class StageFailed(DoesNotRun):
    """A stage that failed, or ran without anything to measure; the message has the end of its output."""

    def __init__(self, stage: str, reason: str, output: str = ""):
        lines = output.rstrip().splitlines()[-NUM_LAST_LINES:]
        heading = f"{stage}: {reason}"
        message = "\n".join([f"{heading}; the end of its output:", *lines] if lines else [heading])
        super().__init__(message, lines[-1] if lines else reason)


def counts(config: Config) -> Counts:
    """Returns the number of processes of each kind, and the size of their work."""
    sampling = config.sampling
    learning = config.learning
    return Counts(
        config.env.env_frameskip or 1,
        sampling.num_workers,
        sampling.num_policies * (sampling.inline_samplers or sampling.policy_workers_per_policy),
        sampling.num_policies,
        learning.batch_size * learning.num_batches_per_iteration,
    )


def run_stage(
    flags: Sequence[str], config: Config, stage: str, seconds: tuple[float, float], folder: Path
) -> Stage:
    """Runs a stage and returns what was measured. Raises StageFailed.

    seconds: of warm-up and measurement. folder: for the files that the run writes.
    """
    total = math.ceil(sum(seconds)) + STATUS_SECONDS
    figures_file = folder / f"{stage}.jsonl"
    command = [sys.executable, "-m", *_command(flags, config, stage, total, folder)]
    command += [f"--figures_file={figures_file}", f"--status_interval={STATUS_SECONDS}"]
    limit = config.sampling.reset_timeout_seconds + total + STUCK_SECONDS
    program = run_program(command, folder / f"{stage}.txt", limit)
    _check_ended_well(program, stage, limit)
    text = shlex.join(["python", *command[1:]])
    figures = read_figures(figures_file)
    try:
        if stage == "simulation":
            return measure_simulation(text, program, figures, seconds[0])
        measured = measure_run(text, program, figures, seconds, counts(config))
    except NotMeasured as error:
        raise StageFailed(STAGES[stage], str(error)) from None
    if stage == "training":
        return measured
    # Without learning the learner only counts frames.
    parts = {component: parts for component, parts in measured.parts.items() if component != "learner"}
    return measured._replace(parts=parts)


def _command(flags: Sequence[str], config: Config, stage: str, seconds: int, folder: Path) -> list[str]:
    """Returns module and flags. Where a flag is given twice, the last value counts."""
    if stage == "simulation":
        sampling = config.sampling
        same = [f"--{name}={vars(sampling)[name]}" for name in ("num_envs_per_worker", "worker_num_splits")]
        return ["sample_factory.dummy_sampler", *flags, *same, f"--timeout_seconds={seconds}"]
    fixed = [
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
    ]
    if stage == "sampling":
        fixed.append("--async_rl=True")  # without learning there is nothing to alternate with
    return ["sample_factory.train", *flags, *fixed]


def _check_ended_well(program: FinishedProgram, stage: str, limit: float) -> None:
    if program.exit_code is None:
        raise StageFailed(STAGES[stage], f"did not end within {limit:.0f} s", program.output)
    if program.exit_code != 0:
        raise StageFailed(STAGES[stage], f"failed with exit code {program.exit_code}", program.output)
