"""Plays one env with trained policies and scripted players, step by step, for `enjoy` and `match`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from sample_factory.config.flags import ConfigError
from sample_factory.envs.abilities import ScriptedPlayers, find_ability
from sample_factory.envs.end_infos import extra_stats, true_objective
from sample_factory.envs.protocol import EMPTY_INFO, EPISODE_CONTINUES, MultiAgentEnv, ObservationRows
from sample_factory.evaluation.results import EpisodeResult
from sample_factory.spaces.actions import action_encoder, action_layout

if TYPE_CHECKING:
    from sample_factory.evaluation.policy import TrainedPolicy


class ScriptedPolicy:
    """A scripted player of an env, such as a bot, in place of a trained policy. It sees the env itself."""

    def __init__(self, player: str, env: MultiAgentEnv):
        """player: its name. Raises ConfigError if the env has no such player."""
        self._players = find_ability(env.env, ScriptedPlayers)
        known = self._players.scripted_players()
        if player not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise ConfigError(f"--opponent_player={player}: the env has no such player; {has}")
        self._player = player
        self._encode = action_encoder(env.kinds.spaces[0].action)

    def first_rnn_state(self, num_agents: int) -> np.ndarray:
        """Returns an empty state, [num_agents, 0]."""
        return np.zeros((num_agents, 0))

    def act(self, agent: int) -> np.ndarray:
        """Returns the action that the player chooses for an agent now, [K] float32."""
        return self._encode(self._players.scripted_action(self._player, agent))


Player: TypeAlias = "TrainedPolicy | ScriptedPolicy"


class EpisodeRunner:
    """One env, and the policy that each of its agents follows. Promises:

    1. Observations, rewards, frameskip and time limits are as in training.
    2. An agent's recurrent state is zero at the start of each of its episodes, and after each step in which
       it was inactive, as in training.
    3. The action of an inactive agent is zero.
    4. Agents that share a policy share its forward pass.

    `active`: bool [num_agents]. `returns`: sum of the rewards of each agent's episode so far, [num_agents].
    `actions`: the last actions, [num_agents, K] float32.
    """

    def __init__(self, env: MultiAgentEnv, policies: Sequence[Player], frameskip: int):
        """policies: one for each agent."""
        self.env = env
        self.num_agents = env.num_agents
        self.frameskip = frameskip
        self._rows = ObservationRows.allocate(env.kinds)
        row_size = max(action_layout(spaces.action).num_action_values for spaces in env.kinds.spaces)
        self.actions = np.zeros((env.num_agents, row_size), np.float32)
        self.env_frames = 0
        self.assign(policies)

    def assign(self, policies: Sequence[Player]) -> None:
        """Makes agent i follow policies[i], from a zero recurrent state. Call it when all episodes ended."""
        members: dict[Player, list[int]] = {}
        for agent, policy in enumerate(policies):
            members.setdefault(policy, []).append(agent)
        self._groups = [_Group(policy, np.array(agents)) for policy, agents in members.items()]

    def start(self, seed: int | None) -> None:
        """Begins the first episodes. Called once."""
        self.active = self._mask(self.env.reset(seed, self._rows))
        self.returns = np.zeros(self.num_agents)
        self._lengths = np.zeros(self.num_agents, np.int64)  # env frames

    def play(self, is_over: Callable[[], bool]) -> Iterator[list[EpisodeResult]]:
        """Steps the env until `is_over`; yields the episodes that ended in each step."""
        while not is_over():
            try:
                finished = self.step()
            except Exception:
                if not is_over():
                    raise
                return  # the signal to stop reached the simulator first
            yield finished

    def step(self) -> list[EpisodeResult]:
        """Steps the env once; returns the episodes that ended in this step."""
        for group in self._groups:
            group.act(self._rows, self.actions, self.active)
        self.actions[~self.active] = 0.0
        result = self.env.step(self.actions, self._rows)
        # An episode begins with the agent's first own step: a dead agent, or one yet to join, is in none.
        begun = self.active | (self._lengths > 0)
        self.returns += np.where(begun, result.rewards, 0.0)
        self._lengths += self.frameskip * self.active
        self.env_frames += self.frameskip
        ended = (np.asarray(result.terminated) | np.asarray(result.truncated)) & begun
        finished = []
        for agent in np.flatnonzero(ended).tolist():
            info = result.end_infos.get(agent, EMPTY_INFO)
            if not info.get(EPISODE_CONTINUES):
                finished.append(self._finish(agent, info))
        for group in self._groups:
            # After each inactive step: the network has run on the rows of inactive agents too.
            group.reset_state(ended | ~self.active)
        self.active = self._mask(result.active)
        return finished

    def _mask(self, active: np.ndarray | None) -> np.ndarray:
        """Returns `StepResult.active` as an array also where all agents are active."""
        return np.ones(self.num_agents, bool) if active is None else active

    def _finish(self, agent: int, info: Mapping[str, Any]) -> EpisodeResult:
        reward = float(self.returns[agent])
        length = int(self._lengths[agent])
        stats, _ = extra_stats(info)
        result = EpisodeResult(agent, reward, length, true_objective(info, reward), stats)
        self.returns[agent] = 0.0
        self._lengths[agent] = 0
        return result


class _Group:
    """The agents that follow one policy, all of the same kind, with their recurrent states."""

    def __init__(self, policy: Player, agents: np.ndarray):
        """agents: their indices."""
        self._policy = policy
        self._agents = agents
        self._rnn_state: Any = policy.first_rnn_state(len(agents))

    def act(self, rows: ObservationRows, actions: np.ndarray, active: np.ndarray) -> None:
        """Writes the actions of the group's agents into `actions`, [num_agents, K]."""
        if isinstance(self._policy, ScriptedPolicy):
            for agent in self._agents[active[self._agents]].tolist():
                row = self._policy.act(agent)
                actions[agent, : len(row)] = row
            return
        arrays = rows.arrays_of(self._agents[0])
        observations = {key: array[self._agents, 0] for key, array in arrays.items()}
        chosen, self._rnn_state = self._policy.act(observations, self._rnn_state)
        actions[self._agents, : chosen.shape[1]] = chosen

    def reset_state(self, where: np.ndarray) -> None:
        """Zeroes the recurrent states of the agents in `where`, bool [num_agents]."""
        self._rnn_state[where[self._agents]] = 0.0
