"""Builds learners without their processes, and batches to train them on."""

import torch

from sample_factory.config.algorithms import BUILT_IN
from sample_factory.config.config import Config
from sample_factory.config.sections import (
    TRAINING_SECTIONS,
    LearningFlags,
    ModelFlags,
    MonitoringFlags,
    SamplingFlags,
)
from sample_factory.learning.batch import Batch
from sample_factory.learning.learner import Learner
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
    sample_ahead=False,
):
    """Returns the arguments of a learner with these flags; all others have their defaults."""
    sections = {name: section() for name, section in TRAINING_SECTIONS.items()}
    sections["learning"] = learning
    sections["sampling"] = SamplingFlags(max_policy_lag=max_policy_lag, sample_ahead=sample_ahead)
    sections["monitoring"] = MonitoringFlags(train_for_env_steps=train_for_env_frames)
    return LearnerArgs(policy_id, 0, Config(**sections), policy, algorithm, frameskip, seed)


def build_learner(space, actions, learning, model, device="cpu", precision="fp32", group=None, **args):
    """Returns a learner. learning, model: flags by name. args: of `learner_args`."""
    flags = LearningFlags(**learning)
    policy = PolicySpec(ModelFlags(**model), space, actions, flags.normalize_returns, device, precision)
    return Learner(learner_args(policy, flags, **args), group)


def plain_batch(*, obs, actions, logits, **given):
    """Returns a batch with these fields, which may be arrays. By default, its numbers are 0, there are no
    recurrent states and no ends of episodes, all steps are the policy's own, and states are reset after ends.
    """
    steps = logits.shape[:2]
    defaults = {name: torch.zeros(steps) for name in ("log_probs", "values", "rewards")}
    defaults |= {name: torch.zeros(steps, dtype=torch.int32) for name in ("versions", "generations")}
    defaults |= {name: torch.zeros(steps, dtype=torch.bool) for name in ("terminated", "truncated")}
    defaults["own"] = torch.ones(steps, dtype=torch.bool)
    defaults["active_at_end"] = torch.ones(1, steps[1], dtype=torch.bool)
    defaults["chunk_rnn_states"] = torch.zeros(1, steps[1], 0)
    resets = given.pop("resets", None)
    fields = {name: torch.as_tensor(value) for name, value in {**defaults, **given}.items()}
    if resets is None:
        ended = fields["terminated"] | fields["truncated"]
        resets = torch.cat([torch.zeros_like(ended[:1]), ended]).numpy()
    return Batch(obs, actions, logits=logits, resets=resets, **fields)
