"""Everything that travels through queues. Addresses and small numbers, never data."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

LIVE = ""  # in place of a past self: the policy as it is now, which learns


class PolicyRequest(NamedTuple):
    """Rollout worker -> policy workers of one policy: act for the rows (buffers[i], step)."""

    worker_index: int
    split: int
    step: int
    buffers: np.ndarray  # [n] int64
    incarnation: int  # of the rollout worker: one that replaces a dead one must not take its answers
    past_self: str = LIVE  # the milestone file with the weights to act with; LIVE: the newest weights


class ActionsReady(NamedTuple):
    """Policy worker -> rollout worker: the outputs of that policy stand in the rows that were asked for."""

    split: int
    policy_id: int
    incarnation: int  # that of the request


class Trajectories(NamedTuple):
    """Rollout worker -> learner: tickets for full buffers. The learner releases them after copying."""

    buffers: list[int]


class EpisodeReport(NamedTuple):
    """Rollout worker -> main process: an agent's episode has ended."""

    policy_id: int
    reward: float  # sum of the raw rewards
    length: int  # env frames
    true_objective: float
    extra_stats: Mapping[str, float]


class MatchReport(NamedTuple):
    """Rollout worker -> main process: a live policy and a past self have each ended an episode in one env."""

    policy_id: int
    past_self: str
    score: float  # of the live policy: 1 won, 0.5 drawn, 0 lost


class StatsReport(NamedTuple):
    """Any component -> main process: means since the last report, by name."""

    component: str  # "rollout_worker", "policy_worker" or "learner"
    policy_id: int
    stats: Mapping[str, float]


class TrainReport(NamedTuple):
    """Learner -> main process, after every iteration of training."""

    policy_id: int
    version: int  # number of SGD steps
    env_frames: int
    samples: int  # valid samples trained on since the start of the experiment
    stats: Mapping[str, float] | None  # train/ summaries, now and then
    best_value: float | None = None  # of save_best_metric when the best checkpoint was saved, if there is one


INCIDENTS = ("worker_restarts", "env_rebuilds", "broken_numbers", "memory_growth", "lost_opponents")


class Incident(NamedTuple):
    """Any component -> main process: something broke and was healed, or does no harm."""

    kind: str  # of INCIDENTS; counted in TensorBoard
    text: str  # for the log; empty: it is only counted
    count: int = 1


class SaveRequest(NamedTuple):
    """Main process -> learner: save a checkpoint of the best policy so far."""

    metric: str
    value: float


class WorkerDied(NamedTuple):
    """Main process -> learners: all tickets of this rollout worker have been sent; more will not come."""

    worker_index: int


class ComponentReady(NamedTuple):
    """A component -> main process: it has started, with a line for the log."""

    component: str
    text: str


class DonateRequest(NamedTuple):
    """Main process -> learner: write a file of your policy as it is now, for another policy."""

    ticket: int


class Donated(NamedTuple):
    """Learner -> main process: the answer. path: None if it could not be written."""

    ticket: int
    path: str | None
    sha256: str


class NewSettings(NamedTuple):
    """Main process -> learner: go on with these flags, and with a donor's weights if there is one."""

    ticket: int
    hyperparameters: Mapping[str, Any]
    donation: Donated | None


class SettingsTaken(NamedTuple):
    """Learner -> main process: NewSettings are in effect. error: why not, otherwise empty."""

    ticket: int
    error: str


class NewShaping(NamedTuple):
    """Main process -> rollout workers: the reward shaping of a policy's agents from their next episode on."""

    policy_id: int
    shaping: Mapping[str, Any]


class MilestoneSaved(NamedTuple):
    """Learner -> main process: a checkpoint that stays, and so can be played against."""

    policy_id: int
    path: str


class OpponentLost(NamedTuple):
    """Policy worker -> main process: this past self cannot be loaded; the live policy stands in for it."""

    past_self: str


class Opponents(NamedTuple):
    """Main process -> rollout workers: the past selves of a policy that are in use, all of them."""

    policy_id: int
    past_selves: tuple[str, ...]
    weights: np.ndarray  # [num_policies, n] float32: how often the live policy i draws each, relatively


RolloutMessage = ActionsReady | NewShaping | Opponents
LearnerMessage = Trajectories | SaveRequest | WorkerDied | DonateRequest | NewSettings
Report = EpisodeReport | MatchReport | StatsReport | TrainReport | ComponentReady | Incident
Report |= Donated | SettingsTaken | MilestoneSaved | OpponentLost
