"""The files of a repository: which files of an experiment are pushed, and the results of its evaluation."""

import contextlib
import fnmatch
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sample_factory.checkpoints.milestones import SNAPSHOT
from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import SAVED_NAMES, read_json, write_atomically
from sample_factory.config.trust import SIGNATURE
from sample_factory.evaluation.results import Evaluation, result_figures
from sample_factory.hub.hub_access import CARD, RESULTS, VIDEO
from sample_factory.runtime.folder_lock import NAME as LOCK

STAGING = ".push_to_hub"
# Files that the push writes itself, and files that only have a meaning on this machine.
NOT_PUSHED = (
    CARD,
    RESULTS,
    "*.mp4",
    LOCK,
    f"{STAGING}*",
    "*.tmp",
    ".git*",
    ".cache/*",
    "wandb/*",
    f"*{SNAPSHOT}",
    "*/donation.pth",
    "*/.temp_checkpoint",
    "*/superseded/*",
)
NEVER_CHANGED = (".pth", ".milestone", ".mp4")  # endings of files that are written once


def results_of(
    config: Config, evaluations: Sequence[Evaluation], checkpoints: Sequence[Path]
) -> dict[str, Any]:
    """Returns the contents of evaluation.json: those of --json, and the names of the checkpoint files.

    checkpoints: the file that each evaluation has played.
    """
    files = [path.name for path in checkpoints]
    figures = result_figures(config, evaluations)
    return {**figures, "experiment": config.run.experiment, "checkpoints": files}


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    """Writes evaluation.json. Raises OSError."""
    write_atomically(folder / RESULTS, json.dumps(results, indent=4) + "\n")


def read_results(experiment_dir: Path, checkpoint: Path) -> dict[str, Any] | None:
    """Returns the results of an earlier push; None unless they are of this checkpoint. Raises ConfigError."""
    path = experiment_dir / RESULTS
    if not path.exists():
        return None
    results = read_json(path)
    return results if results.get("checkpoints", [""])[:1] == [checkpoint.name] else None


def newest_video(experiment_dir: Path) -> Path | None:
    """Returns the video that was written last."""
    return max(experiment_dir.glob("*.mp4"), key=lambda path: path.stat().st_mtime, default=None)


@contextlib.contextmanager
def staged(experiment_dir: Path, results: Mapping[str, Any] | None, video: Path | None) -> Iterator[Path]:
    """Yields a folder with the files of an experiment as a repository has them, and removes it.

    A run that trains meanwhile changes nothing in it. results, video: None: the repository has none.
    Raises OSError.
    """
    folder = experiment_dir / f"{STAGING}.{os.getpid()}"
    try:
        folder.mkdir()
        for path in sorted(experiment_dir.rglob("*")):
            name = path.relative_to(experiment_dir).as_posix()
            if (
                path.is_file()
                and not path.is_symlink()
                and not any(fnmatch.fnmatch(name, pattern) for pattern in NOT_PUSHED)
            ):
                with contextlib.suppress(FileNotFoundError):  # the run has replaced it since
                    _copy(path, folder / name)
        _remove_signature(folder / SAVED_NAMES[0])
        if results is not None:
            write_results(folder, results)
        if video is not None:
            _copy(video, folder / VIDEO)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_signature(path: Path) -> None:
    """Removes it from a copy of cfg.json: with it, a folder of somebody else could pass for one's own."""
    if path.exists():
        values = {key: value for key, value in read_json(path).items() if key != SIGNATURE}
        path.write_text(json.dumps(values, indent=4) + "\n")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix in NEVER_CHANGED:
        try:
            os.link(source, target)
            return
        except FileNotFoundError:
            raise
        except OSError:  # the file system has no links
            pass
    shutil.copyfile(source, target)
