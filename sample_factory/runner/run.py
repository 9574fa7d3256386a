"""Runs a grid of experiments: python -m sample_factory run --run=my_package.my_grid"""

import contextlib
import csv
import math
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sample_factory.config.command import Command
from sample_factory.config.experiment_folder import saved_path
from sample_factory.config.flags import ConfigError
from sample_factory.launch.command_line import main_of
from sample_factory.launch.exit_codes import FAILED as EXIT_FAILED
from sample_factory.launch.exit_codes import INTERRUPTED
from sample_factory.plotting.plot_groups import plot_groups
from sample_factory.runner.backend import Backend, GridFlags, RunnerFlags, find_backend
from sample_factory.runner.grid import FRAMES, REWARD, Grid, Row
from sample_factory.runner.run_description import NO_FILE_NAME, as_typed, load_description
from sample_factory.runner.run_job import FAILED, FOLDER, STOPPED, Job
from sample_factory.runner.slurm import SlurmBackend
from sample_factory.runtime.folder_lock import FolderInUse, FolderLock
from sample_factory.runtime.safe_files import new_file, refuse_special

COLUMNS = ("run", "state", "env", "env_frames", "reward", "seconds", "exit_code", "folder")
NOT_IN_LABEL = ("seed", "env")  # seeds are averaged; each env has a panel of its own


def run_grid(flags: GridFlags) -> int:
    """Runs the experiments that the module of --run describes; returns the exit code of the command."""
    description = load_description(flags.module)
    train_dir = Path(flags.train_dir).expanduser().absolute()
    folder = train_dir / description.run_name
    jobs = description.plan(train_dir, flags.experiment_suffix)
    if flags.runner == "slurm" and flags.slurm_print_only:
        slurm = SlurmBackend(flags, folder / FOLDER)
        commands = [shlex.join(slurm.sbatch(job)) for job in jobs]
        print("\n".join([slurm.script_text(jobs[0]), *commands]))
        return 0
    with open_backend(flags, folder) as backend:
        return _run(jobs, backend, folder, flags)


@contextlib.contextmanager
def open_backend(flags: RunnerFlags, folder: Path) -> Iterator[Backend]:
    """Returns a block with the backend of --runner, during which no other runner can use the folder.
    Raises ConfigError if another runner uses the folder, or it is not writable."""
    # Before anything is written: its constructor finds what is missing on this machine.
    backend = find_backend(flags.runner)(flags, folder / FOLDER)
    with contextlib.closing(backend), contextlib.ExitStack() as at_end:
        try:
            (folder / FOLDER).mkdir(parents=True, exist_ok=True)
            at_end.callback(FolderLock(folder / FOLDER).release)  # keeps other runners out
        except FolderInUse as error:
            raise ConfigError(f"{error}; wait for that runner, or stop it") from None
        except OSError as error:
            raise ConfigError(f"cannot write to {folder}: {error.strerror}") from None
        yield backend


def check_params(job: Job) -> None:
    """Checks that a job whose experiment has begun still has the same parameters.
    Raises ConfigError otherwise: the experiment would continue with the old parameters."""
    if not (job.folder.is_dir() and job.order.exists()):
        return
    try:
        before = set(typed_params(Job.read(job.order).params))
    except ConfigError:  # this run will fail, and no other
        return
    now = set(typed_params(job.params))
    if before != now:
        began, changed = (" ".join(sorted(words)) or "no others" for words in (before - now, now - before))
        raise ConfigError(
            f"{job.name} was begun with {began}, and its description now has {changed}; append new "
            f"experiments at the end of the grid, or delete {job.folder}"
        )


def _run(jobs: Sequence[Job], backend: Backend, folder: Path, flags: GridFlags) -> int:
    for job in jobs:
        check_params(job)
    grid = Grid(backend, flags.pause_between)
    grid.board.print(f"{len(jobs)} runs in {folder}; their output: {jobs[0].files}/*.log")
    has_ended = grid.run(list(map(Row, jobs)))
    grid.board.close()
    # A grid with another suffix has runs of its own in the same folder.
    ending = NO_FILE_NAME.sub("-", f"_{flags.experiment_suffix}" if flags.experiment_suffix else "")
    table = folder / f"results{ending}.csv"
    write_table(table, grid.rows)
    print(f"written: {table}")
    print("\n".join(draw_curves(folder / f"curves{ending}.png", jobs)), flush=True)
    failed = [row for row in grid.rows if row.state == FAILED]
    for row in failed:
        job = row.job
        print(f"FAILED: {job.name}: {row.note}; {job.log}\n    {job.last_line()}", file=sys.stderr)
    if failed:
        print("the same command starts these runs again", file=sys.stderr)
        return EXIT_FAILED
    if not has_ended or any(row.state == STOPPED for row in grid.rows):
        print("stopped; the same command continues", flush=True)
        return INTERRUPTED
    return 0


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Writes a CSV file with a line for each run: the columns COLUMNS, then a column for each parameter of
    the grid.
    The reward is the mean over the last episodes."""
    params = [name for row in rows for name in row.job.params]
    with new_file(path, newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys([*COLUMNS, *params])))
        writer.writeheader()
        for row in rows:
            job = row.job
            state = job.read_state()
            reward = row.figures[REWARD]
            cells = {
                "run": job.name,
                "state": row.state,
                "env": row.env or job.params.get("env", ""),
                "env_frames": int(row.figures[FRAMES]) or "",
                "reward": "" if math.isnan(reward) else f"{reward:.6g}",
                "seconds": f"{row.seconds:.1f}" if row.seconds else "",
                "exit_code": "" if state is None or state.exit_code is None else state.exit_code,
                "folder": job.folder,
            }
            writer.writerow({**{name: as_typed(value) for name, value in job.params.items()}, **cells})


def typed_params(params: Mapping[str, Any]) -> list[str]:
    """Formats parameters as strings "name=value", e.g. ["learning_rate=0.001"]."""
    return [f"{name}={as_typed(value)}" for name, value in params.items()]


def draw_curves(path: Path, jobs: Sequence[Job]) -> list[str]:
    """Draws the rewards of the runs that have begun into a picture: a panel for each env, and in it a
    curve for each set of parameters.
    Returns lines to print: the last values of each curve, and notes; or why the picture could not be
    drawn."""
    groups: dict[str, list[Path]] = {}
    has_several = len({job.folder.parent for job in jobs}) > 1
    for job in jobs:
        if saved_path(job.folder) is None:  # not begun when the grid was stopped, or nothing was learned
            continue
        params = {name: value for name, value in job.params.items() if name not in NOT_IN_LABEL}
        words = typed_params(params)
        label = " ".join([*([job.folder.parent.name] if has_several or not words else []), *words])
        groups.setdefault(label, []).append(job.folder)
    try:
        refuse_special(path)
        lines = plot_groups(groups, path, skip_unreadable=True)
    except (ConfigError, OSError) as error:
        return [f"no picture: {error}"]
    return [*lines, f"written: {path}"]


COMMAND = Command(
    name="run",
    description="Runs the experiments that a Python module describes, several at a time. Ctrl+C saves and "
    "stops them; the same command skips what is finished and resumes the rest. At the end it writes "
    "results.csv and curves.png. The module is explained in sample_factory/runner/README.md.",
    examples="""
    # Four runs at a time on this machine.
    --run=examples/grid.py --max_parallel=4
    # Four GPUs, three runs on each.
    --run=my_package.my_grid --max_parallel=12 --num_gpus=4 --experiments_per_gpu=3
    # A job for each run on a Slurm cluster.
    --run=my_package.my_grid --runner=slurm --slurm_gpus_per_job=1 --slurm_cpus_per_gpu=12
    """,
    run=run_grid,
    sections={"grid": GridFlags},
)


main = main_of(COMMAND)

if __name__ == "__main__":
    sys.exit(main())
