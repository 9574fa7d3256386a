"""Writes the results of a grid: a table of all runs as CSV, and a picture of their curves."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path

from sample_factory.config.flags import ConfigError
from sample_factory.plotting.plot_groups import plot_groups
from sample_factory.runner.board import Row
from sample_factory.runner.jobs import Job
from sample_factory.runner.run_description import as_typed

CSV = "results.csv"
PICTURE = "curves.png"
COLUMNS = ("run", "state", "env", "env_frames", "reward", "seconds", "exit_code", "folder")
NOT_IN_LABEL = ("seed", "env")  # seeds are averaged; each env has a panel of its own
NUM_LOG_BYTES = 4096  # of the end of a log


def write_table(path: Path, jobs: Sequence[Job], rows: Sequence[Row]) -> None:
    """Writes a line for each run: COLUMNS, and the parameters of the grid. reward: of the last episodes."""
    params = dict.fromkeys(name for job in jobs for name in job.params)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, [*COLUMNS, *(name for name in params if name not in COLUMNS)])
        writer.writeheader()
        for job, row in zip(jobs, rows):
            state = job.read_state()
            progress = row.progress
            cells = {
                "run": job.name,
                "state": row.state,
                "env": progress.env or job.params.get("env", ""),
                "env_frames": progress.env_frames or "",
                "reward": "" if math.isnan(progress.reward) else f"{progress.reward:.6g}",
                "seconds": f"{row.seconds:.1f}" if row.seconds else "",
                "exit_code": "" if state is None or state.exit_code is None else state.exit_code,
                "folder": job.folder,
            }
            writer.writerow({**{name: as_typed(value) for name, value in job.params.items()}, **cells})


def draw_curves(path: Path, jobs: Sequence[Job]) -> list[str]:
    """Draws the rewards of all runs: a panel for each env, a line for each set of parameters.

    Returns lines of text: the last values of each line, and notes; or why there is no picture.
    """
    groups: dict[str, list[Path]] = {}
    has_several = len({job.group for job in jobs}) > 1
    for job in jobs:
        params = {name: value for name, value in job.params.items() if name not in NOT_IN_LABEL}
        words = [f"{name}={as_typed(value)}" for name, value in params.items()]  # e.g. learning_rate=0.001
        label = " ".join([*([job.group] if has_several or not words else []), *words])
        groups.setdefault(label, []).append(job.folder)
    try:
        picture = plot_groups(groups, path, skip_unreadable=True)
    except (ConfigError, OSError) as error:
        return [f"no picture: {error}"]
    return [*picture.table, *picture.notes, f"written: {path}"]


def last_line(log: Path) -> str:
    """Returns the last line of a log that is not empty; an empty string if there is none."""
    try:
        data = log.read_bytes()[-NUM_LOG_BYTES:]
    except FileNotFoundError:
        return ""
    lines = [line.strip() for line in data.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""
