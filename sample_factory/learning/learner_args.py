"""Constructor arguments of a learner. Imports no torch: the main process makes them."""

from pathlib import Path
from typing import NamedTuple

from sample_factory.config.algorithms import AlgorithmFactory
from sample_factory.config.config import Config
from sample_factory.models.policy_spec import PolicySpec
from sample_factory.runtime.folder_lock import FolderLock


class LearnerArgs(NamedTuple):
    """Which learner to construct, and what it is to train.

    rank: among the learners of the policy; 0 is a LearnerWorker, the others are OtherLearners.
    config: `config.learning` has the hyperparameters of this policy, which may have evolved.
    policy: the network. algorithm: makes the losses.
    transfer_from: checkpoint with the first weights of a policy that has none itself.
    lock: of the experiment folder, held while this process may save.
    """

    policy_id: int
    rank: int
    config: Config
    policy: PolicySpec
    algorithm: AlgorithmFactory | str
    frameskip: int
    seed: int
    num_threads: int = 1
    transfer_from: Path | None = None
    lock: FolderLock | None = None
