"""A script with an env, an encoder and an observer of its own, as other machines get them."""

import sys
import time

import gymnasium as gym
import numpy as np
from torch import nn

from sample_factory import Observer, register_encoder, register_env, register_observer
from sample_factory.train import main


class Counter(gym.Env):
    """Episodes of 8 steps; action 1 earns 1, and action 0 is forbidden in odd steps."""

    def __init__(self):
        self.observation_space = gym.spaces.Dict(
            {"obs": gym.spaces.Box(0, 8, (1,), np.float32), "action_mask": gym.spaces.MultiBinary(3)}
        )
        self.action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        self._step = 0
        return self._observe(), {}

    def step(self, action):
        time.sleep(0.005)  # a run that is only watched leaves the cores to others
        assert action != 0 or self._step % 2 == 0, "a forbidden action"
        self._step += 1
        return self._observe(), float(action == 1), self._step == 8, False, {"where": "own_parts"}

    def _observe(self):
        mask = np.array([self._step % 2 == 0, 1, 1], np.int8)
        return {"obs": np.array([self._step], np.float32), "action_mask": mask}


class Encoder(nn.Module):
    out_size = 8

    def __init__(self, flags, space):
        super().__init__()
        self._layer = nn.Linear(1, self.out_size)

    def forward(self, obs):
        return self._layer(obs["obs"])


class Watcher(Observer):
    """Prints the info of the first episode."""

    def __init__(self):
        self._has_printed = False

    def on_episode(self, run, report):
        if not self._has_printed:
            self._has_printed = True
            print(f"info of an episode: {report.info['where']}", flush=True)


register_env("counter", lambda full_env_name, cfg: Counter())
register_encoder("own", Encoder)
register_observer("watcher", Watcher)

if __name__ == "__main__":
    sys.exit(main())
