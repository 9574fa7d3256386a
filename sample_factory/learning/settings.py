"""What a learner needs of the configuration."""

from pathlib import Path
from typing import NamedTuple

from sample_factory.config.sections import LearningFlags
from sample_factory.models.policy_spec import PolicySpec
from sample_factory.runtime.folder_lock import FolderLock


class LearnerSettings(NamedTuple):
    """For the Learner."""

    policy: PolicySpec
    learning: LearningFlags
    max_policy_lag: int
    train_for_env_frames: int
    frameskip: int
    seed: int
    compile: bool = False  # the encoders, with torch.compile


class LearnerWorkerSettings(NamedTuple):
    """For the process around it."""

    learner: LearnerSettings
    num_threads: int
    learn: bool  # False: trajectories are counted and dropped (--sampler_only)
    experiment_dir: Path
    keep_checkpoints: int
    save_every_sec: float
    save_milestones_sec: float
    load_checkpoint_kind: str
    snapshot_env_frames: int = 0  # between milestones to play against; 0: none
    lock: FolderLock | None = None  # held for as long as this process may save
