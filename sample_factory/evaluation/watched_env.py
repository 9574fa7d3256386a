"""Follows an env that is played in this process, for its pictures and the text on them."""

from typing import Any

import numpy as np

from sample_factory.envs.protocol import (
    EMPTY_INFO,
    EPISODE_CONTINUES,
    FRAMES_LEFT_OUT,
    EnvAround,
    EnvConfig,
    MultiAgentEnv,
    ObservationRows,
    StepResult,
)
from sample_factory.spaces.actions import action_layout


class Watch:
    """Records the last step of an env that `enjoy` shows, for texts in its pictures and the count of frames.
    The session calls this object to wrap the env.

    env: the env as it is stepped. num_steps: number of steps so far.
    frames_left_out: number of env frames not played because an episode ended before its last action had been
        repeated `frameskip` times, summed over episodes, [num_agents] int64.
    actions: the last actions, [num_agents, K] float32, K values for each action.
    returns: sum of the rewards of each agent's current episode, [num_agents]; of the whole episode if it
        ended in the last step.
    """

    def __init__(self, env: MultiAgentEnv):
        """Allocates the records for the agents of `env`, which is not wrapped yet."""
        self.env = env
        row_size = max(action_layout(spaces.action).num_action_values for spaces in env.kinds.spaces)
        self.num_steps = 0
        self.frames_left_out = np.zeros(env.num_agents, np.int64)
        self.actions = np.zeros((env.num_agents, row_size), np.float32)
        self.restart(None)

    def __call__(self, env: MultiAgentEnv, env_config: EnvConfig) -> MultiAgentEnv:
        """Wraps `env`; returns the env that the session steps instead."""
        self.env = _WatchedEnv(env, self)
        return self.env

    def restart(self, active: np.ndarray | None) -> None:
        """Starts the agents' episodes: their rewards and lengths are summed from 0. To be called whenever the
        env was reset. active: which agents act in the first step, bool [num_agents]; None: all."""
        self.returns = np.zeros(self.env.num_agents)
        self._lengths = np.zeros(self.env.num_agents, np.int64)
        self._ended = np.zeros(self.env.num_agents, bool)  # in the last step
        self._active = active

    def add(self, actions: np.ndarray, result: StepResult) -> None:
        """Records a step of the env. An agent's rewards between the end of an episode and its next action do
        not count."""
        self.num_steps += 1
        self.actions = actions
        self.returns[self._ended] = 0.0
        self._lengths[self._ended] = 0
        self._lengths += True if self._active is None else self._active
        begun = self._lengths > 0
        self.returns += np.where(begun, result.rewards, 0.0)
        ended: np.ndarray = np.logical_or(result.terminated, result.truncated) & begun
        self._ended = ended
        for agent in np.flatnonzero(ended).tolist():
            info = result.end_infos.get(agent, EMPTY_INFO)
            self._ended[agent] = not info.get(EPISODE_CONTINUES)
            self.frames_left_out[agent] += info.get(FRAMES_LEFT_OUT, 0)
        self._active = result.active


class _WatchedEnv(EnvAround):
    def __init__(self, env: MultiAgentEnv, watch: Watch):
        super().__init__(env)
        self._watch = watch

    def reset(self, seed: int | None, into: ObservationRows) -> Any:
        active = self._env.reset(seed, into)
        self._watch.restart(active)
        return active

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        result = self._env.step(actions, into)
        self._watch.add(actions, result)
        return result
