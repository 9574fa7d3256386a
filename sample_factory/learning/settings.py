"""What a learner needs of the configuration."""

from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.config.sections import LearningFlags, ModelFlags


class LearnerSettings(NamedTuple):
    """For the Learner."""

    learning: LearningFlags
    model: ModelFlags
    observation_space: Any
    action_space: Any
    max_policy_lag: int
    train_for_env_frames: int
    frameskip: int
    device: Any  # torch.device
    autocast: bool  # bf16 for encoder and core
    seed: int


class LearnerWorkerSettings(NamedTuple):
    """For the process around it."""

    learning: LearningFlags
    model: ModelFlags
    observation_space: Any
    action_space: Any
    max_policy_lag: int
    train_for_env_frames: int
    device: str
    precision: str
    num_threads: int
    seed: int
    custom_encoder: Any  # what --encoder_custom names, if a user registered it
    learn: bool  # False: trajectories are counted and dropped (--sampler_only)
    experiment_dir: Path
    keep_checkpoints: int
    save_every_sec: float
    save_milestones_sec: float
    load_checkpoint_kind: str
