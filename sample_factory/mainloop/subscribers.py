"""Subscribers for the population and the league, and what subscribers send messages with."""

import logging
import time
from collections.abc import Callable, Sequence

from sample_factory.config.config import Config
from sample_factory.config.population_flags import REPLACED_BY_TAG
from sample_factory.exchange.channels import Channels, LatestSender
from sample_factory.exchange.messages import (
    LearnerMessage,
    PolicyReplaced,
    Report,
    RolloutMessage,
)
from sample_factory.monitoring.monitor import Monitor
from sample_factory.monitoring.policy_progress import EpisodeStats
from sample_factory.monitoring.subscriber import Subscriber
from sample_factory.population.evolution import Evolution
from sample_factory.population.league import League
from sample_factory.population.pbt import Decision, Population
from sample_factory.runtime.clock import Every
from sample_factory.runtime.queues import Queue

log = logging.getLogger("sample_factory")

MIN_EPISODES = 10  # of each policy before population-based training compares their means
PBT_SUMMARY_SECONDS = 300.0
SAVE_LEAGUE_SECONDS = 30.0
SEND_SECONDS = 5.0  # a learner reads its messages even while it trains; a dead one does not


class Outbox:
    """In the main process: sends messages to learners, and to rollout workers or inline samplers."""

    def __init__(self, channels: Channels):
        self._learners = channels.learners
        self._rollout_workers = channels.inboxes

    @property
    def num_rollout_workers(self) -> int:
        """Number of rollout workers, or of inline samplers, which pass messages on to those in them."""
        return len(self._rollout_workers)

    @property
    def rollout_workers(self) -> Sequence[Queue]:
        """The inboxes of the rollout workers, for messages that must not wait."""
        return self._rollout_workers

    def send_to_learner(self, policy_id: int, message: LearnerMessage) -> bool:
        """Returns whether there was room for the message within SEND_SECONDS."""
        return _send(self._learners[policy_id], message)

    def send_to_rollout_worker(self, index: int, message: RolloutMessage) -> bool:
        """Returns whether there was room for the message within SEND_SECONDS."""
        return _send(self._rollout_workers[index], message)

    def send_to_all_rollout_workers(self, message: RolloutMessage) -> None:
        for inbox in self._rollout_workers:
            _send(inbox, message)


def _send(inbox: Queue, message: LearnerMessage | RolloutMessage) -> bool:
    deadline = time.monotonic() + SEND_SECONDS
    is_sent = inbox.put(message, keep_waiting=lambda: time.monotonic() < deadline)
    if not is_sent:
        log.error("Could not send %s: the queue stayed full for %g s", type(message).__name__, SEND_SECONDS)
    return is_sent


class PopulationSubscriber(Subscriber):
    """Steers population-based training: gives it the objectives, sends its messages, writes its summaries."""

    def __init__(
        self,
        population: Population,
        metric: str,
        monitor: Monitor,
        outbox: Outbox,
        publish: Callable[[Report], None],
    ):
        """metric: --pbt_target_objective. publish: hands a report to all subscribers."""
        self._evolution = Evolution(
            population, outbox.send_to_learner, outbox.send_to_all_rollout_workers, self._accepted
        )
        self._metric = metric
        self._monitor = monitor
        self._outbox = outbox
        self._publish = publish
        self._metric_is_checked = False
        self._time_to_summarise = Every(PBT_SUMMARY_SECONDS, at_first=True)

    def handle(self, report: Report) -> None:
        self._evolution.handle(report)

    def tick(self) -> None:
        policies = self._monitor.policies
        episodes = [policy.episodes for policy in policies]
        if not self._metric_is_checked and sum(map(len, episodes)) >= MIN_EPISODES:
            self._metric_is_checked = True
            _warn_unless_reported(self._metric, episodes)
        objectives = [stats.mean(self._metric, MIN_EPISODES) for stats in episodes]
        self._evolution.tick([policy.env_frames for policy in policies], objectives)
        if self._time_to_summarise():
            for policy_id in range(len(policies)):
                self._monitor.write(policy_id, self._evolution.summaries(policy_id))

    def worker_started(self, index: int) -> None:
        for message in self._evolution.shaping():
            self._outbox.send_to_rollout_worker(index, message)

    def _accepted(self, decision: Decision) -> None:
        """Called when a decision is in effect."""
        scalars = self._evolution.summaries(decision.policy_id)
        if decision.donor is not None:
            self._publish(PolicyReplaced(decision.policy_id, decision.donor))
            scalars[REPLACED_BY_TAG] = float(decision.donor)
        self._monitor.write(decision.policy_id, scalars)


def _warn_unless_reported(metric: str, policies: Sequence[EpisodeStats]) -> None:
    if all(episodes.spread(metric) is None for episodes in policies):
        reported = dict.fromkeys(name for episodes in policies for name in episodes.metrics)
        log.warning(
            "PBT: no episode has reported --pbt_target_objective=%s, and nothing is decided before one does. "
            "Choose one of the reported statistics: %s",
            metric,
            ", ".join(reported),
        )


class LeagueSubscriber(Subscriber):
    """Keeps the league up to date, sends its past selves to rollout workers, saves and summarises it."""

    def __init__(self, league: League, config: Config, monitor: Monitor, outbox: Outbox):
        self._league = league
        self._monitor = monitor
        self._num_policies = config.sampling.num_policies
        # A serial run must be repeatable, so its messages do not depend on time.
        is_limited = not config.sampling.serial_mode
        self._sender = LatestSender(
            league.take_changed, league.opponents, self._num_policies, outbox.rollout_workers, is_limited
        )
        self._time_to_save = Every(SAVE_LEAGUE_SECONDS)
        self._time_to_summarise = Every(config.monitoring.experiment_summaries_interval)

    def handle(self, report: Report) -> None:
        self._league.handle(report)
        # Not only in `tick`: the workers that are ready play already while others start.
        self._sender.send_changes()

    def tick(self) -> None:
        self._sender.send_changes()
        if self._time_to_summarise():
            self._summarise()
        if self._time_to_save():
            self._league.save()

    def worker_started(self, index: int) -> None:
        self._sender.send_all(index)

    def close(self) -> None:
        self._summarise()
        self._league.save()

    def _summarise(self) -> None:
        for policy_id in range(self._num_policies):
            self._monitor.write(policy_id, self._league.summaries(policy_id))
