"""Trains on your own environment, with its own flags.

    python examples/custom_env.py train --experiment=lit_quadrant
    python examples/custom_env.py enjoy --experiment=lit_quadrant

The env is an ordinary Gymnasium env. `register_env` gives it a name, its flags, and defaults for the flags
that all envs share; `train --help` lists its own and the most common ones. With these defaults the task is
learned in about 10 seconds, and then training stops.
"""

import sys
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from sample_factory import register_env
from sample_factory.config.flags import flag
from sample_factory.enjoy import main as enjoy
from sample_factory.train import main as train

ENV = "my_lit_quadrant"
SIDE = 10  # pixels


@dataclass(frozen=True)
class LitQuadrantFlags:
    """Flags of the lit quadrant."""

    noise: int = flag(100, "brightness of the brightest noise", at_least=0, at_most=155)
    episode_steps: int = flag(10, "pictures in an episode", at_least=1)


class LitQuadrant(gym.Env):
    """A noisy picture, of which one quadrant is brighter. Choosing that quadrant gives a point.

    Observation: uint8 [1, 10, 10]. Action: 0 to 3, a quadrant.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 2}

    def __init__(self, noise: int, episode_steps: int, render_mode: str | None = None):
        self.observation_space = gym.spaces.Box(0, 255, (1, SIDE, SIDE), np.uint8)
        self.action_space = gym.spaces.Discrete(4)
        self.render_mode = render_mode
        self._noise = noise
        self._episode_steps = episode_steps

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)  # seeds self.np_random
        self._step = 0
        self._num_right = 0
        self._draw()
        return self._picture, {}

    def step(self, action: int):
        is_right = int(action) == self._lit
        self._num_right += is_right
        self._step += 1
        self._draw()
        # A time limit truncates an episode. A game that is won or lost would be terminated instead.
        truncated = self._step == self._episode_steps
        info = {}
        if truncated:
            # Averaged over episodes and written to TensorBoard as 0_aux/avg_accuracy.
            info["episode_extra_stats"] = {"accuracy": self._num_right / self._episode_steps}
        return self._picture, float(is_right), False, truncated, info

    def render(self) -> np.ndarray:
        return self._picture.repeat(32, 1).repeat(32, 2).repeat(3, 0).transpose(1, 2, 0)

    def _draw(self) -> None:
        self._lit = int(self.np_random.integers(4))
        self._picture = self.np_random.integers(0, self._noise, (1, SIDE, SIDE), np.uint8, endpoint=True)
        row, column = divmod(self._lit, 2)
        half = SIDE // 2
        self._picture[0, row * half : (row + 1) * half, column * half : (column + 1) * half] += 100


def make_env(full_env_name: str, cfg, render_mode: str | None = None) -> gym.Env:
    """In a rollout worker: makes one env. `cfg` has every flag as an attribute, the shared ones too."""
    return LitQuadrant(cfg.noise, cfg.episode_steps, render_mode)


DEFAULTS = {
    "encoder_type": "mlp",  # enough for a picture as small and simple as this
    "encoder_mlp_layers": (64,),
    "use_rnn": False,  # the picture is the whole state
    "gamma": 0.0,  # the next picture does not depend on the action
    "obs_scale": 255.0,
    "learning_rate": 1e-3,
    "num_envs_per_worker": 16,  # cheap envs: larger batches for inference
    "train_for_env_steps": 50_000,
}


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `enjoy`, then flags. Returns the exit code."""
    # Every env with a name that starts with "my_lit_" belongs to this family; make_env gets the full name.
    register_env("my_lit_", make_env, LitQuadrantFlags, DEFAULTS)
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        return 2
    return commands[argv[0]]([f"--env={ENV}", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
