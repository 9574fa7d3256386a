"""The experiment folder at the start of a run: --restart_behavior, its lock, its log file."""

import errno
import logging
import os
import shutil
from pathlib import Path

from sample_factory.checkpoints.milestones import env_frames_of, find_checkpoints
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.runtime.folder_lock import NAME as LOCK_NAME
from sample_factory.runtime.folder_lock import FolderInUse, FolderLock
from sample_factory.runtime.log import setup_logging

log = logging.getLogger("sample_factory")

MAX_LISTED = 4  # checkpoints in a line
FILES_OF_AN_EXPERIMENT = {"cfg.json", "config.json", "sf_log.txt"}


def prepare_folder(config: Config) -> FolderLock:
    """Creates, resumes, moves aside or empties the experiment folder, as --restart_behavior says.

    Starts logging to the folder's sf_log.txt. Returns the lock that keeps other runs out of the folder.
    Raises ConfigError if the folder is in use, cannot be written to, or would be overwritten but is no
    experiment.
    """
    folder = config.experiment_dir
    behavior = config.run.restart_behavior
    try:
        contents = {path.name for path in folder.iterdir()} - {LOCK_NAME} if folder.exists() else set()
        if behavior == "overwrite" and contents and not contents & FILES_OF_AN_EXPERIMENT:
            raise ConfigError(
                f"--restart_behavior=overwrite: {folder} is no experiment (it has no cfg.json), and is not "
                "overwritten; choose another --experiment, or delete the folder yourself"
            )
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder)
        if contents and behavior != "resume":
            lock = _make_room(folder, behavior, lock)
        if not os.access(folder, os.W_OK):
            lock.release()
            raise PermissionError(errno.EACCES, "Permission denied")
    except FolderInUse as error:
        raise ConfigError(f"{error}; stop that run, or choose another --experiment") from None
    except OSError as error:
        raise ConfigError(f"cannot write to the experiment folder {folder}: {error.strerror}") from None
    setup_logging("main", str(folder / "sf_log.txt") if config.monitoring.log_to_file else None)
    log.info("Experiment folder: %s", folder)
    return lock


def _make_room(folder: Path, behavior: str, lock: FolderLock) -> FolderLock:
    """Deletes a locked experiment, or moves it aside. Returns the lock of the empty folder in its place."""
    try:
        if behavior == "overwrite":
            shutil.rmtree(folder)
        else:
            folder.rename(_unused_name(folder))
    finally:
        lock.release()
    folder.mkdir()
    return FolderLock(folder)


def _unused_name(folder: Path) -> Path:
    number = 0
    while (candidate := folder.with_name(f"{folder.name}_old{number:04d}")).exists():
        number += 1
    return candidate


def describe_last_checkpoints(config: Config) -> str:
    """Returns a sentence with the newest checkpoint of each policy, for a run that ends without saving."""
    newest = [
        paths[-1]
        for policy_id in range(config.sampling.num_policies)
        if (paths := find_checkpoints(config.experiment_dir, policy_id))
    ]
    if not newest:
        return "It did not save, and there is no checkpoint."
    listed = ", ".join(f"{path} ({env_frames_of(path):,} env frames)" for path in newest[:MAX_LISTED])
    more = ", ..." if len(newest) > MAX_LISTED else ""
    return f"It did not save; the last checkpoint is {listed}{more}"
