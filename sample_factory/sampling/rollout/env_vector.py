"""The envs of one split of a rollout worker: the only place in training where `env.step` is called."""

import math
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from sample_factory.envs.protocol import (
    COST,
    EMPTY_INFO,
    EPISODE_CONTINUES,
    EndInfos,
    EnvContractError,
    ObservationRows,
)
from sample_factory.envs.random_actions import RandomActions
from sample_factory.exchange.messages import PolicyRequest, rows_of_messages
from sample_factory.exchange.run_plan import RANDOM_PLAYER, EnvPlan
from sample_factory.exchange.topology import episode_shares
from sample_factory.exchange.trajectory_buffers import INACTIVE, WAITING, TrajectoryBuffers
from sample_factory.sampling.matchmaking.matchmaker import PlayerAssignment
from sample_factory.sampling.matchmaking.matchmaking import CheckedMatchmaking
from sample_factory.sampling.rollout.episode_log import EpisodeLog
from sample_factory.sampling.rollout.guarded_env import GuardedEnv
from sample_factory.sampling.rollout.rollout_memory import RolloutMemory
from sample_factory.sampling.rollout.shared_reward import SharedReward
from sample_factory.sampling.rollout.values_for_envs import ValuesForEnvs

# After --reward_scale. A larger reward nearly always is a mistake, or should be scaled.
MAX_PLAUSIBLE_REWARD = 1e6
# In a row, in an evaluation: an agent that misses more is not waited for. Large, since an agent that rarely
# takes part plays its episodes too.
MAX_MATCHES_MISSED = 100


class EnvVector:
    """Steps E envs of A agents each, one after another. All agents are at the same step of their buffers.

    Agents are numbered 0 .. E*A-1. Cycle: `requests` -> (policy workers write outputs) -> `step` -> ... until
    `memory.is_full`; then `finish_rollout`, which is tried again later while there are too few free buffers.

    A step runs no Python per agent, except for the agents whose episode ends in it.
    """

    def __init__(
        self,
        envs: Sequence[GuardedEnv],
        matchmakings: Sequence[CheckedMatchmaking],
        buffers: TrajectoryBuffers,
        worker_index: int,
        split: int,
        plan: EnvPlan,
    ):
        """Prepares to step the envs of a split: acquires the first buffer of every agent; the envs are reset
        later, by `reset`. matchmakings: one for each env, which chooses the players of its agents."""
        topology = buffers.topology
        self.envs = envs
        self.steps_in_background = all(env.steps_in_background for env in envs)  # so `send` may be called
        self._needs_costs = topology.has_costs
        self._takes_turns = any(env.takes_turns for env in envs)
        self._reward_scale = plan.reward_scale
        self._reward_clip = plan.reward_clip
        self._sharing = SharedReward(plan, len(envs)) if plan.sharers else None
        # Any other --reward_clip is chosen to clip, as Atari's 1.
        is_default = plan.reward_clip == EnvPlan._field_defaults["reward_clip"]
        self._largest_reward = plan.reward_clip if is_default else MAX_PLAUSIBLE_REWARD
        self._scripts = plan.scripts
        has_random = RANDOM_PLAYER in plan.scripts.values()
        self._random = RandomActions(envs[0].kinds, plan.seed) if has_random else None
        self._worker_index = worker_index
        self._split = split
        self._agents_per_env = topology.agents_per_env
        self._num_agents = topology.agents_per_split
        starts = range(0, self._num_agents, self._agents_per_env)
        self._agents_of = [slice(start, start + self._agents_per_env) for start in starts]  # by env
        self._players = PlayerAssignment(matchmakings, self._agents_per_env)
        self.values = ValuesForEnvs(envs, self._players, self._agents_per_env)
        self.memory = RolloutMemory(buffers, worker_index, split)
        self._active = np.ones(self._num_agents, bool)
        self._all_active = True
        self._has_sent = False  # whether `send` was called for the current step
        first_id = topology.agent_id(worker_index, split, 0)
        names = [env.name for env in envs]
        self.log = EpisodeLog(names, self._agents_per_env, topology.frameskip, first_id, plan.teams)
        self.log.reports_infos = plan.reports_infos
        self.log.reports_matches = plan.reports_matches
        self._stepped = list(zip(range(len(envs)), envs, self._agents_of))
        self._resting: dict[int, np.ndarray] = {}  # by env that is stepped no more: no active agents
        self._missing: np.ndarray | None = None  # in an evaluation: episodes that each agent has yet to play
        self._num_missed = np.zeros(self._num_agents, np.int64)  # matches in a row, by agent
        if topology.num_episodes is not None:
            shares = episode_shares(topology.num_episodes, topology.num_agents)
            self._missing = shares[first_id : first_id + self._num_agents]
            self._rest_if_done(range(len(envs)))

    def reset(
        self,
        seeds: Sequence[int | None],
        random_steps: Sequence[int],
        random_actions: Callable[[ObservationRows], np.ndarray],
        beat: Callable[[], None] = lambda: None,
        max_seconds: float = math.inf,
    ) -> None:
        """Resets env i with seeds[i], then takes random_steps[i] random steps in it, so that the episodes of
        different envs end at different times.

        random_actions: maps the observations of an env's agents to actions, [agents_per_env, K] float32.
        beat: called before each reset and each random step, to signal that the process is alive.
        max_seconds: limit for all random steps; each env gets a share in proportion to its number of steps.
        """
        active = {}
        seconds_per_step = max_seconds / max(1, sum(random_steps))
        for i, env in enumerate(self.envs):
            rows = self.memory.rows(self._agents_of[i], step=0)
            beat()
            env.reset(seeds[i], rows)
            active[i] = env.active_after_reset
            end = time.monotonic() + random_steps[i] * seconds_per_step
            for _ in range(random_steps[i]):
                if time.monotonic() >= end:
                    break
                beat()
                result = env.step(random_actions(rows), rows)
                if result is None:
                    self.log.discard(i)
                else:
                    self.log.add_random_step(i, result, active[i])
                active[i] = env.active_after_reset if result is None else result.active
        self._set_active(active)
        self.values.after_reset()

    def checksum_of_starts(self) -> int:
        """Returns a checksum of the first observations of agents 0 and 1, to find workers with equal random
        numbers. Returns 0 if the two observations are equal: then all episodes may begin alike."""
        rows = self.memory.rows(self._agents_of[0], step=0)
        first, second = (b"".join(array.tobytes() for array in rows.view(agent).values()) for agent in (0, 1))
        return 0 if first == second else zlib.crc32(first + second)

    @property
    def is_done(self) -> bool:
        """Whether this is an evaluation, and all agents have played their share of its episodes."""
        return not self._stepped

    @property
    def is_stepping(self) -> bool:
        """Whether the envs are in the middle of a step: `send` was called, and `step` not yet."""
        return self._has_sent

    def requests(self, incarnation: int = 0) -> list[tuple[int, PolicyRequest]]:
        """Returns the action requests of the current step as (policy id, request): one for each player with
        active agents that is not scripted, or more if a message cannot name all its agents. incarnation:
        number of this process among those that have replaced each other as this worker."""
        memory = self.memory
        requests = []
        for player, agents in self._players.groups(self._active):
            if player.policy_id in self._scripts:
                continue
            for rows in rows_of_messages(memory.buffer_indices[agents]):
                request = PolicyRequest(
                    self._worker_index, self._split, memory.step, rows, incarnation, player.past_self
                )
                requests.append((player.policy_id, request))
        return requests

    def send(self) -> None:
        """Starts the current step in background threads of the envs; `step` then waits until the step has
        ended. May be called only if `steps_in_background` is True."""
        actions = self._actions()
        for _, env, own in self._stepped:
            env.send(actions[own])
        self._has_sent = True

    def step(self) -> None:
        """Steps every env with the actions of the current step, and writes the results to the buffers."""
        memory = self.memory
        actions = None if self._has_sent else self._actions()
        self._has_sent = False
        rewards = np.zeros(self._num_agents)
        terminated = np.zeros(self._num_agents, bool)
        truncated = np.zeros(self._num_agents, bool)
        costs: np.ndarray | None = None  # until an env has one
        end_infos: dict[int, EndInfos] = {}  # by env
        active: dict[int, np.ndarray | None] = {}  # by env
        rebuilt = []
        for i, env, own in self._stepped:
            rows = memory.rows(own, memory.step + 1)
            result = env.receive(rows) if actions is None else env.step(actions[own], rows)
            if result is None:
                rebuilt.append(i)
                active[i] = env.active_after_reset
                continue
            rewards[own], terminated[own], truncated[own], end_infos[i], active[i], of_env = result
            if of_env is not None:
                costs = np.zeros(self._num_agents) if costs is None else costs
                costs[own] = of_env
        if costs is not None:
            self._check_costs(costs)
        self._store(rewards, terminated, truncated, 0.0 if costs is None else costs)
        self.log.add(rewards, self._active, costs)
        # An env may report the end of an agent again while the agent stays inactive: not another episode.
        self._end_episodes((terminated | truncated) & self.log.begun, end_infos)
        self._set_active(active)
        for i in rebuilt:
            self._discard_step(i)
        memory.step += 1

    def finish_rollout(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Hands the full buffers over to the learners and acquires free ones; the observation after the last
        step becomes step 0 of the next rollout.

        Returns (full buffers [agents] int64, acted [agents, num_policies] bool: whether the learner of policy
        p gets the buffer of agent a). Returns None, and changes nothing, if there are too few free buffers.
        """
        return self.memory.finish_rollout(self._active, self._players.policies)

    def close(self) -> None:
        """Closes all envs."""
        for env in self.envs:
            env.close()

    def _actions(self) -> np.ndarray:
        """Returns the actions of the current step, [agents, K]; zeros for inactive agents."""
        actions = self.memory.actions()
        if not self._all_active:
            actions[~self._active] = 0.0
        if self._scripts:
            self._add_scripted(actions)
        return actions

    def _add_scripted(self, actions: np.ndarray) -> None:
        """Writes the actions of the active agents that scripted players play into `actions`, [agents, K]."""
        for _, env, own in self._stepped:
            drawn = None if self._random is None else self._random(self.memory.rows(own, self.memory.step))
            for agent in range(own.start, own.stop):
                script = self._scripts.get(int(self._players.policies[agent]))
                if script is None or not self._active[agent]:
                    continue
                if script == RANDOM_PLAYER:
                    assert drawn is not None
                    actions[agent] = drawn[agent - own.start]
                else:
                    row = env.scripted_action(script, agent - own.start)
                    actions[agent, : len(row)] = row

    def _store(
        self,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        costs: np.ndarray | float = 0.0,
    ) -> None:
        """Writes the results of the current step, each [agents], to the buffers, with rewards scaled, mixed
        within teams (--shared_reward) and clipped. Changes non-finite `rewards` to 0 in place, so that the
        episode's return stays finite; the buffers get NaN, which marks the step as not to be trained on."""
        scaled = rewards * self._reward_scale
        if self._sharing is not None:
            members = self._active | self.log.begun if self._takes_turns else self._active
            scaled = self._sharing.mix(scaled, members)
        clipped = np.clip(scaled, -self._reward_clip, self._reward_clip)
        if not (np.abs(scaled) <= self._largest_reward).all():  # also if one is NaN
            clipped[~np.isfinite(scaled)] = np.nan  # infinity is an error, and not a large reward
            self._report_rewards(rewards)
        is_trained_on = self._active & self._players.is_live
        policy_ids = np.where(is_trained_on, self._players.policies, INACTIVE)
        if self._takes_turns:
            policy_ids[~self._active & self.log.begun & self._players.is_live] = WAITING
        self.memory.store(clipped, terminated, truncated, policy_ids, costs)

    def _check_costs(self, costs: np.ndarray) -> None:
        """Checks costs, [agents]. Raises EnvContractError, which names env and agent, if any is not
        finite."""
        broken = np.flatnonzero(~np.isfinite(costs))
        if len(broken):
            env, agent = divmod(int(broken[0]), self._agents_per_env)
            raise EnvContractError(
                f"{self.envs[env].name} gave agent {agent} the cost {costs[broken[0]]}; info[{COST!r}] "
                "should be a finite number"
            )

    def _report_rewards(self, rewards: np.ndarray) -> None:
        """Reports non-finite and unexpectedly large rewards, and changes the non-finite ones to 0, in place.
        rewards: [agents], before scaling."""
        finite = np.isfinite(rewards)
        broken = np.flatnonzero(~finite)
        large = np.flatnonzero(finite & (np.abs(rewards * self._reward_scale) > self._largest_reward))
        if len(broken):
            self.log.report_rewards("broken_numbers", rewards, broken, "such steps are not trained on")
        if len(large):
            limit = f"training clips rewards to +-{self._reward_clip:g}"
            consequence = f"{limit}, see --reward_scale and --reward_clip"
            self.log.report_rewards("implausible_numbers", rewards, large, consequence)
        rewards[~finite] = 0.0

    def _end_episodes(self, ended: np.ndarray, end_infos: Mapping[int, EndInfos]) -> None:
        """Closes the episodes of the `ended` agents, [agents] bool: resets the agents' recurrent states, logs
        the episodes, draws new players. Raises EnvContractError if costs are needed and the env has sent
        none.

        end_infos: env index -> infos of its agents; no entry for an env that was rebuilt after a crash.
        """
        agents = np.flatnonzero(ended)
        if not len(agents):
            return
        self.memory.reset_rnn_state(agents)
        finished = []  # agents that do not continue their episode, see EPISODE_CONTINUES
        infos = []
        for agent in agents.tolist():
            env, agent_of_env = divmod(agent, self._agents_per_env)
            info = end_infos[env].get(agent_of_env, EMPTY_INFO)
            if not info.get(EPISODE_CONTINUES):
                finished.append(agent)
                infos.append(info)
        if finished:
            if self._needs_costs and not self.log.has_costs:
                name = self.envs[finished[0] // self._agents_per_env].name
                raise EnvContractError(
                    f"{name}: the algorithm needs info[{COST!r}], a number in each step, and an episode has "
                    "ended without one"
                )
            self.log.end(finished, self._players.players_of(finished), infos)
            over = self.log.end_matches(finished)
            self._begin_episodes(finished, over)
            if self._missing is not None:
                self._missing[finished] -= 1
                self._num_missed[finished] = 0
                self._rest_if_done({agent // self._agents_per_env for agent in finished})
                for env in over:
                    self._check_missing(env)

    def _rest_if_done(self, envs: Iterable[int]) -> None:
        """In an evaluation: stops each env once all its agents have played their episodes."""
        assert self._missing is not None
        for env in envs:
            if (self._missing[self._agents_of[env]] <= 0).all():
                self._resting[env] = np.zeros(self._agents_per_env, bool)
        self._stepped = [stepped for stepped in self._stepped if stepped[0] not in self._resting]

    def _check_missing(self, env: int) -> None:
        """In an evaluation, after a match: raises EnvContractError if all agents of the env that still have
        episodes to play have missed more than MAX_MATCHES_MISSED matches in a row."""
        assert self._missing is not None
        own = self._agents_of[env]
        self._num_missed[own] += 1
        missing = np.flatnonzero(self._missing[own] > 0)
        if len(missing) and (self._num_missed[own][missing] > MAX_MATCHES_MISSED).all():
            raise EnvContractError(
                f"{self.envs[env].name}: agent {missing[0]} has taken part in none of the last "
                f"{MAX_MATCHES_MISSED} matches, and cannot play its share of the episodes; an env should "
                "have no agent (in PettingZoo, possible_agents) that never plays"
            )

    def _begin_episodes(self, ended: Sequence[int], over: Sequence[int]) -> None:
        """Draws players for the agents that begin an episode, and sends their envs reward shaping and
        training info. ended: agents whose episode ended in this step. over: envs whose match ended."""
        starting = self._players.next_episodes(ended, over, self.log.begun)
        self.values.begin_episodes(starting, over)

    def _discard_step(self, env: int) -> None:
        """Discards the step in which an env was rebuilt: the step is not trained on, and the interrupted
        episodes are not reported."""
        agents = self._agents_of[env]
        self.memory.discard_step(agents)
        self.log.discard(env)
        indices = range(agents.start, agents.stop)
        self.memory.reset_rnn_state(indices)
        self._begin_episodes(indices, [env])

    def _set_active(self, active_by_env: Mapping[int, np.ndarray | None]) -> None:
        """Sets which agents act in the coming step. Unless agents take turns, resets the recurrent state of
        agents that become inactive, as the learner does when it unrolls the network.

        active_by_env: env index -> [agents_per_env] bool; None: all agents of the env.
        """
        if self._all_active and not self._resting and all(mask is None for mask in active_by_env.values()):
            return
        active = np.ones(self._num_agents, bool)
        for env, of_env in {**active_by_env, **self._resting}.items():
            if of_env is not None:
                active[self._agents_of[env]] = of_env
        if not self._takes_turns:
            self.memory.reset_rnn_state(self._active & ~active)
        self._active = active
        self._all_active = bool(active.all())
