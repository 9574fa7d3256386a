"""All messages between processes, by sender and receiver. They contain addresses and numbers, never data."""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sample_factory.checkpoints.milestones import Milestone

MAX_ROWS = 20_000  # buffers named in one message, so that any message fits into a queue
MAX_REPORTS = 100  # in one message; fewer if they do not fit

# Rollout workers <-> policy workers


class PolicyRequest(NamedTuple):
    """Rollout worker -> policy workers of a policy: compute actions for rows (buffer_indices[i], step).
    incarnation: number of the sending process among those that have replaced each other as this worker; a
    later process ignores the answer. past_self: milestone to act with; None: the newest weights."""

    worker_index: int
    split: int
    step: int
    buffer_indices: np.ndarray  # [n] int64
    incarnation: int
    past_self: Milestone | None = None


class ActionsReady(NamedTuple):
    """Policy worker -> rollout worker: the outputs for a PolicyRequest have been written."""

    split: int
    policy_id: int
    incarnation: int  # copied from the request


# Rollout workers -> learners


class Trajectories(NamedTuple):
    """Rollout worker -> learner: tickets for full buffers, which the learner copies and releases.

    Also first learner -> other learner of the same policy: its share of a batch.
    """

    buffer_indices: list[int]


class JoinGroup(NamedTuple):
    """First learner -> other learners of the same policy: join the process group at this port.

    key: shows that an order comes from the first learner. Any account of this machine can reach the port.
    """

    port: int
    key: bytes


def rows_of_messages(buffer_indices: np.ndarray) -> Sequence[np.ndarray]:
    """Splits indices of buffers, [n], into parts of at most MAX_ROWS, the most that a message may name."""
    if len(buffer_indices) <= MAX_ROWS:
        return (buffer_indices,)
    return [buffer_indices[first : first + MAX_ROWS] for first in range(0, len(buffer_indices), MAX_ROWS)]


# Main process -> rollout workers


class NewShaping(NamedTuple):
    """Main process -> rollout workers: reward shaping of a policy's agents, from their next episode on."""

    policy_id: int
    shaping: Mapping[str, Any]


class NewTrainingInfo(NamedTuple):
    """Main process -> rollout workers and inline samplers: values for the envs that a policy plays, from
    their next episode on, e.g. the number of env frames trained on so far."""

    policy_id: int
    # A dict, by cloudpickle: it may contain objects of a user's script, which a worker cannot import.
    pickled: bytes

    @property
    def training_info(self) -> Mapping[str, Any]:
        """The unpickled values by name; they replace all values of earlier messages about the policy."""
        values: Mapping[str, Any] = pickle.loads(self.pickled)
        return values


class Opponents(NamedTuple):
    """Main process -> rollout workers: all past selves of a policy that may be drawn as opponents now.
    weights: [num_policies, n] float32; row i says how often live policy i draws each of the n past selves,
    relative to each other."""

    policy_id: int
    past_selves: tuple[Milestone, ...]
    weights: np.ndarray


# Main process -> learners


class SnapshotRequest(NamedTuple):
    """Main process -> learner: write the policy's current state to the file `name`, in order to evaluate it,
    to keep it as the best checkpoint, or to load it into another policy."""

    name: str


class MilestoneRequest(NamedTuple):
    """Main process -> learner: save a milestone now; the learner answers by MilestoneSaved."""


class Snapshot(NamedTuple):
    """Learner -> main process: the answer to SnapshotRequest. path: the file; None if it could not be
    written."""

    name: str
    policy_id: int
    version: int  # number of SGD steps
    env_frames: int
    path: str | None


class NewSettings(NamedTuple):
    """Main process -> learner (PBT): continue with these hyperparameters, and with another policy's weights.

    hyperparameters: flag -> new value. donation: path of the other policy's snapshot; None keeps the weights.
    """

    hyperparameters: Mapping[str, Any]
    donation: str | None


class SettingsTaken(NamedTuple):
    """Learner -> main process: the answer to NewSettings. error: why the settings are not in effect; empty if
    they are."""

    error: str


class PolicyReplaced(NamedTuple):
    """Main process -> subscribers in the main process: a policy has loaded the weights of `donor` (PBT)."""

    policy_id: int
    donor: int


# Any component -> main process


class ComponentReady(NamedTuple):
    """Any component -> main process: the component has started. text: a line for the log; with `is_detail`,
    it is not shown on a terminal."""

    component: str
    text: str
    is_detail: bool = False


class StatsReport(NamedTuple):
    """Any component -> main process: statistics by name, each a mean since the component's last report.
    samples: agent steps since the last report. longest_episode: steps so far of the longest current episode.
    Both are 0 unless the component is a rollout worker."""

    component: str  # "rollout_worker", "policy_worker" or "learner"
    policy_id: int
    stats: Mapping[str, float]
    samples: int = 0
    longest_episode: int = 0


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
    """Any component -> main process: a failure that was handled or is harmless, to be counted and logged.
    kind: one of INCIDENTS. text: a line for the log; empty: only counted. details: for the log file only."""

    kind: str  # one of INCIDENTS; counted in TensorBoard
    text: str
    times: int = 1
    details: str = ""  # for the log file only, e.g. a traceback


class EpisodeReport(NamedTuple):
    """Rollout worker -> main process: an agent's episode has ended. reward: sum of the raw rewards. length:
    in env frames. level: name of the level played; empty: the env has none. info: the info of the last step;
    empty unless an observer reads infos. agent_id: number among all agents of the run."""

    policy_id: int
    reward: float
    length: int
    true_objective: float
    extra_stats: Mapping[str, float]
    info: Mapping[str, Any] = {}  # see envs.end_infos; empty unless an observer reads infos
    agent_id: int = 0  # see Topology.agent_id
    level: str = ""


class MatchReport(NamedTuple):
    """Rollout worker -> main process: a match between a live policy and a past self has ended. score: result
    of the live policy: 1 for a win, 0.5 for a draw, 0 for a defeat."""

    policy_id: int
    past_self: Milestone
    score: float


class MatchEnded(NamedTuple):
    """Rollout worker -> main process of `match`: a match has ended.

    env: number of the env in the run. policies, objectives: agent -> policy id and agent -> score, for agents
        that have ended an episode.
    num_episodes: number of episodes that each agent has begun in this match: 1 if episodes end together.
    """

    env: int
    policies: Mapping[int, int]
    objectives: Mapping[int, float]
    num_episodes: tuple[int, ...]


class OpponentLost(NamedTuple):
    """Policy worker -> main process: a past self cannot be loaded, so the live policy plays instead."""

    past_self: Milestone


class LearnerReady(NamedTuple):
    """Learner -> main process: the learner has started, on this device and in this precision."""

    policy_id: int
    device: str  # as torch prints it
    precision: str  # "fp32" or "bf16 autocast"
    num_parameters: int

    @property
    def text(self) -> str:
        """The message as a line for the log."""
        where = f"on {self.device} in {self.precision}"
        return f"policy {self.policy_id} learns {where}, {self.num_parameters:,} parameters"

    @property
    def is_detail(self) -> bool:
        """Whether the line is left out on a terminal, which shows policy 0 only."""
        return self.policy_id > 0


class TrainReport(NamedTuple):
    """Learner -> main process: progress of the training, sent after every iteration. samples: number of valid
    samples trained on since the start of the experiment. stats: summaries for TensorBoard; None in most
    reports."""

    policy_id: int
    version: int  # number of SGD steps
    env_frames: int
    samples: int
    stats: Mapping[str, float] | None  # train/ summaries; None in most reports


class MilestoneSaved(NamedTuple):
    """Learner -> main process: a milestone was saved, so that policies can play against it."""

    milestone: Milestone


RolloutMessage = ActionsReady | NewShaping | NewTrainingInfo | Opponents
LearnerMessage = Trajectories | SnapshotRequest | MilestoneRequest | NewSettings
Report = (
    ComponentReady
    | LearnerReady
    | StatsReport
    | Incident
    | EpisodeReport
    | MatchReport
    | MatchEnded
    | OpponentLost
    | TrainReport
    | MilestoneSaved
    | Snapshot
    | SettingsTaken
    | PolicyReplaced
)


def reports_in(messages: Iterable[Report | list[Report]]) -> Iterator[Report]:
    """Yields the reports in messages to the main process. A message is a report or a list of reports."""
    for message in messages:
        if isinstance(message, list):
            yield from message
        else:
            yield message
