"""Constructor arguments of a learner. Imports no torch: the main process makes them."""

from pathlib import Path
from typing import NamedTuple

from sample_factory.config.algorithms import AlgorithmFactory
from sample_factory.config.config import Config
from sample_factory.models.policy_spec import PolicySpec
from sample_factory.runtime.folder_lock import FolderLock


class LearnerArgs(NamedTuple):
    """Constructor arguments of a Learner.

    rank: index among the learners of the policy; rank 0 is a LearnerWorker, all others are OtherLearners.
    config: flags of the run; `config.learning` has this policy's hyperparameters, which PBT may have changed.
    policy: specification of the network.
    algorithm: class or function that makes the Algorithm, or its name "module:attr".
    transfer_from: checkpoint of another experiment from which weights are loaded if the policy has no
        checkpoint yet.
    lock: lock on the experiment folder, held while this process may save.
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
