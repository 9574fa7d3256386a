"""Runs a grid of experiments: python -m sample_factory.runner.run --run=my_package.my_grid"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sample_factory.config.commands import RUN_GRID
from sample_factory.config.flags import ConfigError, parse_bool
from sample_factory.config.help import make_command_parser
from sample_factory.config.unknown_flags import parse_words
from sample_factory.launch.exit_codes import FAILED as EXIT_FAILED
from sample_factory.launch.exit_codes import INTERRUPTED, run_command
from sample_factory.runner.backend import BACKENDS, Backend, find_backend
from sample_factory.runner.board import Board, Row
from sample_factory.runner.grid import Grid
from sample_factory.runner.jobs import FAILED, FOLDER, Job
from sample_factory.runner.load_description import load_description
from sample_factory.runner.results import CSV, PICTURE, draw_curves, last_line, write_table
from sample_factory.runner.slurm import SlurmBackend
from sample_factory.runtime.folder_lock import FolderInUse, FolderLock


def _make_parser() -> argparse.ArgumentParser:
    parser = make_command_parser(RUN_GRID)
    add = parser.add_argument
    add("--run", metavar="MODULE", help="module that defines RUN_DESCRIPTION, or a file that ends in .py")
    add(
        "--train_dir", type=Path, default=Path("train_dir"), help="folder for all runs (default: ./train_dir)"
    )
    add(
        "--runner",
        "--backend",
        default="processes",
        metavar="BACKEND",
        help=f"what runs the experiments: {', '.join(BACKENDS)}, or module:Class (default: processes)",
    )
    add("--experiment_suffix", default="", help="appended to the name of the folder of each Experiment")
    add("--pause_between", type=float, default=1.0, help="seconds between two starts (default: 1)")
    add(
        "--max_parallel",
        type=int,
        default=4,
        help="runs at the same time; for Slurm and a Ray cluster, their queue decides (default: 4)",
    )
    add("--num_gpus", type=int, default=1, help="GPUs of this machine to use (default: 1)")
    add(
        "--experiments_per_gpu",
        type=int,
        default=-1,
        help="runs that share a GPU; -1: GPUs are not assigned, each run sees all of them (default: -1)",
    )
    _add_cluster_flags(parser)
    return parser


def _add_cluster_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Slurm")
    group.add_argument("--slurm_gpus_per_job", type=int, default=1, help="GPUs of each job (default: 1)")
    group.add_argument(
        "--slurm_cpus_per_gpu",
        type=int,
        default=14,
        help="CPU cores per GPU; of a job without one (default: 14)",
    )
    group.add_argument(
        "--slurm_print_only",
        type=parse_bool,
        default=False,
        help="print the script and commands, submit nothing",
    )
    group.add_argument(
        "--slurm_workdir", help="folder for scripts and Slurm's logs (default: beside the logs)"
    )
    group.add_argument("--slurm_partition", help="partition of the cluster")
    group.add_argument(
        "--slurm_sbatch_template",
        metavar="FILE",
        help="script that prepares the environment; $CMD in it, or its end, is where the experiment runs",
    )
    group.add_argument(
        "--slurm_timeout",
        default="0",
        help="time after which a job saves, stops and is queued again, e.g. 8h; 0: never (default: 0)",
    )
    group = parser.add_argument_group("Ray")
    group.add_argument(
        "--ray_address",
        help="a running cluster, e.g. auto; without it, that in RAY_ADDRESS, or one on this machine",
    )
    group.add_argument("--ray_cpus_per_job", type=float, default=1.0, help="CPUs of each run (default: 1)")


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Raises ConfigError. Prints the help and exits with 0 on --help."""
    parser = _make_parser()
    arguments = parse_words(parser, argv)
    if not arguments.run:
        raise ConfigError(
            "--run is missing: name a module that defines RUN_DESCRIPTION, like --run=my_grid.py"
        )
    for name in ("max_parallel", "num_gpus"):
        if vars(arguments)[name] < 1:
            raise ConfigError(f"--{name}={vars(arguments)[name]} should be at least 1")
    return arguments


def plan_jobs(arguments: argparse.Namespace) -> tuple[Path, list[Job]]:
    """Returns the folder of the grid, and all jobs. Raises ConfigError and CommandFailed."""
    description = load_description(arguments.run)
    description.experiment_suffix = arguments.experiment_suffix
    train_dir = arguments.train_dir.expanduser().absolute()
    folder = train_dir / description.run_name
    runs = description.plan(train_dir)
    return folder, [Job(run, folder / run.group / run.name, folder / FOLDER) for run in runs]


def run_grid(argv: Sequence[str]) -> int:
    """Runs the grid that the arguments describe; returns the exit code."""
    arguments = parse_arguments(argv)
    folder, jobs = plan_jobs(arguments)
    if arguments.runner == "slurm" and arguments.slurm_print_only:
        _print_slurm(SlurmBackend(arguments, folder / FOLDER), jobs)
        return 0
    # Before anything is written: its constructor finds what is missing on this machine.
    backend = find_backend(arguments.runner)(arguments, folder / FOLDER)
    try:
        lock = _lock(folder)
        try:
            return _run(jobs, backend, folder, arguments.pause_between)
        finally:
            lock.release()
    finally:
        backend.close()


def _lock(folder: Path) -> FolderLock:
    """Creates the folder of a grid and keeps other runners out of it. Raises ConfigError."""
    try:
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        return FolderLock(folder / FOLDER)
    except FolderInUse as error:
        raise ConfigError(f"{error}; wait for that runner, or stop it") from None
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}") from None


def _run(jobs: Sequence[Job], backend: Backend, folder: Path, pause: float) -> int:
    board = Board()
    board.print(f"{len(jobs)} runs in {folder}; their output: {folder / FOLDER}/*.log")
    grid = Grid(jobs, backend, board, pause)
    has_ended = grid.run()
    board.close(grid.rows)
    write_table(folder / CSV, jobs, grid.rows)
    print(f"written: {folder / CSV}")
    print("\n".join(draw_curves(folder / PICTURE, jobs)), flush=True)
    if any(row.state == FAILED for row in grid.rows):
        _print_failures(jobs, grid.rows)
        return EXIT_FAILED
    if not has_ended:
        print("stopped; the same command continues", flush=True)
        return INTERRUPTED
    return 0


def _print_failures(jobs: Sequence[Job], rows: Sequence[Row]) -> None:
    """Prints why each failed run has failed, and where its output is."""
    for job, row in zip(jobs, rows):
        if row.state == FAILED:
            print(f"FAILED: {job.name}: {row.note}; {job.log}\n    {last_line(job.log)}", file=sys.stderr)
    print("the same command starts these runs again", file=sys.stderr)


def _print_slurm(backend: SlurmBackend, jobs: Sequence[Job]) -> None:
    """Prints the script of the first job, and the command that would submit each."""
    print(backend.script_text(jobs[0]))
    for job in jobs:
        print(" ".join(backend.sbatch(job)))


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 all runs are finished, 1 some have failed, 2 bad input, 130 stopped."""
    return run_command(run_grid, argv)


if __name__ == "__main__":
    sys.exit(main())
