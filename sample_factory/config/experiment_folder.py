"""The folder of an experiment, and the files of flags that are read before all flags are known."""

import errno
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sample_factory.config.flags import ConfigError, Layer, coerce, shortened
from sample_factory.config.sections import OWN_FOLDER, RunFlags
from sample_factory.config.trust import (
    SIGNATURE,
    TRUST,
    foreign_file,
    may_be_changed_by_others,
    refuse_links,
)
from sample_factory.config.versions import VERSIONS_KEY
from sample_factory.runtime.safe_files import new_file, open_file, refuse_special

IDENTITY = ("env", "experiment", "experiments_root", "train_dir", "restart_behavior")
SAVED = "saved cfg.json"
SAVED_NAMES = ("cfg.json", "config.json")
RESULT_FILE = "result.json"  # how the last run of an experiment has ended
# Environment variable with the path of the same file for a run that leaves no folder; the runner sets it.
RESULT_WITHOUT_FOLDER = "SAMPLE_FACTORY_RESULT_WITHOUT_FOLDER"
CHECKPOINT_ENDINGS = (".pth", ".milestone")
MAX_TEXT = 100_000  # characters of a value
MAX_BYTES = 20_000_000  # of a JSON file
NUM_LISTED = 5  # experiments in an error message
EXPECT = "expect"  # what a run with a --cfg file reaches, e.g. "a reward of about 0.8 after 300k frames"
PROVENANCE_KEYS = (
    "command_line",
    "cli_args",
    VERSIONS_KEY,
    SIGNATURE,
)  # keys of cfg.json for people to read; not flags
NOTES = (EXPECT, "comment")  # keys of a --cfg file that are texts for people, not flags


def experiment_folder(run: RunFlags) -> Path:
    """Returns train_dir/[experiments_root/]experiment. Raises ConfigError for names that lead elsewhere."""
    name = run.experiment
    root = run.experiments_root or ""
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
    except RuntimeError as error:  # e.g. ~name of an unknown user
        raise ConfigError(f"--train_dir={run.train_dir}: {error}") from None


def read_file_of_flags(path: str, is_saved: bool = False, trusts: bool = False) -> Layer:
    """Reads the file that --cfg names, without the keys in NOTES, which are texts for people and no flags.
    Raises ConfigError for a file that cannot be read.

    is_saved: the file is the cfg.json of a run. A file with this name, a file that a run has written, and any
    file in the folder of a run are treated alike. All others are recipes, trusted as if typed by the user.
    trusts: --trust_code was given.
    """
    if not path:
        raise ConfigError("--cfg is empty; name a JSON file of flags, or leave it out")
    file = Path(path).expanduser()
    values = read_json(file)
    flags_only = {key: value for key, value in values.items() if key not in NOTES}
    _check_values(flags_only, path)
    is_saved = is_saved or file.name in SAVED_NAMES or was_saved(values)
    runs = (folder for folder in file.absolute().parents if saved_path(folder) is not None)
    is_saved = is_saved or any(any(folder.glob("checkpoint_p*")) for folder in runs)
    return Layer(path, flags_only, foreign_file(file, values, trusts) if is_saved else None)


def was_saved(values: Mapping[str, Any]) -> bool:
    """Returns whether these values were written by a run, of this version or of versions 1 and 2."""
    return any(key in values for key in PROVENANCE_KEYS)


def read_expectation(path: str) -> str | None:
    """Returns the sentence in a --cfg file that says what reward to expect, stored under the key EXPECT; None
    without one. Raises ConfigError if the file cannot be read."""
    text = read_json(Path(path).expanduser()).get(EXPECT)
    return None if text is None else str(text)


def folder_flags(named: Mapping[str, Any]) -> RunFlags:
    """Returns the flags that name the experiment folder; those that are not in `named`
    (flag -> value) have their defaults."""
    return RunFlags(**{key: named[key] for key in OWN_FOLDER if named.get(key) is not None})


def read_saved(
    named: Mapping[str, Any], evaluation: bool = False, must_exist: bool = True, trusts: bool = False
) -> Layer:
    """Reads cfg.json of an experiment that is to be resumed, played or exported; the Layer has no values if
    there is no cfg.json, or if the run replaces the experiment.

    named: flag -> value; only experiment, experiments_root, train_dir and restart_behavior are used.
    evaluation: nothing is trained; then the experiment has to exist, unless must_exist is False.
    trusts: --trust_code was given. Raises ConfigError.
    """
    run = folder_flags(named)
    folder = experiment_folder(run)
    path = saved_path(folder)
    saved, damage = _read_once(path)
    # Of these very values: the file could be replaced meanwhile.
    foreign = None if path is None or damage else foreign_file(path, saved, trusts)
    is_own = path is not None and damage is None and foreign is None
    _refuse_links(folder, is_own, trusts)
    if evaluation and must_exist and path is None:
        raise ConfigError(f"no experiment at {folder}: cfg.json is missing; {_experiments_beside(folder)}")
    is_replaced = not evaluation and named.get("restart_behavior", "resume") != "resume"
    if path is None or is_replaced:
        return Layer(SAVED, {})
    if damage is not None:
        raise ConfigError(
            f"{damage}. To continue without it, delete it, and type the flags of the run again; sf_log.txt "
            "begins with them"
        )
    source = f"{SAVED} {path}"
    _check_values(saved, source)
    # The folder may have been moved or copied since cfg.json was written.
    values = {**saved, **{key: vars(run)[key] for key in OWN_FOLDER}}
    return Layer(source, values, foreign)


def refuse_foreign_links(folder: Path, trusts: bool, is_foreign: bool) -> None:
    """Protects from links that another account has put into an experiment folder: raises ConfigError for a
    link that leads out of the folder, and for other files that `refuse_links` refuses.

    Nothing is checked if there is no folder yet, or if this account has signed the folder's cfg.json and no
    other account may change the folder.

    trusts: --trust_code was given; then nothing is checked either.
    is_foreign: the config has values from a cfg.json of another account; then the folder counts as unsigned.
    """
    path = saved_path(folder)
    saved, damage = _read_once(None if is_foreign else path)
    is_own = path is not None and damage is None and not is_foreign and foreign_file(path, saved) is None
    _refuse_links(folder, is_own, trusts)


def _read_once(path: Path | None) -> tuple[dict[str, Any], ConfigError | None]:
    """Reads a cfg.json; an error is returned, so that the caller can do other checks before raising it.
    Returns (flags, None), ({}, error) if the file cannot be read, or ({}, None) without a path."""
    try:
        return ({} if path is None else read_json(path)), None
    except ConfigError as error:
        return {}, error


def _refuse_links(folder: Path, is_own: bool, trusts: bool) -> None:
    """Raises ConfigError if an experiment folder has a link that leads out of it, or another file that
    `refuse_links` refuses. Nothing is checked if only this account can have written to the folder.

    is_own: this account has signed the cfg.json in the folder. trusts: --trust_code was given; then nothing
    is checked either.
    """
    if trusts or not folder.is_dir() or (is_own and not may_be_changed_by_others(folder)):
        return
    reason = (
        "Other accounts may write to the folder" if is_own else "No cfg.json signed by this account is there"
    )
    refuse_links(folder, f"{reason}. Replace it by a copy; or add --{TRUST} if you trust the author")


def _experiments_beside(folder: Path) -> str:
    """Returns the end of an error message about a missing experiment: the newest experiments beside it."""
    files = sorted(folder.parent.glob("*/cfg.json"), key=lambda file: file.stat().st_mtime)
    names = [file.parent.name for file in files[: -NUM_LISTED - 1 : -1]]
    return f"--experiment may be {' or '.join(names)}" if names else "check --experiment and --train_dir"


def saved_path(folder: Path) -> Path | None:
    """Returns the path of an experiment's cfg.json or config.json, or None. Raises ConfigError."""
    try:
        for path in (folder / name for name in SAVED_NAMES):
            refuse_special(path)  # not a folder without settings: its checkpoints would be ignored
            if path.is_file():
                return path
    except NotADirectoryError:
        return None
    except OSError as error:  # e.g. the name is too long, or the folder may not be read
        raise ConfigError(f"cannot read the experiment folder {folder}: {error.strerror}") from None
    return None


def read_json(path: Path, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Reads a file that holds one JSON object. Raises ConfigError, also for a key that is there twice."""
    try:
        with open_file(path, "rb") as file:
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise ConfigError(f"{path} has more than {max_bytes:,} bytes, too many for such a file")
        values = json.loads(data, object_pairs_hook=_without_doubles)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} should hold one JSON object of flag names and values")
    return values


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        double = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {shortened(double)} is there twice")
    return values


def _check_values(values: Mapping[str, Any], source: str) -> None:
    """Raises ConfigError for a very long text, and for values of the wrong type among the flags in IDENTITY
    (such as env and experiment), which are used before all others are checked. source: name of the file."""
    for key, value in values.items():
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise ConfigError(
                f"{source}: {shortened(key)} has {len(value):,} characters, and may have {MAX_TEXT:,}"
            )
    coerce(RunFlags, {key: values[key] for key in IDENTITY if values.get(key) is not None}, source)


def write_atomically(path: Path, contents: str | bytes) -> None:
    """Writes a file so that readers see the old or the new contents. On OSError the old file stays."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with new_file(temporary, "w" if isinstance(contents, str) else "wb") as file:
            file.write(contents)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def append_whole(path: Path, data: bytes) -> None:
    """Appends all of the data to a file, or nothing and raises OSError. Creates the file and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_file(path, "ab", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            if file.write(data) < len(data):
                raise OSError(errno.ENOSPC, f"no room for {len(data):,} bytes")
        except OSError:
            # A truncated record would make all later ones unreadable.
            file.truncate(size)
            raise


def find_experiment(
    experiment: str | os.PathLike[str],
    train_dir: str | os.PathLike[str] | None = None,
    cfg: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Returns the flags, name -> value, by which a command finds an experiment.

    experiment: a name in train_dir, a folder, or the file of a checkpoint. A checkpoint sets the flag
        `checkpoint`, and `policy_index` if its folder is named checkpoint_pN.
    cfg: cfg.json for a checkpoint that is not in the folder of an experiment.
    Raises ConfigError for a checkpoint that does not exist or has no cfg.json, and for cfg without a
        checkpoint.
    """
    path = Path(experiment).expanduser()
    if path.suffix in CHECKPOINT_ENDINGS:
        return _flags_of_checkpoint(path.absolute(), cfg)
    if cfg is not None:
        raise ConfigError(f"cfg belongs to the file of a checkpoint, and {experiment} is none; leave it out")
    if train_dir is not None:
        return {"experiment": os.fspath(experiment), "train_dir": os.fspath(train_dir)}
    if saved_path(path) is not None or len(path.parts) > 1:
        return {"experiment": path.absolute().name, "train_dir": str(path.absolute().parent)}
    return {"experiment": os.fspath(experiment)}


def _flags_of_checkpoint(file: Path, cfg: str | os.PathLike[str] | None) -> dict[str, Any]:
    if not file.is_file():
        raise ConfigError(f"there is no checkpoint {file}")
    flags: dict[str, Any] = {"checkpoint": str(file)}
    for parent in reversed(file.parents[:2]):
        if match := re.fullmatch(r"checkpoint_p(\d+)", parent.name):
            flags["policy_index"] = int(match[1])
    if cfg is not None:
        # Names of an experiment that does not exist, so that no other cfg.json is read.
        return {**flags, "cfg": os.fspath(cfg), "experiment": file.name, "train_dir": str(file.parent)}
    for folder in file.parents[:3]:
        if saved_path(folder) is not None:
            return {**flags, "experiment": folder.name, "train_dir": str(folder.parent)}
    raise ConfigError(
        f"no cfg.json in the folders above {file}; put it beside the checkpoint, or give its path: cfg=PATH"
    )


def old_version(settings: Mapping[str, Any]) -> int | None:
    """Returns the version of Sample Factory that wrote these settings if it is 1 or 2, otherwise None."""
    if "rnn_size" in settings:
        return 2
    return 1 if "encoder_subtype" in settings and "inline_samplers" not in settings else None
