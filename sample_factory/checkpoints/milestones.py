"""Where the milestones of a policy are: checkpoints that are never deleted, its past selves."""

import re
from pathlib import Path

FOLDER = "milestones"
NAME = re.compile(r"checkpoint_(\d+)_(\d+)\.pth\.milestone")


def milestone_path(experiment_dir: Path, policy_id: int, version: int, env_frames: int) -> Path:
    """Of a policy that has been trained on so many env frames."""
    name = f"checkpoint_{version:09d}_{env_frames}.pth.milestone"
    return checkpoint_folder(experiment_dir, policy_id) / FOLDER / name


def checkpoint_folder(experiment_dir: Path, policy_id: int) -> Path:
    return Path(experiment_dir) / f"checkpoint_p{policy_id}"


def milestones_of(experiment_dir: Path, policy_id: int) -> list[Path]:
    """By version. A user's own files with other names are none of ours."""
    folder = checkpoint_folder(experiment_dir, policy_id) / FOLDER
    ours = [path for path in folder.glob("*.milestone") if NAME.fullmatch(path.name)]
    return sorted(ours, key=lambda path: int(path.name.split("_")[1]))


def env_frames_of(milestone: Path) -> int:
    """That the policy had been trained on."""
    return int(NAME.fullmatch(milestone.name)[2])
