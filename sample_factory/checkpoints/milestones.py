"""Milestones: checkpoints of a policy that are never deleted, and their file names. Imports no torch."""

import re
from pathlib import Path
from typing import NamedTuple

FOLDER = "milestones"
NAME = re.compile(r"checkpoint_(\d+)_(\d+)\.pth\.milestone")


class Milestone(NamedTuple):
    """A policy as it was at one time of its training; played against as a past self."""

    policy_id: int
    version: int  # SGD steps
    env_frames: int

    def path(self, experiment_dir: Path) -> Path:
        """Returns the file in an experiment folder. `path(Path())` is relative to that folder."""
        name = f"checkpoint_{self.version:09d}_{self.env_frames}.pth.milestone"
        return checkpoint_folder(experiment_dir, self.policy_id) / FOLDER / name


def checkpoint_folder(experiment_dir: Path, policy_id: int) -> Path:
    """Returns the folder with all checkpoints of a policy."""
    return Path(experiment_dir) / f"checkpoint_p{policy_id}"


def find_milestones(experiment_dir: Path, policy_id: int) -> list[Milestone]:
    """Returns the milestones of a policy on disk, by version. Files with any other name are ignored."""
    found = []
    for path in (checkpoint_folder(experiment_dir, policy_id) / FOLDER).glob("*.milestone"):
        match = NAME.fullmatch(path.name)
        if match is not None:
            milestone = Milestone(policy_id, int(match[1]), int(match[2]))
            if milestone.path(experiment_dir).name == path.name:
                found.append(milestone)
    return sorted(found)


def milestone_path(experiment_dir: Path, policy_id: int, version: int, env_frames: int) -> Path:
    """Returns the file of a milestone."""
    return Milestone(policy_id, version, env_frames).path(experiment_dir)


def milestones_of(experiment_dir: Path, policy_id: int) -> list[Path]:
    """Returns the files of a policy's milestones, by version."""
    return [milestone.path(experiment_dir) for milestone in find_milestones(experiment_dir, policy_id)]


def env_frames_of(milestone: Path) -> int:
    """Returns the env frames that the policy in a milestone file had been trained on."""
    match = NAME.fullmatch(milestone.name)
    assert match is not None, f"{milestone} is no milestone"
    return int(match[2])
