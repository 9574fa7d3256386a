"""Where an experiment is on disk, and the files of flags that are read before anything else is known."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.config import flags
from sample_factory.config.flags import ConfigError
from sample_factory.config.sections import RunFlags

IDENTITY = ("env", "experiment", "experiments_root", "train_dir", "restart_behavior")
PLACE = ("experiment", "experiments_root", "train_dir")
SAVED = "saved cfg.json"


class FileOfFlags(NamedTuple):
    """source: what messages call it."""

    source: str
    values: Mapping[str, Any]


def experiment_folder(run: RunFlags) -> Path:
    """train_dir/[experiments_root/]experiment. Raises ConfigError for names that would lead elsewhere."""
    name, root = run.experiment, run.experiments_root or ""
    if name in ("", ".", "..") or any(mark in name for mark in "/\\") or not name.isprintable():
        raise ConfigError(
            f"--experiment={name!r} must be a plain folder name; group runs with --experiments_root"
        )
    if Path(root).is_absolute() or ".." in Path(root).parts or not root.isprintable():
        raise ConfigError(f"--experiments_root={root!r} must be a path within --train_dir, without ..")
    if not run.train_dir or "\0" in run.train_dir:
        raise ConfigError(f"--train_dir={run.train_dir!r} must be a folder; leave it out for ./train_dir")
    try:
        return Path(run.train_dir).expanduser().absolute() / root / name
    except RuntimeError as error:  # ~somebody
        raise ConfigError(f"--train_dir={run.train_dir}: {error}") from None


def read_file_of_flags(path: str) -> FileOfFlags:
    """--cfg. Raises ConfigError."""
    if not path:
        raise ConfigError("--cfg is empty; name a JSON file of flags, or leave it out")
    values = read_json(Path(path).expanduser())
    _check_identity(values, path)
    return FileOfFlags(path, values)


def read_saved(
    typed: Mapping[str, Any], file_values: Mapping[str, Any], evaluation: bool = False
) -> FileOfFlags:
    """cfg.json of the experiment if it is to be resumed or evaluated; no values if there is none.

    typed, file_values: where the experiment is. Raises ConfigError.
    """
    named = {key: typed.get(key, file_values.get(key)) for key in PLACE}
    run = RunFlags(**{key: value for key, value in named.items() if value is not None})
    folder = experiment_folder(run)
    path = _saved_path(folder)
    if evaluation and path is None:
        raise ConfigError(
            f"no experiment at {folder}: cfg.json is missing; check --experiment and --train_dir"
        )
    if path is None or typed.get("restart_behavior", "resume") != "resume":
        return FileOfFlags(SAVED, {})
    saved, source = read_json(path), f"{SAVED} {path}"
    _check_identity(saved, source)
    # The folder may have been moved or copied: where it was found is what counts.
    return FileOfFlags(source, {**saved, **{key: vars(run)[key] for key in PLACE}})


def _saved_path(folder: Path) -> Path | None:
    try:
        return next((folder / name for name in ("cfg.json", "config.json") if (folder / name).exists()), None)
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        raise ConfigError(f"cannot look into the experiment folder {folder}: {error.strerror}") from None


def read_json(path: Path) -> dict[str, Any]:
    """A file of one object. Raises ConfigError."""
    try:
        values = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} should hold one JSON object of flag names and values")
    return values


def _check_identity(values: Mapping[str, Any], source: str) -> None:
    """These are used before the types of all flags are known."""
    named = {key: values[key] for key in IDENTITY if values.get(key) is not None}
    try:
        flags.coerce(RunFlags, named, source)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def write_atomically(path: Path, text: str) -> None:
    """Raises OSError, and then leaves the file as it was."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
