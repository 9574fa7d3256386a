"""The experiment folder at the start of a run: --restart_behavior, its lock, its log file."""

import contextlib
import errno
import itertools
import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sample_factory.checkpoints.milestones import delete_snapshots
from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import refuse_foreign_links
from sample_factory.config.flags import ConfigError
from sample_factory.config.trust import writable_by_all
from sample_factory.config.versions import describe_versions, versions
from sample_factory.mainloop.next_commands import relative_path
from sample_factory.runtime.folder_lock import NAME as LOCK_NAME
from sample_factory.runtime.folder_lock import FolderInUse, FolderLock
from sample_factory.runtime.log import details, log, setup_logging

FILES_OF_AN_EXPERIMENT = {"cfg.json", "config.json", "sf_log.txt"}


@dataclass(frozen=True)
class ExperimentFolder:
    """The experiment folder of a run, which is locked for this run.

    lock: keeps other runs out of the folder.
    created: the folders that did not exist before this run, the innermost first.
    moved_aside: with --restart_behavior=restart, the new path of the experiment that was in the folder
        before.
    """

    path: Path
    lock: FolderLock
    created: Sequence[Path] = ()
    moved_aside: Path | None = None

    def leave(self, stays: bool) -> None:
        """Releases the lock, so that this process, or another, can resume the experiment.

        Unless the folder `stays`, removes the folder and its parents if they did not exist before this run,
        and moves back the experiment that was moved aside.
        """
        self.lock.release()
        if stays or not self.created:
            return
        setup_logging("main")  # closes the log file
        with contextlib.suppress(FileNotFoundError):  # the user has deleted it during the run
            shutil.rmtree(self.path)
        if self.moved_aside is not None:
            self.moved_aside.rename(self.path)
        _remove_empty(self.created[1:])


def refuse_folder_in_use(config: Config) -> None:
    """Raises ConfigError if another run uses the experiment folder. Keeps no lock on the folder."""
    if not (config.experiment_dir / LOCK_NAME).exists():
        return
    try:
        FolderLock(config.experiment_dir).release()
    except FolderInUse as error:
        raise _in_use(error) from None
    except OSError:  # it cannot be written to, of which prepare_folder says more
        return


def _in_use(error: FolderInUse) -> ConfigError:
    return ConfigError(f"{error}; stop that run, or choose another --experiment")


def prepare_folder(config: Config) -> ExperimentFolder:
    """Creates, resumes, moves aside or empties the experiment folder, as --restart_behavior says, and starts
    logging to its sf_log.txt. Returns the folder, locked.

    Raises ConfigError if the folder is in use, cannot be written to, or is to be overwritten but is no
    experiment.
    """
    try:
        return _prepare(config)
    except FolderInUse as error:
        raise _in_use(error) from None
    except OSError as error:
        path = config.experiment_dir
        raise ConfigError(f"cannot write to the experiment folder {path}: {error.strerror}") from None


def _prepare(config: Config) -> ExperimentFolder:
    """Does the work of `prepare_folder`. If it raises, it undoes what it has created and locked."""
    path = config.experiment_dir
    behavior = config.run.restart_behavior
    contents = {file.name for file in path.iterdir()} - {LOCK_NAME} if path.exists() else set()
    if behavior == "overwrite" and contents and not contents & FILES_OF_AN_EXPERIMENT:
        raise ConfigError(
            f"--restart_behavior=overwrite: {path} is no experiment (it has no cfg.json), and is not "
            "overwritten; choose another --experiment, or delete the folder yourself"
        )
    refuse_foreign_links(path, config.run.trust_code, config.is_foreign)
    created = [folder for folder in (path, *path.parents) if not folder.exists()]
    with contextlib.ExitStack() as undoing:
        path.mkdir(parents=True, exist_ok=True)
        undoing.callback(_remove_empty, created)
        folder = ExperimentFolder(path, FolderLock(path), created)
        undoing.callback(lambda: folder.leave(stays=False))
        if contents and behavior != "resume":
            folder = _make_room(folder, behavior)
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, "Permission denied")
        delete_snapshots(path)  # left by a run that was killed
        _begin_log(config)
        undoing.pop_all()
    return folder


def _begin_log(config: Config) -> None:
    path = config.experiment_dir
    setup_logging("main", str(path / "sf_log.txt") if config.monitoring.log_to_file else None)
    log.info("%s", describe_versions(versions()), extra={"on_terminals": False})
    flags = details(f"flags: {shlex.join(config.argv)}")
    log.info("Experiment folder: %s", relative_path(path), extra=flags)
    writable = writable_by_all(path)
    if writable is not None:
        log.warning(
            "Every account of this machine may change files in %s, such as checkpoints; "
            "chmod o-w %s prevents it",
            path,
            shlex.quote(str(writable)),
        )


def _remove_empty(folders: Sequence[Path]) -> None:
    """Removes those of these folders that are empty, in the given order."""
    for folder in folders:
        with contextlib.suppress(OSError):  # another run has begun in it
            folder.rmdir()


def _make_room(folder: ExperimentFolder, behavior: str) -> ExperimentFolder:
    """Deletes a locked experiment, or moves it aside. Returns a new, empty, locked folder in its place."""
    moved_aside = None
    try:
        if behavior == "overwrite":
            shutil.rmtree(folder.path)
        else:
            names = (folder.path.with_name(f"{folder.path.name}_old{i:04d}") for i in itertools.count())
            moved_aside = folder.path.rename(next(name for name in names if not name.exists()))
    finally:
        folder.lock.release()
    folder.path.mkdir()
    return ExperimentFolder(folder.path, FolderLock(folder.path), [folder.path], moved_aside)
