"""Wrappers that change the relation of env steps and frames."""

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np

from sample_factory.envs.protocol import EnvAround, MultiAgentEnv, ObservationRows, StepResult


class FrameSkip(gym.Wrapper):
    """Repeats each action for `frameskip` frames and sums the rewards; stops early at an episode's end."""

    def __init__(self, env: gym.Env, frameskip: int):
        super().__init__(env)
        self._frameskip = frameskip

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self._frameskip):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


def repeat_actions(env: MultiAgentEnv, times: int) -> MultiAgentEnv:
    """Returns the env with `times` steps for each action; the env itself for 1."""
    return env if times == 1 else ActionRepeat(env, times)


class ActionRepeat(EnvAround):
    """A MultiAgentEnv that steps several times with the same actions, until an episode ends.

    The rewards of the steps are added up. The observations are those after the last step.
    """

    def __init__(self, env: MultiAgentEnv, times: int):
        super().__init__(env)
        self._times = times

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        """Acts with every agent, several times."""
        rewards = np.zeros(self.num_agents)
        for _ in range(self._times):
            result = self._env.step(actions, into)
            rewards += result.rewards
            if np.any(result.terminated) or np.any(result.truncated):
                break
        return result._replace(rewards=rewards)
