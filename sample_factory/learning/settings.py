"""The part of the configuration that a learner needs. Imports no torch: the main process makes it."""

from pathlib import Path
from typing import NamedTuple

from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.algorithm_registry import PPO, AlgorithmFactory
from sample_factory.models.policy_spec import PolicySpec
from sample_factory.runtime.folder_lock import FolderLock


class LearnerSettings(NamedTuple):
    """Settings of a Learner."""

    policy: PolicySpec
    learning: LearningFlags
    max_policy_lag: int  # SGD steps
    train_for_env_frames: int
    frameskip: int
    seed: int
    compile: bool = False  # the encoders, with torch.compile
    algorithm: AlgorithmFactory | str = PPO
    divergence_threshold: float | None = None  # nats, with --weights_sync=divergence
    forced_policy_lag: int = 0  # SGD steps


class LearnerWorkerSettings(NamedTuple):
    """Settings of the process around a Learner."""

    learner: LearnerSettings
    num_threads: int
    learn: bool  # False: trajectories are counted and discarded (--sampler_only)
    experiment_dir: Path
    keep_checkpoints: int
    save_every_sec: float
    save_milestones_sec: float
    load_checkpoint_kind: str
    snapshot_env_frames: int = 0  # between milestones to play against; 0: none
    transfer_from: Path | None = None  # checkpoint with the first weights of a policy that has none itself
    lock: FolderLock | None = None  # held while this process may save
    num_learners: int = 1  # that train this policy together


class LearnerWorkerArgs(NamedTuple):
    """Which learner to construct.

    rank: among the learners of the policy; 0 is a LearnerWorker, the others are OtherLearnerWorkers.
    """

    policy_id: int
    settings: LearnerWorkerSettings
    rank: int = 0
