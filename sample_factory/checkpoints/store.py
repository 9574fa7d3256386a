"""Checkpoint files of one policy: written atomically, verified when read, never lost."""

import os
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.checkpoints.file_format import read_state, why_not_written, write_state
from sample_factory.checkpoints.milestones import (
    TEMPORARY_NAME,
    Milestone,
    checkpoint_folder,
    checkpoint_name,
    find_checkpoints,
    find_milestones,
    version_of,
)
from sample_factory.runtime.log import log


class Checkpoints:
    """Writes, finds and loads the checkpoints of a policy, in the folder checkpoint_p<policy> of an
    experiment. Promises:

    1. A file with the name of a checkpoint is complete: it was written under another name, synced to disk,
       then renamed. Nothing is written that `load` would refuse.
    2. The newest `keep` checkpoints and every milestone are kept.
    3. If there are checkpoints, `load` never returns None: it falls back to an older one, or raises.
    """

    def __init__(
        self,
        experiment_dir: Path,
        policy_id: int,
        keep: int,
        check: Callable[[Any], None] = lambda state: None,
    ):
        """Refers to the folder of the policy without reading or creating it. keep: number of regular
        checkpoints to keep. check: called with each state before it is written; raises ValueError to refuse
        the state."""
        self._check = check
        self._experiment_dir = Path(experiment_dir)
        self._policy_id = policy_id
        self._keep = keep
        self.folder = checkpoint_folder(experiment_dir, policy_id)

    def save(
        self, state: Mapping[str, Any], version: int, env_frames: int, deletes_old: bool = True
    ) -> Path | None:
        """Writes checkpoint_<version>_<env frames>.pth and deletes the oldest checkpoints beyond `keep`.
        Returns the path; None, after logging the reason, if the file cannot be written. All `save` methods
        return in this way.

        deletes_old: False before the first finite SGD step of a run, so that restarts of a run that fails do
            not replace good checkpoints by broken ones.
        """
        path = self._write(state, self.folder / checkpoint_name(version, env_frames))
        if path is not None and deletes_old:
            delete_files(old for old in self._sorted("latest")[: -self._keep] if old != path)
        return path

    def save_milestone(self, state: Mapping[str, Any], version: int, env_frames: int) -> Path | None:
        """Writes a milestone, which is never deleted. Returns its path, or None if it cannot be written."""
        milestone = Milestone(self._policy_id, version, env_frames)
        return self._write(state, milestone.path(self._experiment_dir))

    def save_snapshot(self, state: Mapping[str, Any], name: str) -> Path | None:
        """Writes a snapshot, a temporary file, e.g. to be evaluated or loaded into another policy; no run
        resumes from it. Replaces a file called `name`. Returns its path; None if it cannot be written."""
        return self._write(state, self.folder / name, is_logged=False)

    def supersede(self, version: int) -> None:
        """Moves all checkpoints later than `version`, from which training continues, into superseded/, which
        is never read; otherwise they would count as newer than the checkpoints to come."""
        later = [path for path in self._sorted("latest") if version_of(path) > version]
        for path in later:
            (self.folder / "superseded").mkdir(exist_ok=True)
            os.replace(path, self.folder / "superseded" / path.name)
        if later:
            log.warning(
                "Moved %d checkpoints that are later than the loaded one into superseded/", len(later)
            )

    def load(
        self, kind: str = "latest", check: Callable[[dict[str, Any]], None] = lambda state: None
    ) -> dict[str, Any] | None:
        """Loads the newest usable checkpoint of a kind ("latest" or "best"); None if there are no files.

        check: called with the state; raises if the state does not fit, so that an older file is tried.

        Raises CheckpointError if there are files, but none is usable.
        """
        paths = self._sorted(kind)
        milestones = self.milestones()
        if kind == "latest" and not paths and milestones:
            raise CheckpointError(
                f"{self.folder} has milestones, but no checkpoint to resume from; copy one there: "
                f"{shlex.join(['cp', str(milestones[-1]), str(self.folder / milestones[-1].stem)])}"
            )
        failures: dict[str, list[str]] = {}  # reason -> names
        for path in reversed(paths):
            try:
                state = read_state(path)
                check(state)
            except Exception as error:  # whatever a damaged file makes the reader raise
                if not os.path.lexists(path):  # the run is still training, and has replaced it by a newer one
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
        """Makes the exception that says why no checkpoint can be used. failures: reason -> names of files."""
        reasons = " | ".join(f"{', '.join(names)}: {reason}" for reason, names in failures.items())
        num_files = sum(len(names) for names in failures.values())
        return CheckpointError(
            f"none of the {num_files} checkpoints in {self.folder} can be used: {reasons}. If flags of the "
            "model or the env differ from those of the training, set them back; files of Sample Factory 1 "
            "and 2 need python -m sample_factory convert. Replace damaged files by good ones, e.g. one "
            "of milestones/ without the ending .milestone, or try --load_checkpoint_kind=best. To train from "
            "scratch, choose another --experiment, or --restart_behavior=restart"
        )

    def is_empty(self) -> bool:
        """Returns whether there is neither a regular checkpoint nor a best one."""
        return not self._sorted("latest") and not self._sorted("best")

    def milestones(self) -> list[Path]:
        """Returns the paths of all milestones, the oldest first."""
        found = find_milestones(self._experiment_dir, self._policy_id)
        return [milestone.path(self._experiment_dir) for milestone in found]

    def _sorted(self, kind: str) -> list[Path]:
        return find_checkpoints(self._experiment_dir, self._policy_id, kind)

    def _write(self, state: Mapping[str, Any], path: Path, is_logged: bool = True) -> Path | None:
        temporary = self.folder / TEMPORARY_NAME
        started = time.monotonic()
        try:
            self._check(state)
            write_state(state, path, temporary)
        except (OSError, RuntimeError, ValueError) as error:  # torch makes a RuntimeError of an OSError
            delete_files([temporary])
            log.error(
                "COULD NOT SAVE %s: %s. Older checkpoints are untouched; training continues",
                path,
                why_not_written(state, self.folder.parent, error),
            )
            return None
        if not is_logged:
            return path
        seconds = time.monotonic() - started
        log.info("Saved %s/%s (%.1f s)", path.parent.name, path.name, seconds)
        return path


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Reads the state in a checkpoint file of any name. Raises CheckpointError if the file cannot be used."""
    try:
        state = read_state(path)
    except Exception as error:  # whatever a damaged file makes the reader raise
        raise CheckpointError(f"cannot use checkpoint {path}: {_reason(error)}") from None
    log.info("Loaded checkpoint %s", path)
    return state


def _reason(error: Exception) -> str:
    """Returns the message of an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def delete_files(paths: Iterable[Path]) -> None:
    """Deletes files. An OSError is logged: it is no reason to stop a training."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.error("Could not delete %s: %s", path, error.strerror)
