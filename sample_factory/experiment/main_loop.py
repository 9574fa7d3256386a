"""What comes in from the workers of a run, and what it leads to."""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sample_factory.config.pbt_flags import REPLACED_BY_TAG
from sample_factory.exchange.messages import Incident, LearnerMessage, RolloutMessage, WorkerDied
from sample_factory.experiment.wiring import Parts
from sample_factory.monitoring.episode_stats import EpisodeStats
from sample_factory.monitoring.monitor import Monitor
from sample_factory.population.evolution import Evolution
from sample_factory.population.league import League
from sample_factory.population.league_news import LeagueNews
from sample_factory.population.pbt import Decision
from sample_factory.runtime.clock import Every
from sample_factory.runtime.queues import Queue

log = logging.getLogger("sample_factory")

BENCHMARK_FRAMES = 2_000_000
MIN_EPISODES = 10  # fewer say too little about a policy to replace it, or another by it
PBT_SUMMARY_SECONDS = 300.0
SAVE_LEAGUE_SECONDS = 30.0
SEND_SECONDS = 5.0  # a learner takes in its messages even while it trains; a dead one does not


class Reporting:
    """In the main process: hands reports to Monitor, Evolution and League, and their wishes to workers."""

    def __init__(self, parts: Parts):
        self._channels, self._config = parts.channels, parts.config
        self._num_policies = parts.buffers.topology.num_policies
        self.monitor = _monitor(parts)
        self._evolution: Evolution | None = None
        self._has_sought_objective = False
        self._time_to_summarise = Every(PBT_SUMMARY_SECONDS, at_first=True)
        if parts.population is not None:
            self._evolution = Evolution(
                parts.population, self.tell_learner, self._tell_workers, self._evolved
            )
        self._league = parts.league
        self._league_news: LeagueNews | None = None
        if parts.league is not None:
            is_limited = not self._config.sampling.serial_mode
            self._league_news = LeagueNews(
                parts.league, self._num_policies, self._channels.inboxes, is_limited
            )
        self._time_to_save_league = Every(SAVE_LEAGUE_SECONDS)
        self._time_to_summarise_league = Every(self._config.monitoring.experiment_summaries_interval)
        for index in range(len(self._channels.inboxes)):
            self._tell_new_worker(index)

    def take_in(self, timeout: float) -> None:
        """Reports that come within so many seconds."""
        for report in self._channels.reports.get_many(timeout):
            self.monitor.handle(report)
            if self._evolution is not None:
                self._evolution.handle(report)
            if self._league is not None:
                self._league.handle(report)
        # Here and not in `turn`, which waits for the slowest worker to start: the others play already.
        if self._league_news is not None:
            self._league_news.tell_changes()

    def turn(self, timeout: float) -> None:
        """Takes in reports and does what is due."""
        self.take_in(timeout)
        self.monitor.tick()
        for policy in range(self._num_policies):
            wanted = self.monitor.best_request(policy)
            if wanted is not None:
                self.tell_learner(policy, wanted)
        if self._evolution is not None:
            self._evolve(self._evolution)
        if self._league is not None:
            self._record(self._league)

    def close(self) -> None:
        """Takes in what is left, and writes what is known."""
        self.take_in(0.0)
        if self._league is not None:
            self._summarise_league(self._league)
            self._league.save()
        self.monitor.close()

    def worker_replaced(self, index: int, text: str) -> None:
        """A rollout worker has died; its successor will be sent what it must know."""
        self.monitor.handle(Incident("worker_restarts", text))
        for policy in range(self._num_policies):
            self.tell_learner(policy, WorkerDied(index))
        self._tell_new_worker(index)

    def tell_learner(self, policy: int, message: LearnerMessage) -> bool:
        return _send(self._channels.learners[policy], message)

    def _tell_new_worker(self, index: int) -> None:
        """It only knows the command line."""
        shaping = [] if self._evolution is None else self._evolution.shaping()
        for message in shaping:
            _send(self._channels.inboxes[index], message)
        if self._league_news is not None:
            self._league_news.tell_all(index)

    def _tell_workers(self, message: RolloutMessage) -> None:
        for inbox in self._channels.inboxes:
            _send(inbox, message)

    def _evolve(self, evolution: Evolution) -> None:
        policies, metric = range(self._num_policies), self._config.population.pbt_target_objective
        frames = [self.monitor.env_frames(policy) for policy in policies]
        episodes = [self.monitor.episodes(policy) for policy in policies]
        if not self._has_sought_objective and sum(map(len, episodes)) >= MIN_EPISODES:
            self._has_sought_objective = True
            _warn_unless_reported(metric, episodes)
        evolution.tick(frames, [stats.mean(metric, MIN_EPISODES) for stats in episodes])
        if self._time_to_summarise():
            for policy in policies:
                self.monitor.write(policy, evolution.summaries(policy))

    def _record(self, league: League) -> None:
        if self._time_to_summarise_league():
            self._summarise_league(league)
        if self._time_to_save_league():
            league.save()

    def _summarise_league(self, league: League) -> None:
        for policy in range(self._num_policies):
            self.monitor.write(policy, league.summaries(policy))

    def _evolved(self, decision: Decision) -> None:
        scalars = self._evolution.summaries(decision.policy_id)
        if decision.donor is not None:
            self.monitor.episodes(decision.policy_id).clear()
            scalars[REPLACED_BY_TAG] = float(decision.donor)
            if self._league is not None:
                self._league.replaced(decision.policy_id, decision.donor)
        self.monitor.write(decision.policy_id, scalars)


def _warn_unless_reported(metric: str, policies: Sequence[EpisodeStats]) -> None:
    if all(episodes.spread(metric) is None for episodes in policies):
        reported = dict.fromkeys(name for episodes in policies for name in episodes.metrics)
        log.warning(
            "PBT: no episode has reported --pbt_target_objective=%s, and nothing is decided before one does. "
            "What they report: %s",
            metric,
            ", ".join(reported),
        )


def _send(queue: Queue, message: Any) -> bool:
    """Whether it was taken."""
    deadline = time.monotonic() + SEND_SECONDS
    is_sent = queue.put(message, keep_waiting=lambda: time.monotonic() < deadline)
    if not is_sent:
        log.error("a full queue has not taken %s for %g s", type(message).__name__, SEND_SECONDS)
    return is_sent


def _monitor(parts: Parts) -> Monitor:
    config, topology = parts.config, parts.buffers.topology
    flags = config.monitoring
    if config.sampling.benchmark:
        flags = replace(flags, train_for_env_steps=min(flags.train_for_env_steps, BENCHMARK_FRAMES))
    return Monitor(config.experiment_dir, flags, topology.num_policies, topology.frameskip)
