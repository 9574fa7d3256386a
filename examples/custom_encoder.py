"""Trains with your own neural network on observations with several parts.

    python examples/custom_encoder.py train --experiment=named_colour
    python examples/custom_encoder.py enjoy --experiment=named_colour

By default, every part of a dict observation has its own encoder, and their outputs are concatenated. That
reaches 9 of the 16 points of an episode here after 60,000 frames. In the encoder below, one part of the
observation selects a plane of the other part. It reaches nearly all points, in about 10 seconds.
"""

import sys
from collections.abc import Mapping

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sample_factory import register_encoder, register_env
from sample_factory.config.sections import ModelFlags
from sample_factory.enjoy import main as enjoy
from sample_factory.train import main as train

ENV = "my_named_colour"
EPISODE_STEPS = 16
SIDE = 8  # pixels


class NamedColour(gym.Env):
    """A red, a green and a blue square in different quadrants; the named one is to be chosen, for a point.

    Observation: picture uint8 [3, 8, 8], and the colour, 0 to 2. Action: 0 to 3, a quadrant.
    """

    def __init__(self):
        self.observation_space = gym.spaces.Dict(
            {
                "picture": gym.spaces.Box(0, 255, (3, SIDE, SIDE), np.uint8),
                "colour": gym.spaces.Discrete(3),
            }
        )
        self.action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self._step = 0
        return self._draw(), {}

    def step(self, action: int):
        reward = float(action == self._quadrants[self._colour])
        self._step += 1
        return self._draw(), reward, False, self._step == EPISODE_STEPS, {}

    def _draw(self) -> dict:
        self._quadrants = self.np_random.permutation(4)[:3]
        self._colour = int(self.np_random.integers(3))
        picture = np.zeros((3, SIDE, SIDE), np.uint8)
        for colour, quadrant in enumerate(self._quadrants):
            corner = np.array(divmod(quadrant, 2)) * SIDE // 2
            row, column = corner + self.np_random.integers(SIDE // 2 - 1, size=2)
            picture[colour, row : row + 2, column : column + 2] = 255
        return {"picture": picture, "colour": self._colour}


class ColourAttention(nn.Module):
    """Encodes one plane, a mixture of the picture's three with weights given by the named colour."""

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict):
        super().__init__()
        # Discrete parts arrive as indices, int64 [B, 1]; `sizes` has the numbers of choices. All other parts
        # are float32 and normalised (see --normalize_input).
        (num_colours,) = observation_space["colour"].sizes
        num_channels, height, width = observation_space["picture"].shape
        self.mixture = nn.Embedding(num_colours, num_channels)
        nn.init.constant_(self.mixture.weight, 1 / num_channels)  # at first, every plane counts the same
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=2, stride=2),
            nn.ELU(),
            nn.Flatten(),
            nn.Linear(16 * (height // 2) * (width // 2), flags.hidden_size),
            nn.ELU(),
        )
        self.out_size = flags.hidden_size  # required: width of the encoder's output

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Returns [B, out_size] for picture [B, 3, 8, 8] and colour [B, 1]."""
        weights = self.mixture(observations["colour"].squeeze(1))
        plane = torch.einsum("bc,bchw->bhw", weights, observations["picture"])
        return self.layers(plane.unsqueeze(1))


def make_env(full_env_name: str) -> gym.Env:
    """In a rollout worker: makes one env."""
    return NamedColour()


DEFAULTS = {
    "encoder_custom": "colour_attention",
    "hidden_size": 64,
    "use_rnn": False,
    "gamma": 0.0,  # the next picture does not depend on the action
    "obs_scale": 255.0,
    "batch_size": 128,  # many small steps: the run is short
    "learning_rate": 2e-3,
    "num_envs_per_worker": 16,
    "train_for_env_steps": 60_000,
}


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `enjoy`, then flags. Returns the exit code."""
    register_encoder("colour_attention", ColourAttention)
    register_env("my_named_colour", make_env, defaults=DEFAULTS)
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        return 2
    return commands[argv[0]]([f"--env={ENV}", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
