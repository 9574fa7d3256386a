"""Everything that travels through queues, by its direction: addresses and small numbers, never data."""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sample_factory.checkpoints.milestones import Milestone

MAX_ROWS = 20_000  # buffers that one message names, so that any message fits into a queue
MAX_REPORTS = 100  # in one message, if they fit

# Rollout workers <-> policy workers


class PolicyRequest(NamedTuple):
    """Rollout worker -> policy workers of one policy: act for the rows (buffer_indices[i], step)."""

    worker_index: int
    split: int
    step: int
    buffer_indices: np.ndarray  # [n] int64
    incarnation: int  # of the sender, see TrajectoryBuffers: its successor must not take its answers
    past_self: Milestone | None = None  # whose weights to act with; None: the newest weights


class ActionsReady(NamedTuple):
    """Policy worker -> rollout worker: the outputs for the requested rows have been written."""

    split: int
    policy_id: int
    incarnation: int  # copied from the request


# Rollout workers -> learners


class Trajectories(NamedTuple):
    """Rollout worker -> learner: tickets for full buffers. The learner releases them after copying."""

    buffer_indices: list[int]


class JoinGroup(NamedTuple):
    """First learner -> other learners of the same policy: where they find it. They also receive
    Trajectories, their shares of its batches."""

    port: int


def rows_of_messages(buffer_indices: np.ndarray) -> Sequence[np.ndarray]:
    """Returns the buffers that each of the PolicyRequests or Trajectories about them names."""
    if len(buffer_indices) <= MAX_ROWS:
        return (buffer_indices,)
    return [buffer_indices[first : first + MAX_ROWS] for first in range(0, len(buffer_indices), MAX_ROWS)]


# Main process -> rollout workers


class NewShaping(NamedTuple):
    """Main process -> rollout workers: the reward shaping of a policy's agents from their next episode on."""

    policy_id: int
    shaping: Mapping[str, Any]


class NewTrainingInfo(NamedTuple):
    """Main process -> rollout workers and inline samplers: values for the envs that a policy plays, from
    their next episode on; see envs.abilities.TrainingInfo."""

    policy_id: int
    # A dict, by cloudpickle: it may contain objects of a user's script, which is no module of the worker.
    pickled: bytes

    @property
    def training_info(self) -> Mapping[str, Any]:
        """The values, which replace those of earlier messages about the policy."""
        values: Mapping[str, Any] = pickle.loads(self.pickled)
        return values


class Opponents(NamedTuple):
    """Main process -> rollout workers: all past selves of a policy that are in use now."""

    policy_id: int
    past_selves: tuple[Milestone, ...]
    weights: np.ndarray  # [num_policies, n] float32: relative frequency with which live policy i draws each


# Main process -> learners


class SaveRequest(NamedTuple):
    """Main process -> learner: save a checkpoint of the best policy so far."""

    metric: str
    value: float


class SnapshotRequest(NamedTuple):
    """Main process -> learner: write a file of the policy's current state, to be evaluated."""


class Snapshot(NamedTuple):
    """Learner -> main process: the answer to SnapshotRequest. path: None if it could not be written."""

    policy_id: int
    version: int  # number of SGD steps
    env_frames: int
    path: str | None


class DonateRequest(NamedTuple):
    """Main process -> learner: write a file of the policy's current state, for another policy."""

    request_id: int


class Donated(NamedTuple):
    """Learner -> main process: the answer to DonateRequest. path: None if it could not be written."""

    request_id: int
    path: str | None
    sha256: str


class NewSettings(NamedTuple):
    """Main process -> learner: continue with these flags, and with a donor's weights if there is one."""

    request_id: int
    hyperparameters: Mapping[str, Any]
    donation: Donated | None


class SettingsTaken(NamedTuple):
    """Learner -> main process: NewSettings are in effect. error: why they are not; empty if they are."""

    request_id: int
    error: str


class PolicyReplaced(NamedTuple):
    """Main process -> its own subscribers: a policy has taken over the weights of a donor."""

    policy_id: int
    donor: int


# Any component -> main process


class ComponentReady(NamedTuple):
    """Any component -> main process: it has started, with a line for the log.

    short: the line on a terminal; empty: none; None: the same.
    """

    component: str
    text: str
    short: str | None = None


class StatsReport(NamedTuple):
    """Any component -> main process: means since the last report, by name."""

    component: str  # "rollout_worker", "policy_worker" or "learner"
    policy_id: int
    stats: Mapping[str, float]
    # Of a rollout worker:
    samples: int = 0  # agent steps taken since the last report
    longest_episode: int = 0  # steps so far of the longest episode that is being played


INCIDENTS = (
    "worker_restarts",
    "node_restarts",
    "env_rebuilds",
    "broken_numbers",
    "implausible_numbers",
    "memory_growth",
    "lost_opponents",
    "observer_errors",
    "failed_evaluations",
)


class Incident(NamedTuple):
    """Any component -> main process: a failure that was handled, or that does no harm."""

    kind: str  # one of INCIDENTS; counted in TensorBoard
    text: str  # for the log, one line; empty: it is only counted
    times: int = 1  # how often it happened
    details: str = ""  # for the log file only, e.g. a traceback


class EpisodeReport(NamedTuple):
    """Rollout worker -> main process: an agent's episode has ended."""

    policy_id: int
    reward: float  # sum of the raw rewards
    length: int  # env frames
    true_objective: float
    extra_stats: Mapping[str, float]
    info: Mapping[str, Any] = {}  # see envs.end_infos; empty unless an observer reads it
    agent_id: int = 0  # see Topology


class MatchReport(NamedTuple):
    """Rollout worker -> main process: a live policy and a past self have each ended an episode in one env."""

    policy_id: int
    past_self: Milestone
    score: float  # of the live policy: 1 won, 0.5 drawn, 0 lost


class OpponentLost(NamedTuple):
    """Policy worker -> main process: this past self cannot be loaded; the live policy replaces it."""

    past_self: Milestone


class LearnerReady(NamedTuple):
    """Learner -> main process: it has started. precision: "fp32" or "bf16 autocast"."""

    policy_id: int
    device: str  # as torch prints it
    precision: str
    num_parameters: int

    @property
    def text(self) -> str:
        """A line for the log."""
        where = f"on {self.device} in {self.precision}"
        return f"policy {self.policy_id} learns {where}, {self.num_parameters:,} parameters"

    @property
    def short(self) -> str | None:
        """The line on a terminal, where one policy stands for all."""
        return None if self.policy_id == 0 else ""


class TrainReport(NamedTuple):
    """Learner -> main process, after every iteration of training."""

    policy_id: int
    version: int  # number of SGD steps
    env_frames: int
    samples: int  # valid samples trained on since the start of the experiment
    stats: Mapping[str, float] | None  # train/ summaries; None in most reports
    best_value: float | None = None  # of save_best_metric when the best checkpoint was saved, if there is one


class MilestoneSaved(NamedTuple):
    """Learner -> main process: a checkpoint that is kept, and so can be played against."""

    milestone: Milestone


class Reports(NamedTuple):
    """Rollout worker -> main process: the reports of a step of many agents, in their order."""

    reports: Sequence["Report"]


RolloutMessage = ActionsReady | NewShaping | NewTrainingInfo | Opponents
LearnerMessage = Trajectories | SaveRequest | SnapshotRequest | DonateRequest | NewSettings
Report = (
    ComponentReady
    | LearnerReady
    | StatsReport
    | Incident
    | EpisodeReport
    | MatchReport
    | OpponentLost
    | TrainReport
    | MilestoneSaved
    | Snapshot
    | Donated
    | SettingsTaken
    | PolicyReplaced
)


def reports_in(messages: Iterable[Report | Reports]) -> Iterator[Report]:
    """Yields the reports in messages to the main process."""
    for message in messages:
        if isinstance(message, Reports):
            yield from message.reports
        else:
            yield message
