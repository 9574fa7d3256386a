"""What a search has found: the best flags as a recipe, a table of trials, and pictures."""

import csv
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from sample_factory.config.experiment_folder import EXPECT, IDENTITY, read_file_of_flags, write_atomically
from sample_factory.plotting.plot_command import aligned
from sample_factory.runner.search_description import SearchDescription
from sample_factory.runner.search_trials import NOTE, VALUES, WORDS, short

BEST = "best.json"
CSV = "trials.csv"
NUM_PRINTED = 10  # trials
NOT_IN_RECIPE = (*IDENTITY, "seed", "cfg")
PICTURES: Mapping[str, str] = {
    "history": "plot_optimization_history",
    "importance": "plot_param_importances",
    "parallel": "plot_parallel_coordinate",
}


def complete_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Returns the complete trials, best first."""
    found = study.get_trials(states=[TrialState.COMPLETE])
    return sorted(found, key=lambda trial: trial.values, reverse=True)


def write_results(study: optuna.Study, description: SearchDescription, train_dir: Path) -> list[str]:
    """Writes CSV, BEST and the PICTURES; returns lines of text: the best trials, and what is written."""
    folder = train_dir / description.search_name
    rows = [_row(trial) for trial in study.trials if trial.state != TrialState.WAITING]
    columns = [*dict.fromkeys(name for row in rows for name in row if name != NOTE), NOTE]
    with open(folder / CSV, "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    lines = [f"written: {folder / CSV}"]
    best = complete_trials(study)[:NUM_PRINTED]
    if not best:
        return lines
    cells = [[row.get(name, "") for name in columns[:-1]] for row in map(_row, best)]
    recipe = recipe_of(best[0], description, train_dir)
    write_atomically(folder / BEST, json.dumps(recipe, indent=4) + "\n")
    lines = [*aligned([columns[:-1], *cells], "><>"), recipe[EXPECT], f"written: {folder / BEST}", *lines]
    return [*lines, *draw(study, folder)]


def _row(trial: FrozenTrial) -> dict[str, str]:
    """Returns column -> text of a trial. A number under an env is the mean of the tag over the seeds."""
    means = {env: f"{fmean(values):.3f}" for env, values in trial.user_attrs.get(VALUES, {}).items()}
    return {
        "trial": str(trial.number),
        "state": WORDS.get(trial.state, "interrupted"),
        "score": "" if trial.value is None else f"{trial.value:.3f}",
        **means,
        **{name: short(value) for name, value in trial.params.items()},
        NOTE: trial.user_attrs.get(NOTE, ""),
    }


def recipe_of(trial: FrozenTrial, description: SearchDescription, train_dir: Path) -> dict[str, Any]:
    """Returns the flags of a complete trial for --cfg, without env and seed, and what they have reached."""
    run = description.rounds(trial.number, {}, train_dir)[0][0]
    saved = json.loads((run.folder / "cfg.json").read_text())
    typed = saved["cli_args"]
    flags = {**(read_file_of_flags(typed["cfg"]).values if "cfg" in typed else {}), **typed}
    means = [f"{fmean(values):.3f} in {env}" for env, values in trial.user_attrs[VALUES].items()]
    expect = (
        f"{description.tag} {', '.join(means)} after {description.budget:,} {description.unit}, the means of "
        f"{len(description.seeds)} seeds"
    )
    return {EXPECT: expect, **{name: value for name, value in flags.items() if name not in NOT_IN_RECIPE}}


def draw(study: optuna.Study, folder: Path) -> list[str]:
    """Draws the PICTURES; returns lines of text about what is written, or why it is not."""
    try:
        import matplotlib
    except ImportError as error:
        return [f"no pictures ({error}): pip install -e '.[plot]'"]
    matplotlib.use("Agg")  # without a display
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # Optuna's own functions
    lines = []
    for name, function in PICTURES.items():
        path = folder / f"{name}.png"
        try:
            axes = vars(optuna.visualization.matplotlib)[function](study)
        except (ValueError, RuntimeError) as error:  # e.g. of too few trials
            lines.append(f"no {path.name}: {error}")
            continue
        axes.figure.savefig(path, bbox_inches="tight")
        matplotlib.pyplot.close(axes.figure)
        lines.append(f"written: {path}")
    return lines
