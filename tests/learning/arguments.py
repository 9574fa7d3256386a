"""Arguments of a Learner that stands alone."""

from sample_factory.config.algorithms import BUILT_IN
from sample_factory.config.config import Config
from sample_factory.config.sections import TRAINING_SECTIONS, LearningFlags, MonitoringFlags, SamplingFlags
from sample_factory.learning.learner_args import LearnerArgs
from sample_factory.models.policy_spec import PolicySpec


def learner_args(
    policy: PolicySpec,
    learning: LearningFlags,
    policy_id=0,
    algorithm=BUILT_IN["APPO"].factory,
    frameskip=1,
    seed=1,
    max_policy_lag=10**6,
    train_for_env_frames=10**9,
):
    """Returns the arguments of a learner with these flags; all others have their defaults."""
    sections = {name: section() for name, section in TRAINING_SECTIONS.items()}
    sections["learning"] = learning
    sections["sampling"] = SamplingFlags(max_policy_lag=max_policy_lag)
    sections["monitoring"] = MonitoringFlags(train_for_env_steps=train_for_env_frames)
    return LearnerArgs(policy_id, 0, Config(**sections), policy, algorithm, frameskip, seed)
