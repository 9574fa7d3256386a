"""Searches flags: python -m sample_factory search --run=my_package.my_search"""

import csv
import json
import sys
import warnings
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sample_factory.config.command import Command
from sample_factory.config.experiment_folder import (
    EXPECT,
    IDENTITY,
    read_file_of_flags,
    read_json,
    write_atomically,
)
from sample_factory.launch.exit_codes import FAILED, INTERRUPTED
from sample_factory.monitoring.console import aligned
from sample_factory.runner.backend import RunnerFlags
from sample_factory.runner.grid import Grid
from sample_factory.runner.run import open_backend
from sample_factory.runner.run_job import FOLDER
from sample_factory.runner.search_description import NOTE, VALUES, SearchDescription, load_search, short
from sample_factory.runtime.safe_files import new_file, refuse_special

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

BEST = "best.json"
CSV = "trials.csv"
PICTURES = ("optimization_history", "param_importances", "parallel_coordinate")
NUM_PRINTED = 10  # trials
NOT_IN_RECIPE = (*IDENTITY, "seed", "cfg")


def run_search(flags: RunnerFlags) -> int:
    """Runs the search of flags that the module of --run describes; returns the exit code of the command."""
    module = flags.module
    try:
        from sample_factory.runner.search_trials import Search, open_study
    except ImportError as error:
        raise ImportError(f"a search needs Optuna ({error}): pip install -e '.[search]'") from None
    description = load_search(module)
    train_dir = Path(flags.train_dir).expanduser().absolute()
    folder = train_dir / description.search_name
    with open_backend(flags, folder) as backend:
        study = open_study(description, folder)
        grid = Grid(backend, flags.pause_between)
        search = Search(description, study, train_dir, grid, flags.max_parallel)
        ended = sum(trial.state.is_finished() for trial in study.trials)
        grid.board.print(f"{ended} of {description.num_trials} trials have ended; logs: {folder / FOLDER}")
        has_ended = search.run()
        grid.board.print(grid.board.counts())
    is_any_complete = write_results(study, description, train_dir)
    if not has_ended:
        print("stopped; the same command continues", flush=True)
        return INTERRUPTED
    if not is_any_complete:
        print("no trial is complete; the same command tries others", file=sys.stderr)
        return FAILED
    return 0


def write_results(study: "Study", description: SearchDescription, train_dir: Path) -> bool:
    """Writes the results of a search; returns whether any trial is complete.

    Writes a CSV file of all trials and, if a trial is complete, the flags of the best trial as a --cfg file,
    and pictures. Prints the best trials and the paths of the files.
    """
    folder = train_dir / description.search_name
    rows = [_row(trial) for trial in study.trials if trial.state.name != "WAITING"]
    columns = [*dict.fromkeys(name for row in rows for name in row if name != NOTE), NOTE]
    with new_file(folder / CSV, newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    complete = [row for row in rows if row["state"] == "complete"]
    if complete:
        best = sorted(complete, key=lambda row: row["score"], reverse=True)[:NUM_PRINTED]
        cells = [[short(row.get(name, "")) for name in columns[:-1]] for row in best]
        recipe = recipe_of(study.best_trial, description, train_dir)
        write_atomically(folder / BEST, json.dumps(recipe, indent=4) + "\n")
        print(
            "\n".join([*aligned([columns[:-1], *cells], "><>"), recipe[EXPECT], f"written: {folder / BEST}"])
        )
        print("\n".join(draw(study, folder)))
    print(f"written: {folder / CSV}", flush=True)
    return bool(complete)


def _row(trial: "FrozenTrial") -> dict[str, Any]:
    """Returns a trial's line of the CSV file as column -> value: number, state, score, a column for each env,
    parameters, note.
    An env's column holds the mean over the seeds of what SearchDescription.tag names."""
    return {
        "trial": trial.number,
        "state": trial.state.name.lower(),
        "score": trial.value,
        **{env: fmean(values) for env, values in trial.user_attrs.get(VALUES, {}).items()},
        **trial.params,
        NOTE: trial.user_attrs.get(NOTE, ""),
    }


def recipe_of(trial: "FrozenTrial", description: SearchDescription, train_dir: Path) -> dict[str, Any]:
    """Returns the contents of a --cfg file: the flags of a complete trial without env and seed, and, under
    the key EXPECT, a sentence with the values that the trial has reached."""
    run = description.rounds(trial.number, {}, train_dir)[0][0]
    typed = read_json(run.folder / "cfg.json")["cli_args"]
    flags = {**(read_file_of_flags(typed["cfg"]).values if "cfg" in typed else {}), **typed}
    means = [f"{short(fmean(values))} in {env}" for env, values in trial.user_attrs[VALUES].items()]
    length = f"{description.budget:,} {description.unit}"
    expect = f"{description.tag} {', '.join(means)} after {length}, means of {len(description.seeds)} seeds"
    return {EXPECT: expect, **{name: value for name, value in flags.items() if name not in NOT_IN_RECIPE}}


def draw(study: "Study", folder: Path) -> list[str]:
    """Draws three pictures of a search into files: history, importance and values of the parameters. Returns
    a line about each picture: its path, or why it is missing."""
    import optuna

    try:
        import matplotlib
    except ImportError as error:
        return [f"no pictures ({error}): pip install -e '.[plot]'"]
    matplotlib.use("Agg")  # without a display
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # about these functions
    lines = []
    for name in PICTURES:
        path = folder / f"{name}.png"
        try:
            refuse_special(path)
            axes = vars(optuna.visualization.matplotlib)[f"plot_{name}"](study)
            axes.figure.savefig(path, bbox_inches="tight")
            lines.append(f"written: {path}")
        except (OSError, ValueError, RuntimeError) as error:  # e.g. of too few trials
            lines.append(f"no {path.name}: {error}")
    return lines


COMMAND = Command(
    name="search",
    description="Tries flags of a space that a Python module describes, in several envs and with several "
    "seeds. Ctrl+C saves and stops; the same command continues. At the end it writes the best flags for "
    "train --cfg, a table and pictures. The module is explained in sample_factory/runner/README.md.",
    examples="""
    # Two runs at a time on this machine.
    --run=examples/search.py --max_parallel=2
    # A job for each run on a Slurm cluster.
    --run=my_package.my_search --runner=slurm --max_parallel=16
    # On a Ray cluster.
    --run=my_package.my_search --runner=ray --ray_address=auto --max_parallel=16
    """,
    run=run_search,
    sections={"search": RunnerFlags},
)
