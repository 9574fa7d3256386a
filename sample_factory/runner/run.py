"""Runs a grid of experiments: python -m sample_factory.runner.run --run=my_package.my_grid"""

import argparse
import contextlib
import csv
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sample_factory.config.commands import RUN_GRID, Command
from sample_factory.config.experiment_folder import saved_path
from sample_factory.config.flags import ConfigError, parse_bool
from sample_factory.config.help import make_command_parser
from sample_factory.config.unknown_flags import parse_words
from sample_factory.launch.exit_codes import FAILED as EXIT_FAILED
from sample_factory.launch.exit_codes import INTERRUPTED, run_command
from sample_factory.plotting.plot_groups import plot_groups
from sample_factory.runner.backend import BACKENDS, Backend, find_backend
from sample_factory.runner.grid import FRAMES, REWARD, Grid, Row
from sample_factory.runner.run_description import as_typed, load_description
from sample_factory.runner.run_job import FAILED, FOLDER, STOPPED, Job
from sample_factory.runner.slurm import SlurmBackend
from sample_factory.runtime.files import new_file, refuse_special
from sample_factory.runtime.folder_lock import FolderInUse, FolderLock

CSV = "results.csv"
COLUMNS = ("run", "state", "env", "env_frames", "reward", "seconds", "exit_code", "folder")
NOT_IN_LABEL = ("seed", "env")  # seeds are averaged; each env has a panel of its own


def parse_arguments(argv: Sequence[str], command: Command = RUN_GRID) -> argparse.Namespace:
    """Returns the flags of RUN_GRID or SEARCH. Raises ConfigError; prints the help and exits on --help."""
    parser = make_command_parser(command)
    add = parser.add_argument
    add("--run", metavar="MODULE", help="module that describes the runs, or a file that ends in .py")
    add("--train_dir", type=Path, default="train_dir", help="folder for all runs (default: ./train_dir)")
    backends = f"what runs the experiments: {', '.join(BACKENDS)}, or module:Class (default: processes)"
    add("--runner", "--backend", default="processes", metavar="BACKEND", help=backends)
    if command is RUN_GRID:
        add("--experiment_suffix", default="", help="appended to the name of the folder of each Experiment")
    add("--pause_between", type=float, default=1.0, help="seconds between two starts (default: 1)")
    parallel = "runs at the same time; a grid on Slurm or a Ray cluster leaves it to their queue (default: 4)"
    add("--max_parallel", type=int, default=4, help=parallel)
    add("--num_gpus", type=int, default=1, help="GPUs of this machine to use (default: 1)")
    shared = "runs that share a GPU; -1: GPUs are not assigned, each run sees all of them (default: -1)"
    add("--experiments_per_gpu", type=int, default=-1, help=shared)

    add = parser.add_argument_group("Slurm").add_argument
    add("--slurm_gpus_per_job", type=int, default=1, help="GPUs of each job (default: 1)")
    cores = "CPU cores per GPU; of a job without one (default: 14)"
    add("--slurm_cpus_per_gpu", type=int, default=14, help=cores)
    parser.set_defaults(slurm_print_only=False)
    if command is RUN_GRID:
        dry = "print the script and commands, submit nothing"
        add("--slurm_print_only", type=parse_bool, help=dry)
    add("--slurm_workdir", help="folder for scripts and Slurm's logs (default: beside the logs)")
    add("--slurm_partition", help="partition of the cluster")
    template = "script that prepares the environment; $CMD in it, or its end, is where the experiment runs"
    add("--slurm_sbatch_template", metavar="FILE", help=template)
    limit = "time after which a job saves, stops and is queued again, e.g. 8h; 0: never (default: 0)"
    add("--slurm_timeout", default="0", help=limit)

    add = parser.add_argument_group("Ray").add_argument
    address = "a running cluster, e.g. auto; without it, that in RAY_ADDRESS, or one on this machine"
    add("--ray_address", help=address)
    add("--ray_cpus_per_job", type=float, default=1.0, help="CPUs of each run (default: 1)")

    arguments = parse_words(parser, argv)
    if not arguments.run:
        raise ConfigError("--run is missing: name a module that describes the runs, like --run=my_grid.py")
    for name in ("max_parallel", "num_gpus"):
        if vars(arguments)[name] < 1:
            raise ConfigError(f"--{name}={vars(arguments)[name]} should be at least 1")
    return arguments


def run_grid(argv: Sequence[str]) -> int:
    """Runs the grid that the arguments describe; returns the exit code."""
    arguments = parse_arguments(argv)
    description = load_description(arguments.run)
    train_dir = arguments.train_dir.expanduser().absolute()
    folder = train_dir / description.run_name
    jobs = description.plan(train_dir, arguments.experiment_suffix)
    if arguments.runner == "slurm" and arguments.slurm_print_only:
        slurm = SlurmBackend(arguments, folder / FOLDER)
        commands = [" ".join(slurm.sbatch(job)) for job in jobs]
        print("\n".join([slurm.script_text(jobs[0]), *commands]))
        return 0
    with open_backend(arguments, folder) as backend:
        return _run(jobs, backend, folder, arguments.pause_between)


@contextlib.contextmanager
def open_backend(arguments: argparse.Namespace, folder: Path) -> Iterator[Backend]:
    """Returns a block with the backend of --runner; keeps other runners out of the folder."""
    # Before anything is written: its constructor finds what is missing on this machine.
    backend = find_backend(arguments.runner)(arguments, folder / FOLDER)
    with contextlib.closing(backend), contextlib.ExitStack() as at_end:
        try:
            (folder / FOLDER).mkdir(parents=True, exist_ok=True)
            at_end.callback(FolderLock(folder / FOLDER).release)  # keeps other runners out
        except FolderInUse as error:
            raise ConfigError(f"{error}; wait for that runner, or stop it") from None
        except OSError as error:
            raise ConfigError(f"cannot write to {folder}: {error.strerror}") from None
        yield backend


def _run(jobs: Sequence[Job], backend: Backend, folder: Path, pause: float) -> int:
    grid = Grid(backend, pause)
    grid.board.print(f"{len(jobs)} runs in {folder}; their output: {jobs[0].files}/*.log")
    has_ended = grid.run(list(map(Row, jobs)))
    grid.board.close()
    write_table(folder / CSV, grid.rows)
    print(f"written: {folder / CSV}")
    print("\n".join(draw_curves(folder / "curves.png", jobs)), flush=True)
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
    """Writes a line for each run: COLUMNS, and the parameters of the grid. reward: of the last episodes."""
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


def draw_curves(path: Path, jobs: Sequence[Job]) -> list[str]:
    """Draws the rewards of all runs that have begun: a panel for each env, a line for each set of parameters.

    Returns lines of text: the last values of each line, and notes; or why there is no picture.
    """
    groups: dict[str, list[Path]] = {}
    has_several = len({job.folder.parent for job in jobs}) > 1
    for job in jobs:
        if saved_path(job.folder) is None:  # not begun when the grid was stopped, or nothing was learned
            continue
        params = {name: value for name, value in job.params.items() if name not in NOT_IN_LABEL}
        words = [f"{name}={as_typed(value)}" for name, value in params.items()]  # e.g. learning_rate=0.001
        label = " ".join([*([job.folder.parent.name] if has_several or not words else []), *words])
        groups.setdefault(label, []).append(job.folder)
    try:
        refuse_special(path)
        lines = plot_groups(groups, path, skip_unreadable=True)
    except (ConfigError, OSError) as error:
        return [f"no picture: {error}"]
    return [*lines, f"written: {path}"]


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 all runs are finished, 1 some have failed, 2 bad input, 130 stopped."""
    return run_command(run_grid, argv)


if __name__ == "__main__":
    sys.exit(main())
