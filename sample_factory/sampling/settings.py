"""What rollout and policy workers need of the configuration."""

from typing import NamedTuple

from sample_factory.models.policy_spec import PolicySpec


class RewardRule(NamedTuple):
    """What becomes of a raw reward before it is stored: multiplied, then clipped to plus or minus `clip`."""

    scale: float
    clip: float


class RolloutSettings(NamedTuple):
    """For a rollout worker."""

    reward_rule: RewardRule
    seed: int
    decorrelate_envs: bool
    decorrelate_seconds: float
    mix_policies: bool
    past_share: float = 0.0  # of matches, that are against past selves


class InferenceSettings(NamedTuple):
    """For a policy worker."""

    policy: PolicySpec
    min_requests: int  # requests that one forward pass waits for, for a short while
    num_threads: int
    seed: int
    max_past_selves: int = 1  # in memory
    cuda_graphs: bool = True  # where there is a GPU
