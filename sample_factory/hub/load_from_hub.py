"""Loads an experiment from the Hugging Face Hub.

python -m sample_factory load_from_hub --hf_repository=user/name
"""

import contextlib
import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sample_factory.config.command import Command
from sample_factory.config.experiment_folder import (
    SAVED_NAMES,
    experiment_folder,
    old_version,
    read_json,
    saved_path,
)
from sample_factory.config.flags import ConfigError, flag
from sample_factory.config.sections import RunFlags
from sample_factory.config.trust import TRUST, code_named_in, foreign_file
from sample_factory.hub.hub_access import CARD, VIDEO, HubError, download, make_api
from sample_factory.launch.command_line import main_of
from sample_factory.runtime.folder_lock import FolderInUse, FolderLock
from sample_factory.runtime.log import log

# Made by the Hub or by the download.
NOT_OF_THE_EXPERIMENT = (".gitattributes", ".cache", ".git")


@dataclass(frozen=True)
class LoadFlags:
    """Loading an experiment. Declares the flags of the command `load_from_hub`."""

    hf_repository: str | None = flag(None, "repository to load", metavar="USER/NAME", aliases=("-r",))
    train_dir: str | None = flag(
        None, "folder for the experiment; ./train_dir if left out", metavar="FOLDER", aliases=("-d",)
    )
    experiment: str | None = flag(None, "its name there; the name in USER/NAME if left out", metavar="NAME")
    revision: str | None = flag(None, "branch, tag or commit; the newest commit if left out", metavar="NAME")
    overwrite: bool = flag(False, "replace an existing experiment")


def load_from_hub(
    hf_repository: str,
    train_dir: str | os.PathLike[str] | None = None,
    experiment: str | None = None,
    *,
    overwrite: bool = False,
    revision: str | None = None,
) -> Path:
    """Downloads a repository as an experiment, and returns its folder, train_dir/experiment.

    train_dir: folder of all experiments; by default ./train_dir.
    experiment: name of the experiment; by default the name of the repository.
    overwrite: whether to replace an existing experiment.
    revision: branch, tag or commit; by default the newest commit.

    An experiment of Sample Factory 1 or 2 is converted; if that fails, a warning says why, and the folder is
    as downloaded. The folder appears when it is complete.

    Raises ConfigError for an existing experiment and a wrong name, MissingPackage without huggingface_hub,
    and HubError if the Hub cannot be reached, or has no such experiment.
    """
    api = make_api(hf_repository)
    name = experiment or hf_repository.partition("/")[2]
    place = RunFlags().train_dir if train_dir is None else os.fspath(train_dir)
    folder = experiment_folder(RunFlags(experiment=name, train_dir=place))
    if folder.exists() and not overwrite:
        raise ConfigError(
            f"{folder} exists: choose another name with --experiment=NAME, or replace it with --overwrite"
        )
    if folder.exists() and saved_path(folder) is None:
        raise ConfigError(f"--overwrite: {folder} is no experiment (it has no cfg.json), and is not replaced")
    created = [parent for parent in folder.parents if not parent.exists()]
    unfinished = folder.with_name(f".{name}.{os.getpid()}.unfinished")
    downloaded = unfinished / ".downloaded"
    try:
        downloaded.mkdir(parents=True)
        download(api, hf_repository, revision, downloaded)
        version = old_version(_clean(hf_repository, downloaded))
        _move(downloaded if version is None else _converted(downloaded, version, folder), folder)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        for parent in created:
            with contextlib.suppress(OSError):  # it holds the experiment now
                parent.rmdir()
    return folder


def _clean(repository: str, folder: Path) -> dict[str, Any]:
    """Removes files that are not part of the experiment, and symbolic links, which may lead anywhere. Returns
    the settings of the experiment. Raises HubError for a repository without an experiment, and ConfigError
    for unreadable settings."""
    for path in list(folder.rglob("*")):  # which does not follow links
        if path.is_symlink():
            log.warning("%s is a symbolic link, and is not part of the experiment", path.relative_to(folder))
            path.unlink()
    for name in NOT_OF_THE_EXPERIMENT:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        (folder / name).unlink(missing_ok=True)
    saved = saved_path(folder)
    if saved is None:
        raise HubError(f"{repository} is no experiment of Sample Factory: it has no cfg.json")
    settings = read_json(saved)
    if not any(folder.glob("checkpoint_p*/*.pth")):
        raise HubError(f"{repository} has no checkpoint, i.e. no file like checkpoint_p0/checkpoint_*.pth")
    return settings


def _converted(downloaded: Path, version: int, destination: Path) -> Path:
    """Converts an experiment of version 1 or 2. Returns the new folder, beside `downloaded`; if the
    conversion fails, which is logged, returns `downloaded` itself.
    destination: where the folder will be moved."""
    from sample_factory.hub.convert_experiment import convert_experiment  # loads torch

    log.info("Converting an experiment of Sample Factory %d ...", version)
    try:
        place = RunFlags(experiment=destination.name, train_dir=str(downloaded.parent))
        folder = convert_experiment(downloaded, place)
    except (ConfigError, ImportError) as error:
        reason = str(error).replace(str(downloaded), str(destination))
        log.warning("This experiment of Sample Factory %d was not converted: %s", version, reason)
        return downloaded
    for name in (CARD, VIDEO):
        if (downloaded / name).exists():
            shutil.copyfile(downloaded / name, folder / name)
    return folder


def _move(source: Path, folder: Path) -> None:
    """Moves `source` to `folder`; an experiment that exists in `folder` is moved beside `source`, where the
    caller deletes it. Raises ConfigError if a run uses this experiment."""
    if not folder.exists():
        source.rename(folder)
        return
    try:
        lock = FolderLock(folder)
    except FolderInUse as error:
        raise ConfigError(f"--overwrite: {error}; stop that run, or choose another --experiment") from None
    replaced = source.with_name(".replaced")
    try:
        folder.rename(replaced)
        source.rename(folder)
    finally:
        if not folder.exists() and replaced.exists():
            replaced.rename(folder)
        lock.release()


def next_commands(folder: Path) -> list[str]:
    """Returns lines of text with commands that watch, measure and continue a loaded experiment; for version 1
    or 2 a command that converts the experiment; or a warning if its settings name code."""
    path = saved_path(folder)
    settings = {} if path is None else read_json(path)
    place = [] if folder.parent == Path(RunFlags().train_dir).absolute() else [f"--train_dir={folder.parent}"]
    version = old_version(settings)
    if version is not None:
        flags = shlex.join([f"--source={folder}", f"--experiment={folder.name}_converted", *place])
        return [
            f"To use this experiment of Sample Factory {version} here, convert it:",
            f"python -m sample_factory convert {flags}",
        ]
    flags = shlex.join([f"--experiment={folder.name}", *place])
    env = settings.get("env")
    if foreign_file(folder / SAVED_NAMES[0], settings) and code_named_in(settings):
        return [
            f"{folder / SAVED_NAMES[0]} names code that would run. Read it; if you trust its author, the "
            f"commands take --{TRUST}"
        ]
    named = shlex.quote(f"--env={env}") if isinstance(env, str) and env.isprintable() else "--env=NAME"
    return [
        f"watch:    python -m sample_factory.enjoy {flags}",
        f"measure:  python -m sample_factory eval {flags}",
        f"continue: python -m sample_factory.train {named} {flags}",
    ]


def load(flags: LoadFlags) -> None:
    """Runs the command `load_from_hub`: downloads an experiment, and prints commands to use it. Raises
    ConfigError for wrong flags, MissingPackage without huggingface_hub, and HubError if the download fails.
    """
    folder = load_from_hub(**vars(flags))
    print("\n".join([f"loaded: {folder}", *next_commands(folder)]))


COMMAND = Command(
    name="load_from_hub",
    description="Downloads a repository as an experiment, which all commands accept: enjoy, eval, train.",
    examples="""
    # As train_dir/basic.
    --hf_repository=me/basic
    # Under another name.
    --hf_repository=me/basic --experiment=theirs
    # In place of an experiment that exists.
    --hf_repository=me/basic --overwrite
    """,
    run=load,
    sections={"load": LoadFlags},
)


main = main_of(COMMAND)

if __name__ == "__main__":
    sys.exit(main())
