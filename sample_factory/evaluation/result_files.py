"""Files with the results of evaluations: --json and --csv."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError, flag
from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.evaluation.result_statistics import LevelMatrix
from sample_factory.evaluation.results import Evaluation


@dataclass(frozen=True)
class ResultFlags:
    """Files for the results. Declares the flags --json and --csv of the commands `eval` and `enjoy`."""

    json: str | None = flag(None, "file for all statistics and the result of each episode", is_output=True)
    csv: str | None = flag(None, "file for a table with a row for each episode", is_output=True)


def result_figures(
    config: Config, evaluations: Sequence[Evaluation], failure: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the contents of a --json file. May contain NaN and infinity, which `write_json` replaces.
    failure: identifies the checkpoint whose evaluation failed, with the reason; None if none has failed."""
    return {
        "experiment": str(config.experiment_dir),
        "env": config.env_name,
        "deterministic": config.evaluation.eval_deterministic,
        "evaluations": [evaluation.figures() for evaluation in evaluations],
        "matrix": None if (matrix := level_matrix(config, evaluations)) is None else matrix.figures(),
        "failure": failure,
    }


def level_matrix(config: Config, evaluations: Sequence[Evaluation]) -> LevelMatrix | None:
    """Returns the mean true objective of each checkpoint in each level; None for a single checkpoint, and for
    an env without levels."""
    of_rows = [evaluation.by_level for evaluation in evaluations]
    levels = list(dict.fromkeys(level for of_levels in of_rows for level in of_levels))
    if len(evaluations) < 2 or not levels:
        return None
    means = [
        [of_levels[level].true_objective.mean if level in of_levels else math.nan for level in levels]
        for of_levels in of_rows
    ]
    # Typed levels may be others than those of the training.
    has_own_levels = not any("levels" in name or name == "env" for name in config.typed)
    is_sequence = config.env.level_choice == "sequence" and has_own_levels
    return LevelMatrix([str(own.choices[0]) for own in evaluations], levels, means, is_sequence)


def write_results(
    config: Config, evaluations: Sequence[Evaluation], failed: PolicyChoice | None = None, reason: str = ""
) -> None:
    """Writes the files of --json and --csv, if the flags are set. Raises ConfigError for a file that cannot
    be written.
    failed, reason: the checkpoint whose evaluation failed and ended the command, and why."""
    flags = config.extra.get("results", ResultFlags())
    failure = None if failed is None else {**failed._asdict(), "reason": reason}
    rows = [row for evaluation in evaluations for row in evaluation.rows()]
    if failed is not None:
        rows.append({"checkpoint": failed.checkpoint, "policy": failed.policy_index, "failure": reason})
    table = io.StringIO()
    writer = csv.DictWriter(table, list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows(rows)
    write_json(flags.json, result_figures(config, evaluations, failure))
    _write_file("csv", flags.csv, table.getvalue())


def write_json(name: str | None, figures: Mapping[str, Any]) -> None:
    """Writes the --json file `name`, with null in place of numbers that are not finite; does nothing if
    `name` is None. Raises ConfigError if the file cannot be written."""
    _write_file("json", name, json.dumps(finite(figures), indent=4, allow_nan=False) + "\n")


def _write_file(flag_name: str, name: str | None, text: str) -> None:
    if name is None:
        return
    try:
        Path(name).expanduser().write_text(text, newline="")
    except OSError as error:
        raise ConfigError(f"--{flag_name}={name}: {error.strerror}") from None


def finite(value: Any) -> Any:
    """Returns a copy of nested mappings, lists and numbers with None in place of NaN and infinity, which JSON
    lacks."""
    if isinstance(value, Mapping):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
