"""Checkpoint files of one policy: written atomically, verified when read, never lost."""

import errno
import logging
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from sample_factory.checkpoints.file_format import read_state
from sample_factory.checkpoints.milestones import checkpoint_folder, milestone_path, milestones_of
from sample_factory.runtime.command_failed import CommandFailed

log = logging.getLogger("sample_factory")

TEMPORARY_NAME = ".temp_checkpoint"  # no glob for checkpoints matches it


class CheckpointError(CommandFailed):
    """Checkpoints exist, but none can be used."""


class Checkpoints:
    """The folder checkpoint_p<policy> of an experiment. Promises:

    1. A file under a checkpoint's name is complete: it was written under another name, synced and renamed.
    2. The newest `keep` checkpoints stay, and so does every milestone and the best one.
    3. `load` never returns nothing over existing checkpoints: it falls back to an older one, or raises.
    """

    def __init__(self, experiment_dir: Path, policy_id: int, keep: int):
        self._experiment_dir, self._policy_id, self._keep = Path(experiment_dir), policy_id, keep
        self.folder = checkpoint_folder(experiment_dir, policy_id)

    def save(self, state: Mapping[str, Any], version: int, env_frames: int) -> Path | None:
        """Writes checkpoint_<version>_<env frames>.pth, deletes the oldest. None when the disk refused."""
        path = self._write(state, self.folder / f"checkpoint_{version:09d}_{env_frames}.pth")
        if path is not None:
            _delete(old for old in self._sorted("checkpoint")[: -self._keep] if old != path)
        return path

    def supersede(self, version: int) -> None:
        """Training goes on from `version`: moves later checkpoints into superseded/, which nobody reads.

        Otherwise the newest of what is saved from now on would count as older than those.
        """
        later = [path for path in self._sorted("checkpoint") if version_of(path) > version]
        for path in later:
            (self.folder / "superseded").mkdir(exist_ok=True)
            os.replace(path, self.folder / "superseded" / path.name)
        if later:
            log.warning(
                "Moved %d checkpoints that are later than the loaded one into superseded/", len(later)
            )

    def save_milestone(self, state: Mapping[str, Any], version: int, env_frames: int) -> Path | None:
        """Writes a checkpoint that is never deleted."""
        return self._write(state, milestone_path(self._experiment_dir, self._policy_id, version, env_frames))

    def save_best(
        self, state: Mapping[str, Any], version: int, env_frames: int, metric: str, value: float
    ) -> Path | None:
        """Writes best_<version>_<env frames>_<metric>_<value>.pth in place of the best one so far."""
        metric = re.sub(r"[^\w.-]", "_", metric)  # an env may call its statistics as it likes
        path = self._write(state, self.folder / f"best_{version:09d}_{env_frames}_{metric}_{value:.3f}.pth")
        if path is not None:
            _delete(old for old in self._sorted("best") if old != path)
        return path

    def save_donation(self, state: Mapping[str, Any]) -> Path | None:
        """Writes the file that another policy takes over; there is one, and no checkpoint to resume from."""
        return self._write(state, self.folder / "donation.pth")

    def load(
        self, kind: str = "latest", check: Callable[[dict[str, Any]], None] = lambda state: None
    ) -> dict[str, Any] | None:
        """The newest readable checkpoint of a kind ("latest" or "best"), or None if there never was one.

        `check(state)` raises if the contents do not fit. Raises CheckpointError if files exist but none is
        usable.
        """
        paths = self._sorted("checkpoint" if kind == "latest" else "best")
        milestones = self.milestones()
        if kind == "latest" and not paths and milestones:
            raise CheckpointError(
                f"{self.folder} has milestones, but no checkpoint to go on from; copy one there: "
                f"{shlex.join(['cp', str(milestones[-1]), str(self.folder / milestones[-1].stem)])}"
            )
        failures: dict[str, list[str]] = {}  # reason -> names
        for path in reversed(paths):
            try:
                state = read_state(path)
                check(state)
            except Exception as error:  # whatever a damaged file makes the reader raise
                if not os.path.lexists(path):  # a run that is still training has saved a newer one since
                    return self.load(kind, check)
                reason = _reason(error)
                failures.setdefault(reason, []).append(path.name)
                log.error("CANNOT USE CHECKPOINT %s: %s", path, reason)
                continue
            log.info("Loaded checkpoint %s", path)
            return state
        if failures:
            raise self._all_unusable(failures)
        return None

    def _all_unusable(self, failures: Mapping[str, Sequence[str]]) -> CheckpointError:
        """failures: reason -> names of files."""
        reasons = " | ".join(f"{', '.join(names)}: {reason}" for reason, names in failures.items())
        num_files = sum(len(names) for names in failures.values())
        return CheckpointError(
            f"none of the {num_files} checkpoints in {self.folder} can be used. If flags of the model or the "
            "env differ from those of the training, take them back. If the files are damaged, put good ones "
            "in their place, e.g. one of milestones/ without the ending .milestone, or try "
            "--load_checkpoint_kind=best. To train anew, choose another --experiment, or "
            f"--restart_behavior=restart. {reasons}"
        )

    def is_empty(self) -> bool:
        """Whether nothing has been saved yet."""
        return not self._sorted("checkpoint") and not self._sorted("best")

    def milestones(self) -> list[Path]:
        """By version."""
        return milestones_of(self._experiment_dir, self._policy_id)

    def _sorted(self, prefix: str) -> list[Path]:
        """By version."""
        return _by_version(self.folder, rf"{prefix}_\d+_\d+.*\.pth")

    def _write(self, state: Mapping[str, Any], path: Path) -> Path | None:
        temporary = self.folder / TEMPORARY_NAME
        started = time.monotonic()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as file:
                torch.save(dict(state), file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except (OSError, RuntimeError) as error:  # torch makes a RuntimeError of an OSError
            _delete([temporary])
            log.error(
                "COULD NOT SAVE %s: %s. Older checkpoints are untouched; training goes on",
                path,
                _why_not_saved(state, self.folder.parent, error),
            )
            return None
        log.info("Saved %s (%.1f s)", path, time.monotonic() - started)
        return path


def _by_version(folder: Path, pattern: str) -> list[Path]:
    """A user's own files with other names are none of ours."""
    return sorted((path for path in folder.glob("*") if re.fullmatch(pattern, path.name)), key=version_of)


def version_of(path: Path) -> int:
    """Of a checkpoint, from its file's name."""
    return int(path.name.split("_")[1])


def read_checkpoint(path: Path) -> dict[str, Any]:
    """One file, whatever its name. Raises CheckpointError when it is damaged or holds something else."""
    try:
        state = read_state(path)
    except Exception as error:  # whatever a damaged file makes the reader raise
        raise CheckpointError(f"cannot use checkpoint {path}: {_reason(error)}") from None
    log.info("Loaded checkpoint %s", path)
    return state


def _reason(error: Exception) -> str:
    """In one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _delete(paths: Iterable[Path]) -> None:
    """A file that cannot be deleted is no reason to stop."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.error("Could not delete %s: %s", path, error.strerror)


def _why_not_saved(state: Mapping[str, Any], folder: Path, error: Exception) -> str:
    """For people."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__context__  # torch's own words for a full disk are "unexpected pos 768 vs 662"
    if cause is None:
        return " ".join(str(error).split())
    if cause.errno not in (errno.ENOSPC, errno.EDQUOT):
        return str(cause)
    sizes = f"it needs about {_size_text(_num_bytes(state))}"
    try:
        free = shutil.disk_usage(folder).free
    except OSError:  # the disk has gone
        return f"{cause.strerror}: {sizes}"
    return f"{cause.strerror}: {sizes}, {_size_text(free)} are free"


def _size_text(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:.1f} kB"


def _num_bytes(value: Any) -> int:
    """Of all tensors in it."""
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return 0
    return sum(_num_bytes(item) for item in value)
