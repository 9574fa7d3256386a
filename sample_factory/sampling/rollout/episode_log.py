"""Episodes and matches of the agents of one split, and the reports about them."""

import itertools
import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sample_factory.envs.end_infos import (
    MAX_STAT_NAME,
    MAX_STATS,
    extra_stats,
    level_of,
    portable_info,
    true_objective,
)
from sample_factory.envs.protocol import (
    COST,
    EMPTY_INFO,
    EPISODE_CONTINUES,
    FRAMES_LEFT_OUT,
    Info,
    StepResult,
)
from sample_factory.exchange.messages import EpisodeReport, Incident, MatchEnded, MatchReport, Report
from sample_factory.runtime.log import log
from sample_factory.sampling.matchmaking.matchmaking import Player

MAX_NAMES = 5  # of statistics, in a line of the log


class EpisodeLog:
    """Sums up rewards, costs and lengths of the episodes of one split's agents, and collects reports about
    episodes and matches for the main process.

    reports_infos: whether the report of an episode contains the info of its last step.
    reports_matches: whether the result of each match is reported too.
    has_costs: whether any step so far had a cost.
    """

    def __init__(
        self,
        env_names: Sequence[str],
        agents_per_env: int,
        frameskip: int,
        first_id: int = 0,
        teams: Sequence[int] = (),
    ):
        """Begins without episodes. env_names: name of each env of the split. frameskip: env frames per step.
        first_id: id of the split's first agent in the run (Topology.agent_id). teams: team of each agent of
        an env, [agents_per_env]; empty: all agents are opponents."""
        num_agents = len(env_names) * agents_per_env
        self.reports_infos = False
        self.reports_matches = False
        self._env_names = env_names
        self._agents_per_env = agents_per_env
        self._frameskip = frameskip
        self._first_id = first_id
        self._returns = np.zeros(num_agents)
        self._costs = np.zeros(num_agents)
        self.has_costs = False  # once a step has had one
        self._lengths = np.zeros(num_agents, np.int64)  # in steps
        self._matches = [MatchLog(agents_per_env, teams) for _ in env_names]
        self._reports: list[Report] = []
        self._logged: set[str] = set()  # kinds of faults

    def take_reports(self) -> list[Report]:
        """Returns the reports collected since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def add(self, rewards: np.ndarray, active: np.ndarray, costs: np.ndarray | None = None) -> None:
        """Adds a step of all agents to their episodes. rewards: [agents], raw and finite. active: [agents]
        bool. costs: [agents]; None if no env has any.

        An episode begins with the agent's first active step; rewards between two episodes do not count.
        """
        self._lengths += active
        self._returns += np.where(self.begun, rewards, 0.0)
        if costs is not None:
            self._costs += np.where(self.begun, costs, 0.0)
            self.has_costs = True

    def add_random_step(self, env: int, result: StepResult, active: np.ndarray | None) -> None:
        """Adds a random step of an env, taken before its policies act for the first time. An episode that
        begins with random steps is reported as a whole; an episode that also ends with one is not reported.

        active: [agents_per_env] bool, which agents acted in the step; None: all of them.
        """
        own = self._agents_of(env)
        self._lengths[own] += True if active is None else active
        rewards = np.asarray(result.rewards, float)
        self._returns[own] += np.where(self.begun[own] & np.isfinite(rewards), rewards, 0.0)
        if result.costs is not None:
            costs = np.asarray(result.costs)
            self._costs[own] += np.where(self.begun[own] & np.isfinite(costs), costs, 0.0)
            self.has_costs = True
        for agent in np.flatnonzero(np.logical_or(result.terminated, result.truncated)).tolist():
            if not result.end_infos.get(agent, EMPTY_INFO).get(EPISODE_CONTINUES):
                self._clear(own.start + agent)

    @property
    def begun(self) -> np.ndarray:
        """Whether each agent is within an episode, [agents] bool."""
        return self._lengths > 0

    @property
    def longest_episode(self) -> int:
        """Number of steps so far of the longest current episode."""
        return int(self._lengths.max())

    def end(self, agents: Sequence[int], players: Sequence[Player], infos: Sequence[Info]) -> None:
        """Ends the episodes of some agents, and collects a report about each, except for past selves. agents:
        indices in the split. players: the player of each of these agents. infos: the info of each of these
        agents at its last step, an entry of StepResult.end_infos."""
        rewards = self._returns[agents].tolist()
        not_played = [info.get(FRAMES_LEFT_OUT, 0) for info in infos]
        lengths = (self._lengths[agents] * self._frameskip - not_played).tolist()
        costs = self._costs[agents].tolist()
        for agent, player, info, reward, frames, cost in zip(agents, players, infos, rewards, lengths, costs):
            objective = true_objective(info, reward)
            if player.is_live:
                agent_id = self._first_id + agent
                stats, left_out = extra_stats(info)
                if self.has_costs:
                    stats.setdefault(COST, cost)
                if left_out:
                    self._log_left_out(agent, left_out)
                shown = portable_info(info) if self.reports_infos else EMPTY_INFO
                level = level_of(info)
                self._reports.append(
                    EpisodeReport(player.policy_id, reward, frames, objective, stats, shown, agent_id, level)
                )
            env, agent_of_env = divmod(agent, self._agents_per_env)
            self._matches[env].end(agent_of_env, player, objective)
        self._clear(agents)

    def end_matches(self, agents: Sequence[int]) -> list[int]:
        """Reports the results of the matches that have ended with this step, and returns the indices of their
        envs. agents: all agents whose episode ended in this step."""
        over = []
        begun = self.begun
        for env in sorted({agent // self._agents_per_env for agent in agents}):
            if self._matches[env].is_over(begun[self._agents_of(env)]):
                if self.reports_matches:
                    number = self._first_id // self._agents_per_env + env
                    self._reports.append(self._matches[env].whole_result(number, begun[self._agents_of(env)]))
                self._reports += self._matches[env].take_results()
                over.append(env)
        return over

    def discard(self, env: int) -> None:
        """Discards the current episodes and the current match of an env, e.g. one that was rebuilt after an
        exception; nothing is reported about them."""
        self._clear(self._agents_of(env))
        self._matches[env].abandon()

    def report_rewards(self, kind: str, rewards: np.ndarray, agents: np.ndarray, consequence: str) -> None:
        """Reports an incident that counts the faulty rewards of `agents`; its text is logged only for the
        first incident of a kind, since every step may have some.

        kind: kind of the incident. rewards: [agents], of all agents of the split. consequence: how such
            rewards are treated, for the log.
        """
        text = ""
        if self._is_first(kind):
            env, agent = divmod(int(agents[0]), self._agents_per_env)
            text = (
                f"{self._env_names[env]} gave agent {agent} the reward {rewards[agents[0]]}; {consequence} "
                f"(health/{kind} counts them)"
            )
        self._reports.append(Incident(kind, text, len(agents)))

    def _log_left_out(self, agent: int, left_out: Mapping[str, Any]) -> None:
        """Logs which statistics of an episode are not reported, name -> value; does so only once per log."""
        if not self._is_first("left_out"):
            return
        env, _ = divmod(agent, self._agents_per_env)
        first = itertools.islice(left_out.items(), MAX_NAMES)
        shown = ", ".join(f"{reprlib.repr(name)}: {reprlib.repr(value)}" for name, value in first)
        log.warning(
            "%s: left out of an episode's statistics: %s%s; at most %d numbers are reported, with printable "
            "names of at most %d characters",
            self._env_names[env],
            shown,
            ", ..." if len(left_out) > MAX_NAMES else "",
            MAX_STATS,
            MAX_STAT_NAME,
        )

    def _is_first(self, kind: str) -> bool:
        """Returns whether a kind of fault occurs for the first time, since only then a line is logged."""
        is_first = kind not in self._logged
        self._logged.add(kind)
        return is_first

    def _clear(self, agents: int | slice | Sequence[int]) -> None:
        self._returns[agents] = 0.0
        self._costs[agents] = 0.0
        self._lengths[agents] = 0

    def _agents_of(self, env: int) -> slice:
        return slice(env * self._agents_per_env, (env + 1) * self._agents_per_env)


class MatchLog:
    """Collects the results of matches in one env between live policies and past selves.

    A match is over when every agent that is within an episode has ended an episode since the match began;
    agents that take no part are not waited for. The last episode of each agent counts.
    """

    def __init__(self, num_agents: int, teams: Sequence[int] = ()):
        """Begins a match. teams: team of each agent, [num_agents]; empty: all agents are opponents."""
        self._teams = teams or range(num_agents)
        self._ended: dict[int, tuple[Player, float]] = {}  # by agent, in this match
        self._num_ended = np.zeros(num_agents, np.int64)  # in this match

    def end(self, agent: int, player: Player, objective: float) -> None:
        """Adds the result of an agent's episode. objective: the env's score of the episode."""
        self._ended[agent] = player, objective
        self._num_ended[agent] += 1

    def is_over(self, begun: np.ndarray) -> bool:
        """Returns whether each agent that is within an episode has ended an earlier one in this match.
        begun: [num_agents] bool, agents within an episode."""
        return not (begun & (self._num_ended == 0)).any()

    def whole_result(self, env: int, begun: np.ndarray) -> MatchEnded:
        """Returns the results of all agents in the match, for the command `match`. env: number of the env in
        the run. begun: [num_agents] bool, agents within an episode."""
        policies = {agent: player.policy_id for agent, (player, _) in self._ended.items()}
        objectives = {agent: objective for agent, (_, objective) in self._ended.items()}
        return MatchEnded(env, policies, objectives, tuple((self._num_ended + begun).tolist()))

    def take_results(self) -> list[MatchReport]:
        """Returns the results of each live policy against each past self, and begins a new match. Leaves out
        pairs in the same team, who win and lose together, and pairs in which an objective is NaN."""
        ended = [(self._teams[agent], *episode) for agent, episode in self._ended.items()]
        self.abandon()
        past_selves = [
            (team, player.past_self, objective) for team, player, objective in ended if player.past_self
        ]
        live = [(team, player.policy_id, objective) for team, player, objective in ended if player.is_live]
        return [
            # 1: won, 0.5: drawn, 0: lost.
            MatchReport(policy, past_self, 0.5 * (1 + (own > other) - (own < other)))
            for team, policy, own in (live if past_selves else ())
            for other_team, past_self, other in past_selves
            if team != other_team and not math.isnan(own + other)
        ]

    def abandon(self) -> None:
        """Discards the results of the current match, e.g. if its env was rebuilt, and begins a new match."""
        self._ended = {}
        self._num_ended[:] = 0
