"""Checkpoint files of one policy: written atomically, verified when read, never lost."""

import logging
import os
import re
import time
from pathlib import Path
from typing import Any, Callable, Mapping

import torch

log = logging.getLogger("sample_factory")

TEMPORARY_NAME = ".temp_checkpoint"  # no glob for checkpoints matches it


class CheckpointError(RuntimeError):
    """Checkpoints exist, but none can be used."""


class Checkpoints:
    """The folder checkpoint_p<policy> of an experiment. Promises:

    1. A file under a checkpoint's name is complete: it was written under another name, synced and renamed.
    2. The newest `keep` checkpoints stay, and so does every milestone and the best one.
    3. `load` never returns nothing over existing checkpoints: it falls back to an older one, or raises.
    """

    def __init__(self, experiment_dir: Path, policy_id: int, keep: int):
        self.folder = Path(experiment_dir) / f"checkpoint_p{policy_id}"
        self._keep = keep

    def save(self, state: Mapping[str, Any], version: int, env_frames: int) -> Path | None:
        """Writes checkpoint_<version>_<env frames>.pth, deletes the oldest. None when the disk refused."""
        path = self._write(state, self.folder / f"checkpoint_{version:09d}_{env_frames}.pth")
        if path is not None:
            for old in self._sorted("checkpoint")[: -self._keep]:
                if old != path:
                    old.unlink(missing_ok=True)
        return path

    def supersede(self, version: int) -> None:
        """Training goes on from `version`: moves later checkpoints into superseded/, which nobody reads.

        Otherwise the newest of what is saved from now on would count as older than those.
        """
        later = [path for path in self._sorted("checkpoint") if _version(path) > version]
        for path in later:
            (self.folder / "superseded").mkdir(exist_ok=True)
            os.replace(path, self.folder / "superseded" / path.name)
        if later:
            log.warning(
                "Moved %d checkpoints that are later than the loaded one into superseded/", len(later)
            )

    def save_milestone(self, state: Mapping[str, Any], version: int, env_frames: int) -> Path | None:
        """Writes a checkpoint that is never deleted."""
        name = f"checkpoint_{version:09d}_{env_frames}.pth.milestone"
        return self._write(state, self.folder / "milestones" / name)

    def save_best(
        self, state: Mapping[str, Any], version: int, env_frames: int, metric: str, value: float
    ) -> Path | None:
        """Writes best_<version>_<env frames>_<metric>_<value>.pth in place of the best one so far."""
        path = self._write(state, self.folder / f"best_{version:09d}_{env_frames}_{metric}_{value:.3f}.pth")
        if path is not None:
            for old in self._sorted("best"):
                if old != path:
                    old.unlink(missing_ok=True)
        return path

    def load(
        self, kind: str = "latest", check: Callable[[dict], None] = lambda state: None
    ) -> dict[str, Any] | None:
        """The newest readable checkpoint of a kind ("latest" or "best"), or None if there never was one.

        `check(state)` raises if the contents do not fit. Raises CheckpointError if files exist but none is
        usable.
        """
        paths = self._sorted("checkpoint" if kind == "latest" else "best")
        failures = []
        for path in reversed(paths):
            try:
                state = torch.load(path, map_location="cpu", weights_only=True)
                check(state)
            except (
                Exception
            ) as error:  # whatever a damaged file makes the reader raise; reported, never dropped
                failures.append(f"{path.name}: {type(error).__name__}: {error}")
                log.error("CANNOT USE CHECKPOINT %s (%s); trying the one before it", path, error)
                continue
            log.info("Loaded checkpoint %s", path)
            return state
        if failures:
            raise CheckpointError(
                f"none of the {len(failures)} checkpoints in {self.folder} can be used. To train anew, "
                "choose another --experiment, or --restart_behavior=restart. " + " | ".join(failures)
            )
        return None

    def is_empty(self) -> bool:
        """Whether nothing has been saved yet."""
        return not self._sorted("checkpoint") and not self._sorted("best")

    def _sorted(self, prefix: str) -> list[Path]:
        """By version; a user's own files with other names are none of ours."""
        ours = re.compile(rf"{prefix}_\d+_\d+.*\.pth")
        paths = self.folder.glob(f"{prefix}_*.pth")
        return sorted((path for path in paths if ours.fullmatch(path.name)), key=_version)

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
        except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
            temporary.unlink(missing_ok=True)
            log.error("COULD NOT SAVE %s: %s. Older checkpoints are untouched; training goes on", path, error)
            return None
        log.info("Saved %s (%.1f s)", path, time.monotonic() - started)
        return path


def _version(path: Path) -> int:
    return int(path.name.split("_")[1])
