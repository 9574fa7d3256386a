"""Which experiment a user means in Python code: a name, a folder, or a checkpoint in it."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.config.flags import ConfigError

SAVED_NAMES = ("cfg.json", "config.json")
CHECKPOINT_ENDINGS = (".pth", ".milestone")


class NamedExperiment(NamedTuple):
    """keywords: the flags that name the experiment. checkpoint: a file in it, if that was given.

    policy_index: of the checkpoint, from the name of its folder; None if it has another name.
    """

    keywords: dict[str, Any]
    checkpoint: Path | None = None
    policy_index: int | None = None


def find_experiment(
    experiment: str | os.PathLike[str],
    train_dir: str | os.PathLike[str] | None = None,
    cfg: str | os.PathLike[str] | None = None,
) -> NamedExperiment:
    """Returns what a user means by `experiment`: a name in train_dir, a folder, or the file of a checkpoint.

    cfg: the cfg.json that belongs to a checkpoint which lies in no experiment. Raises ConfigError.
    """
    path = Path(experiment).expanduser()
    if path.suffix in CHECKPOINT_ENDINGS:
        return _experiment_of(path.absolute(), cfg)
    if cfg is not None:
        raise ConfigError(f"cfg belongs to the file of a checkpoint, and {experiment} is none; leave it out")
    is_folder = any((path / name).is_file() for name in SAVED_NAMES) or len(path.parts) > 1
    if train_dir is None and is_folder:
        folder = path.absolute()
        return NamedExperiment({"experiment": folder.name, "train_dir": str(folder.parent)})
    place = {} if train_dir is None else {"train_dir": os.fspath(train_dir)}
    return NamedExperiment({"experiment": os.fspath(experiment), **place})


def _experiment_of(file: Path, cfg: str | os.PathLike[str] | None) -> NamedExperiment:
    if not file.is_file():
        raise ConfigError(f"there is no checkpoint {file}")
    folders = [re.fullmatch(r"checkpoint_p(\d+)", parent.name) for parent in file.parents[:2]]
    policy_index = next((int(match[1]) for match in folders if match), None)
    if cfg is not None:
        # Names of an experiment that does not exist, so that no other cfg.json is read.
        keywords = {"cfg": os.fspath(cfg), "experiment": file.name, "train_dir": str(file.parent)}
        return NamedExperiment(keywords, file, policy_index)
    for folder in file.parents[:3]:
        if any((folder / name).is_file() for name in SAVED_NAMES):
            keywords = {"experiment": folder.name, "train_dir": str(folder.parent)}
            return NamedExperiment(keywords, file, policy_index)
    raise ConfigError(
        f"no cfg.json in the folders above {file}; put it beside the checkpoint, or give its path: cfg=PATH"
    )


def old_version(settings: Mapping[str, Any]) -> int | None:
    """Returns 1 or 2 for settings of Sample Factory 1 or 2, None for those of this version."""
    if "rnn_size" in settings:
        return 2
    return 1 if "encoder_subtype" in settings and "inline_samplers" not in settings else None
