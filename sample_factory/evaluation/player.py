"""Plays an env with a trained policy, step by step, as the rollout workers do in training."""

from typing import Any, Mapping, NamedTuple

import numpy as np

from sample_factory.envs.protocol import EMPTY_INFO, MultiAgentEnv, ObservationRows
from sample_factory.evaluation.policy import TrainedPolicy


class EpisodeResult(NamedTuple):
    """One agent's episode: sum of raw rewards, env frames, and what it is judged by (or the reward)."""

    agent: int
    reward: float
    length: int
    true_objective: float


class Player:
    """One env, all of whose agents follow one policy. Promises:

    1. Observations, rewards, frameskip and time limits are those of training: the env is stepped alike.
    2. An agent's recurrent state is zero at the start of each of its episodes, and when it becomes inactive.
    3. The action of an inactive agent is zero, and an action never outlives its episode.
    """

    def __init__(self, env: MultiAgentEnv, policy: TrainedPolicy, frameskip: int):
        self._env, self._policy, self._frameskip = env, policy, frameskip
        self._rows = ObservationRows.allocate(env.observation_space, env.num_agents)
        # Views of the rows, which the env overwrites.
        self._observations = {key: array[:, 0] for key, array in self._rows.arrays.items()}
        self.env_frames = 0

    def start(self, seed: int | None) -> None:
        """Begins the first episodes."""
        num_agents = self._env.num_agents
        self._env.reset(seed, self._rows)
        self._state = self._policy.first_state(num_agents)
        self._active = np.ones(num_agents, bool)
        self._returns = np.zeros(num_agents)
        self._lengths = np.zeros(num_agents, np.int64)
        self.env_frames = 0

    def step(self) -> list[EpisodeResult]:
        """One env step; the episodes that it has ended."""
        actions, self._state = self._policy.act(self._observations, self._state)
        actions[~self._active] = 0.0
        result = self._env.step(actions, self._rows)
        infos = result.infos if len(result.infos) else (EMPTY_INFO,) * self._env.num_agents
        self._returns += result.rewards
        self._lengths += self._frameskip
        self.env_frames += self._frameskip
        ended = np.asarray(result.terminated) | np.asarray(result.truncated)
        finished = [self._finish(int(agent), infos[agent]) for agent in np.flatnonzero(ended)]
        active = np.array([info.get("is_active", True) for info in infos], bool)
        self._state[ended | (self._active & ~active)] = 0.0
        self._active = active
        return finished

    def _finish(self, agent: int, info: Mapping[str, Any]) -> EpisodeResult:
        reward = float(self._returns[agent])
        objective = info.get("true_objective", info.get("true_reward", reward))
        result = EpisodeResult(agent, reward, int(self._lengths[agent]), float(objective))
        self._returns[agent], self._lengths[agent] = 0.0, 0
        return result
