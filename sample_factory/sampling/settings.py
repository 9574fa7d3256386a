"""Everything that rollout and policy workers are constructed from, besides the shared memory and queues."""

import argparse
import math
from pathlib import Path
from typing import NamedTuple

from sample_factory.envs.env_registry import EnvFamily
from sample_factory.models.policy_spec import PolicySpec
from sample_factory.sampling.matchmaking.registry import RANDOM, MatchmakingChoice, chosen_matchmaking


class RewardRule(NamedTuple):
    """Raw rewards are multiplied by `scale`, then clipped to [-clip, clip], before they are stored."""

    scale: float
    clip: float


class RolloutSettings(NamedTuple):
    """Flags of a rollout worker; equal for all of them."""

    reward_rule: RewardRule
    seed: int
    decorrelate_envs: bool
    decorrelate_seconds: float
    mix_policies: bool
    past_share: float = 0.0  # share of matches that are played against past selves
    max_random_seconds: float = math.inf  # for the random first steps of all envs of a worker
    matchmaking: MatchmakingChoice = chosen_matchmaking(RANDOM)
    reports_infos: bool = False  # whether reports of episodes contain infos


class RolloutWorkerArgs(NamedTuple):
    """Which rollout worker to construct. `cfg` holds all flags and is passed on to the env family."""

    worker_index: int
    family: EnvFamily
    cfg: argparse.Namespace
    settings: RolloutSettings


class ActionChoice(NamedTuple):
    """How a policy worker chooses actions; training draws all of them from the policy's distribution.

    deterministic: the most likely choices and the means in place of samples.
    sample_continuous: False: the means of the continuous components only.
    """

    deterministic: bool = False
    sample_continuous: bool = True


AS_IN_TRAINING = ActionChoice()


class InferenceSettings(NamedTuple):
    """The network and the flags of a policy worker."""

    policy: PolicySpec
    min_requests: int  # one forward pass waits for this many requests, for a limited time
    num_threads: int
    seed: int
    experiment_dir: Path  # where the files of past selves are
    max_past_selves: int = 1  # limit on past selves held in memory
    cuda_graphs: bool = True  # ignored without a GPU
    action_choice: ActionChoice = AS_IN_TRAINING


class PolicyWorkerArgs(NamedTuple):
    """Which policy worker to construct."""

    policy_id: int
    settings: InferenceSettings


class InlineSamplerArgs(NamedTuple):
    """Which rollout workers an inline sampler holds, and one policy worker for each policy.

    sampler_index: of the inline sampler, and of its inbox.
    """

    sampler_index: int
    rollout_workers: list[RolloutWorkerArgs]
    policy_workers: list[PolicyWorkerArgs]
