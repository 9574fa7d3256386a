"""Subscribers that steer a run: population-based training and the league."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sample_factory.checkpoints.milestones import DONATION
from sample_factory.config.config import Config
from sample_factory.config.population_flags import FLAG_TAG, REPLACED_BY_TAG, SHAPING_TAG
from sample_factory.exchange.channels import LatestMessages, send
from sample_factory.exchange.messages import (
    LearnerMessage,
    NewSettings,
    NewShaping,
    PolicyReplaced,
    Report,
    SettingsTaken,
    Snapshot,
    SnapshotRequest,
)
from sample_factory.monitoring.monitor import Monitor
from sample_factory.monitoring.policy_progress import EpisodeStats
from sample_factory.monitoring.subscriber import Subscriber
from sample_factory.population.league import League
from sample_factory.population.pbt import Decision, Population
from sample_factory.runtime.clock import Every
from sample_factory.runtime.log import log
from sample_factory.runtime.queues import Queue

MIN_EPISODES = 10  # of each policy, before population-based training compares their means
RETRY_SECONDS = 30.0  # after a decision that could not be carried out, e.g. because the disk is full
PBT_SUMMARY_SECONDS = 300.0
SAVE_LEAGUE_SECONDS = 30.0
OPPONENTS_SECONDS = 2.0  # between messages about changes of the league


class Evolution(Subscriber):
    """In the main process: carries out the decisions of a Population, one at a time, without blocking other
    processes.

    A policy takes over the weights of a donor in these steps:

    1. `tick` sends SnapshotRequest to the donor's learner, which writes a file and answers with Snapshot.
    2. `handle` sends NewSettings with the path of the file to the policy's learner, which loads the file and
       the new hyperparameters, and answers with SettingsTaken.
    3. `handle` stores the decision in the Population and sends NewShaping to the rollout workers.

    A policy that keeps its weights starts at step 2; a policy that keeps its settings too, at step 3.
    """

    def __init__(
        self,
        population: Population,
        metric: str,
        monitor: Monitor,
        learners: Sequence[Queue],
        to_workers: LatestMessages,
        publish: Callable[[Report], None],
        now: Callable[[], float] = time.monotonic,
    ):
        """Sends each policy's reward shaping to the workers, which only know the shaping of the command line.
        metric: --pbt_target_objective. publish: hands a report to all subscribers."""
        self._population = population
        self._metric = metric
        self._monitor = monitor
        self._learners = learners
        self._to_workers = to_workers
        self._publish = publish
        self._now = now
        self._metric_is_checked = False
        self._retry_at = 0.0
        self._pending: Decision | None = None
        self._decided_at = 0  # env frames of the policy at the pending decision
        self._time_to_summarise = Every(PBT_SUMMARY_SECONDS, at_first=True)
        for policy_id in range(len(population.members)):
            self._send_shaping(policy_id)  # workers know only the shaping of the command line

    def tick(self) -> None:
        """Makes a decision if one is due and none is pending, and writes summaries."""
        if not self._metric_is_checked:
            self._check_metric()
        if self._pending is None and self._now() >= self._retry_at:
            self._decide()
        if self._time_to_summarise():
            for policy_id in range(len(self._population.members)):
                self._monitor.write(policy_id, self._summaries(policy_id))

    def _check_metric(self) -> None:
        """Warns if none of the first episodes has reported --pbt_target_objective; does nothing before
        MIN_EPISODES have ended."""
        policies = [policy.episodes for policy in self._monitor.policies]
        if sum(map(len, policies)) < MIN_EPISODES:
            return
        self._metric_is_checked = True
        if all(episodes.spread(self._metric) is None for episodes in policies):
            reported = dict.fromkeys(name for episodes in policies for name in episodes.metrics)
            log.warning(
                "PBT: no episode has reported --pbt_target_objective=%s, and nothing is decided before one "
                "does. Choose one of the reported statistics: %s",
                self._metric,
                ", ".join(reported),
            )

    def _decide(self) -> None:
        env_frames = [policy.env_frames for policy in self._monitor.policies]
        policy_id = self._population.due(env_frames)
        if policy_id is None:
            return
        objectives = [self._objective(policy.episodes) for policy in self._monitor.policies]
        decision = self._population.decide(policy_id, objectives)
        if decision is None:
            return
        self._pending = decision
        self._decided_at = env_frames[policy_id]
        text = "keeps its weights" if decision.donor is None else f"takes over policy {decision.donor}"
        rounded = [round(value, 3) for value in objectives if value is not None]
        log.info("PBT: policy %d %s; objectives %s", policy_id, text, rounded)
        if decision.donor is not None:
            self._send(decision, decision.donor, SnapshotRequest(DONATION))
        elif decision.member == self._population.members[policy_id]:
            self._accept(decision)
        else:
            self._send_settings(decision, None)

    def _objective(self, episodes: EpisodeStats) -> float | None:
        """Returns the mean of --pbt_target_objective over a policy's last episodes; None before MIN_EPISODES,
        or as many as agents, have ended. A full window is not required: decisions about all policies wait
        while one of them has no objective, e.g. because its weights were just replaced."""
        return None if episodes.are_short else episodes.mean(self._metric, MIN_EPISODES)

    def handle(self, report: Report) -> None:
        """Handles the learners' answers to the pending decision; ignores all other reports."""
        decision = self._pending
        if decision is None:
            return
        match report:
            case Snapshot(name=name) if name != DONATION or report.policy_id != decision.donor:
                pass  # of an evaluation, or a best policy
            case Snapshot(path=None):
                self._give_up(decision, "the donor could not write its file")
            case Snapshot(path=path):
                self._send_settings(decision, path)
            case SettingsTaken(error=""):
                self._accept(decision)
            case SettingsTaken(error=error):
                self._give_up(decision, error)

    def _send_shaping(self, policy_id: int) -> None:
        self._to_workers.update(NewShaping(policy_id, self._population.members[policy_id].shaping))

    def _send_settings(self, decision: Decision, donation: str | None) -> None:
        settings = NewSettings(decision.member.hyperparameters, donation)
        self._send(decision, decision.policy_id, settings)

    def _send(self, decision: Decision, policy_id: int, message: LearnerMessage) -> None:
        if not send(self._learners[policy_id], message):
            self._give_up(decision, f"the learner of policy {policy_id} does not read its messages")

    def _accept(self, decision: Decision) -> None:
        policy_id = decision.policy_id
        self._pending = None
        self._population.accept(decision, self._decided_at)
        self._send_shaping(policy_id)
        scalars = self._summaries(policy_id)
        if decision.donor is not None:
            self._publish(PolicyReplaced(policy_id, decision.donor))
            scalars[REPLACED_BY_TAG] = float(decision.donor)
        self._monitor.write(policy_id, scalars)
        values = _flat(decision.member.hyperparameters, "").items()
        text = ", ".join(f"{name} {value:.4g}" for name, value in values)
        log.info("PBT: policy %d continues with %s", policy_id, text)

    def _give_up(self, decision: Decision, reason: str) -> None:
        """Drops the pending decision and logs the reason. The population decides again after
        RETRY_SECONDS."""
        log.error("PBT: policy %d keeps its weights and settings: %s", decision.policy_id, reason)
        self._pending = None
        self._retry_at = self._now() + RETRY_SECONDS

    def _summaries(self, policy_id: int) -> dict[str, float]:
        """Returns the settings of a policy for TensorBoard: tag -> value."""
        member = self._population.members[policy_id]
        return _flat(member.hyperparameters, FLAG_TAG) | _flat(member.shaping, SHAPING_TAG)


def _flat(values: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """Returns nested settings as name -> number. As in v1's tags, the names of all levels are joined by '_',
    and an item of a tuple is named by its index."""
    flat: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}_"))
        elif isinstance(value, (tuple, list)):
            flat.update({f"{prefix}{name}_{i}": float(item) for i, item in enumerate(value)})
        else:
            flat[f"{prefix}{name}"] = float(value)
    return flat


class LeagueSubscriber(Subscriber):
    """In the main process: updates the League with reports, sends its past selves to the rollout workers,
    saves it and writes its summaries."""

    def __init__(self, league: League, config: Config, monitor: Monitor, to_workers: LatestMessages):
        self._league = league
        self._monitor = monitor
        self._num_policies = config.sampling.num_policies
        self._to_workers = to_workers
        # A serial run must be repeatable, so its messages do not depend on time.
        self._is_serial = config.sampling.serial_mode
        self._changed = set(range(self._num_policies))
        self._time_to_send = Every(OPPONENTS_SECONDS, at_first=True)
        self._time_to_save = Every(SAVE_LEAGUE_SECONDS)
        self._time_to_summarise = Every(config.monitoring.experiment_summaries_interval)
        self._send_changes(at_once=True)

    def handle(self, report: Report) -> None:
        self._league.handle(report)
        # Not only in `tick`: the workers that are ready already play while others start.
        self._send_changes(self._is_serial)

    def tick(self) -> None:
        self._send_changes(self._is_serial)
        if self._time_to_summarise():
            self._summarise()
        if self._time_to_save():
            self._league.save()

    def _send_changes(self, at_once: bool) -> None:
        self._changed |= self._league.take_changed()
        if self._changed and (at_once or self._time_to_send()):
            for policy_id in sorted(self._changed):
                self._to_workers.update(self._league.opponents(policy_id))
            self._changed = set()

    def close(self) -> None:
        self._summarise()
        self._league.save()

    def _summarise(self) -> None:
        for policy_id in range(self._num_policies):
            self._monitor.write(policy_id, self._league.summaries(policy_id))
