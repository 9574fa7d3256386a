"""Wrappers that change the relation of env steps and frames."""

from typing import Any, SupportsFloat

import gymnasium as gym


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
