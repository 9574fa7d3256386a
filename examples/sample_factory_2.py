"""Trains a script that was written for Sample Factory 2: its env, its arguments and its encoder, unchanged.

    python examples/sample_factory_2.py --env=my_lit_corner --experiment=lit_corner

All imports are from version 2; what is not here fails with one line that says what to write instead.
"""

import sys

import gymnasium as gym
import numpy as np
from sample_factory.algo.utils.context import global_model_factory
from sample_factory.algo.utils.torch_utils import calc_num_elements
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.model.encoder import Encoder
from sample_factory.model.model_utils import nonlinearity
from sample_factory.utils.typing import Config, ObsSpace
from torch import nn

from sample_factory.train import run_rl


class LitCorner(gym.Env):
    """One corner of a noisy picture is bright; choosing it gives a point. Action: 0 to 3, a corner."""

    def __init__(self, cfg: Config, render_mode: str | None = None):
        self.cfg = cfg
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(0, 1, (1, 8, 8))
        self.action_space = gym.spaces.Discrete(4)

    def reset(self, **kwargs):
        super().reset(seed=kwargs.get("seed"))
        self.curr_episode_steps = 0
        return self._obs(), {}

    def step(self, action):
        reward = float(action == self.corner)
        self.curr_episode_steps += 1
        truncated = self.curr_episode_steps >= self.cfg["custom_env_episode_len"]
        return self._obs(), reward, False, truncated, {}

    def _obs(self):
        self.corner = int(self.np_random.integers(4))
        picture = self.np_random.random((1, 8, 8), np.float32) * 0.5
        row, column = 4 * np.array(divmod(self.corner, 2))
        picture[0, row : row + 4, column : column + 4] += 0.5
        return picture


def make_custom_env_func(full_env_name, cfg=None, _env_config=None, render_mode=None):
    return LitCorner(cfg, render_mode)


class CustomEncoder(Encoder):
    """Two convolutions."""

    def __init__(self, cfg: Config, obs_space: ObsSpace):
        super().__init__(cfg)
        self.conv = nn.Sequential(
            nn.Conv2d(1, 8, 2, stride=2), nonlinearity(cfg), nn.Conv2d(8, 16, 2, stride=2), nonlinearity(cfg)
        )
        self.out = nn.Linear(calc_num_elements(self.conv, obs_space["obs"].shape), cfg.rnn_size)

    def forward(self, obs_dict):
        return self.out(self.conv(obs_dict["obs"]).flatten(1))

    def get_out_size(self) -> int:
        return self.cfg.rnn_size


def parse_custom_args(argv=None, evaluation=False):
    """Returns the cfg; the parser takes the script's own arguments and defaults between two calls."""
    parser, _ = parse_sf_args(argv, evaluation=evaluation)
    parser.add_argument("--custom_env_episode_len", default=10, type=int, help="steps in an episode")
    parser.set_defaults(rnn_size=32, use_rnn=False, gamma=0.0, learning_rate=0.002, num_epochs=1,
                        num_envs_per_worker=16, batch_size=512, train_for_env_steps=15000)  # fmt: skip
    return parse_full_cfg(parser, argv)


def main():
    """Returns the exit code."""
    register_env("my_lit_corner", make_custom_env_func)
    global_model_factory().register_encoder_factory(lambda cfg, obs_space: CustomEncoder(cfg, obs_space))
    return run_rl(parse_custom_args())


if __name__ == "__main__":
    sys.exit(main())
