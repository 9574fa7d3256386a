"""Names of checkpoint files, and milestones: checkpoints that are never deleted. Imports no torch."""

import math
import re
import time
from pathlib import Path
from typing import NamedTuple

from sample_factory.checkpoints.checkpoint_error import is_damaged
from sample_factory.runtime.clock import Every, Now

FOLDER = "milestones"
PREFIXES = {"latest": "checkpoint", "best": "best"}  # of file names, by --load_checkpoint_kind
# Names of checkpoints, also of those without BEST_NAME's value, or with one of another form. No count has
# more than 15 digits.
NAMES = {
    "latest": re.compile(r"checkpoint_\d{1,15}_\d{1,15}\.pth"),
    "best": re.compile(r"best_\d{1,15}_\d{1,15}(_.+_-?[\d.]+)?\.pth"),
}
# As Milestone.path makes it.
NAME = re.compile(r"checkpoint_(\d{9}|[1-9]\d{9,14})_(0|[1-9]\d{0,14})\.pth\.milestone", re.ASCII)
BEST_NAME = re.compile(r"best_\d{1,15}_\d{1,15}_(.+)_(-?\d+\.\d+)\.pth")
MAX_ZEROS = 20  # after the decimal point of a value in a file name
SNAPSHOT = "evaluated.pth"  # the file of weights that are being evaluated
BEST_SNAPSHOT = f"best_{SNAPSHOT}"  # of weights that become the best checkpoint
DONATION = "donation.pth"  # the file of weights that another policy takes over
TEMPORARY_NAME = ".temp_checkpoint"  # of an unfinished file; no glob for checkpoints matches it
RETRY_SECONDS = 30.0  # after a milestone that could not be saved, for example because the disk is full


def checkpoint_folder(experiment_dir: Path, policy_id: int) -> Path:
    """Returns the folder with all checkpoints of a policy."""
    return Path(experiment_dir) / f"checkpoint_p{policy_id}"


def checkpoint_name(version: int, env_frames: int) -> str:
    """Returns the file name of a regular checkpoint: checkpoint_<version>_<env frames>.pth."""
    return f"checkpoint_{version:09d}_{env_frames}.pth"


def best_name(version: int, env_frames: int, metric: str, value: float) -> str:
    """Returns the file name of the best checkpoint by a metric. It contains the value of the metric, with at
    least three digits, so that a resumed run can compare new values with it."""
    zeros = 0 if value == 0 else min(MAX_ZEROS, max(0, -1 - math.floor(math.log10(abs(value)))))
    return f"best_{version:09d}_{env_frames}_{_in_file_name(metric)}_{value:.{3 + zeros}f}.pth"


def best_value(path: Path, metric: str) -> float | None:
    """Returns the metric's value in the name of a best checkpoint; None if the name has another metric."""
    match = BEST_NAME.fullmatch(path.name)
    return float(match[2]) if match is not None and match[1] == _in_file_name(metric) else None


def _in_file_name(metric: str) -> str:
    return re.sub(r"[^\w.-]", "_", metric)  # an env may give its statistics any name


def version_of(path: Path) -> int:
    """Returns the number of SGD steps in the file name of a checkpoint, best checkpoint or milestone."""
    return int(path.name.split("_")[1])


def env_frames_of(path: Path) -> int:
    """Returns the number of env frames in the file name of a checkpoint, best checkpoint or milestone."""
    return int(path.name.split("_")[2].split(".")[0])


def find_checkpoints(experiment_dir: Path, policy_id: int, kind: str) -> list[Path]:
    """Returns the checkpoints of a policy from which a run can resume, the oldest version first.

    kind: "latest" for regular checkpoints, "best" for the best one. Files with other names are ignored, for
    example a user's copy checkpoint_000000001_4_good.pth, which would be deleted with old checkpoints.
    """
    found = checkpoint_folder(experiment_dir, policy_id).glob("*")
    return sorted((path for path in found if NAMES[kind].fullmatch(path.name)), key=version_of)


def resumed_env_frames(experiment_dir: Path, policy_id: int, kind: str) -> int | None:
    """Returns the env frames of the checkpoint from which the learner of a policy will resume, the newest
    undamaged one; None if there is no such checkpoint. kind: "latest" or "best", see `find_checkpoints`."""
    newest_first = reversed(find_checkpoints(experiment_dir, policy_id, kind))
    return next((env_frames_of(path) for path in newest_first if not is_damaged(path)), None)


def delete_snapshots(experiment_dir: Path) -> None:
    """Deletes what a killed run may have left in the checkpoint folders of all policies: unfinished files,
    and snapshots, which are temporary copies of a policy. Raises OSError if a file cannot be deleted."""
    for name in (f"*{SNAPSHOT}", DONATION, TEMPORARY_NAME):
        for file in Path(experiment_dir).glob(f"checkpoint_p*/{name}"):
            file.unlink(missing_ok=True)


class Milestone(NamedTuple):
    """A checkpoint that is never deleted. As an opponent, it is called a past self of its policy."""

    policy_id: int
    version: int  # SGD steps
    env_frames: int

    def path(self, experiment_dir: Path) -> Path:
        """Returns the path of the milestone's file. `path(Path())` is relative to the experiment folder."""
        name = f"{checkpoint_name(self.version, self.env_frames)}.milestone"
        return checkpoint_folder(experiment_dir, self.policy_id) / FOLDER / name


def find_milestones(experiment_dir: Path, policy_id: int) -> list[Milestone]:
    """Returns the milestones of a policy on disk, the oldest first. Ignores files with other names."""
    files = (checkpoint_folder(experiment_dir, policy_id) / FOLDER).glob("*.milestone")
    names = (NAME.fullmatch(file.name) for file in files)
    return sorted(Milestone(policy_id, int(name[1]), int(name[2])) for name in names if name is not None)


class MilestoneSchedule:
    """Decides when to save a milestone: every `every_sec` seconds, and whenever the env frames pass a
    multiple of `every_frames`. A milestone stays due until it has been saved."""

    def __init__(
        self,
        every_sec: float,
        every_frames: int,
        env_frames: int,
        has_milestone: bool,
        now: Now = time.monotonic,
    ):
        """Starts the clock of the schedule.

        every_sec: seconds between two milestones; -1 for never. every_frames: env frames between two
            milestones; 0 for never. env_frames: number of env frames at the start of this run.
        has_milestone: whether the policy already has a milestone. If not, and `every_frames` is set, the
            first milestone is due at once, so that there always is a past self.
        """
        self._time_is_due = Every(every_sec if every_sec > 0 else float("inf"), now=now)
        self._is_overdue = False
        self._every_frames = every_frames
        self._multiple = self._multiple_of(env_frames) if has_milestone else -1
        self._now = now
        self._not_before = now()

    def request(self) -> None:
        """Makes a milestone due at once."""
        self._is_overdue = True

    def is_due(self, env_frames: int) -> bool:
        """Returns whether to save a milestone now. env_frames: number of frames trained on so far."""
        self._is_overdue |= self._time_is_due()
        is_wanted = self._is_overdue or self._multiple_of(env_frames) > self._multiple
        return is_wanted and self._now() >= self._not_before

    def record(self, env_frames: int, is_saved: bool) -> None:
        """Records an attempt to save a milestone; after a failure, it is due again after RETRY_SECONDS."""
        if is_saved:
            self._is_overdue = False
            self._multiple = self._multiple_of(env_frames)
        else:
            self._not_before = self._now() + RETRY_SECONDS

    def _multiple_of(self, env_frames: int) -> int:
        return env_frames // self._every_frames if self._every_frames else -1
