"""Writes the results of a grid: a table of all runs as CSV, and a picture of their curves."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
    params = dict.fromkeys(name for job in jobs for name in job.run.params)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, [*COLUMNS, *(name for name in params if name not in COLUMNS)])
        writer.writeheader()
        writer.writerows(_record(job, row) for job, row in zip(jobs, rows))


def _record(job: Job, row: Row) -> Mapping[str, Any]:
    state = job.read_state()
    return {
        **{name: as_typed(value) for name, value in job.run.params.items()},
        "run": job.name,
        "state": row.state,
        "env": row.progress.env or job.run.params.get("env", ""),
        "env_frames": row.progress.env_frames or "",
        "reward": "" if math.isnan(row.progress.reward) else f"{row.progress.reward:.6g}",
        "seconds": f"{row.seconds:.1f}" if row.seconds else "",
        "exit_code": "" if state is None or state.exit_code is None else state.exit_code,
        "folder": job.folder,
    }


def draw_curves(path: Path, jobs: Sequence[Job]) -> list[str]:
    """Draws the rewards of all runs: a panel for each env, a line for each set of parameters.

    Returns lines of text: the last values of each line, and notes; or why there is no picture.
    """
    groups: dict[str, list[Path]] = {}
    for job in jobs:
        groups.setdefault(_label(job, jobs), []).append(job.folder)
    try:
        picture = plot_groups(groups, path, skip_unreadable=True)
    except (ConfigError, OSError) as error:
        return [f"no picture: {error}"]
    return [*picture.table, *picture.notes, f"written: {path}"]


def _label(job: Job, jobs: Sequence[Job]) -> str:
    """Returns the parameters of a run that are neither its seed nor its env, e.g. "learning_rate=0.001"."""
    params = {name: value for name, value in job.run.params.items() if name not in NOT_IN_LABEL}
    parts = [f"{name}={as_typed(value)}" for name, value in params.items()]
    if not parts or any(other.run.group != job.run.group for other in jobs):
        parts.insert(0, job.run.group)
    return " ".join(parts)


def last_line(log: Path) -> str:
    """Returns the last line of a log that is not empty; an empty string if there is none."""
    try:
        data = log.read_bytes()[-NUM_LOG_BYTES:]
    except FileNotFoundError:
        return ""
    lines = [line.strip() for line in data.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""
