"""Trains with your own encoder of observations with several parts.

    python examples/custom_encoder.py train --experiment=named_colour --conv_channels=16
    python examples/custom_encoder.py enjoy --experiment=named_colour

By default, every part of a dict observation has its own encoder, and their outputs are concatenated. That
reaches 9 of the 16 points of an episode here after 60,000 frames. In the encoder below, one part of the
observation selects a plane of the other part. It reaches all points, in about 10 seconds.
"""

import sys
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from sample_factory import register_encoder, register_env
from sample_factory.config.flags import flag
from sample_factory.enjoy import main as enjoy
from sample_factory.train import main as train


class NamedColour(gym.Env):
    """A red, a green and a blue square in different quadrants; the named one is to be chosen, for a point."""

    observation_space = gym.spaces.Dict(
        picture=gym.spaces.Box(0, 255, (3, 8, 8), np.uint8), colour=gym.spaces.Discrete(3)
    )
    action_space = gym.spaces.Discrete(4)  # a quadrant

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self._step = 0
        return self._draw(), {}

    def step(self, action: int):
        self._step += 1
        reward = float(action == self._quadrants[self._colour])
        return self._draw(), reward, False, self._step == 16, {}

    def _draw(self) -> dict:
        self._quadrants = self.np_random.permutation(4)[:3]
        self._colour = int(self.np_random.integers(3))
        picture = np.zeros((3, 8, 8), np.uint8)
        for colour, quadrant in enumerate(self._quadrants):
            row, column = 4 * np.array(divmod(quadrant, 2)) + self.np_random.integers(3, size=2)
            picture[colour, row : row + 2, column : column + 2] = 255
        return {"picture": picture, "colour": self._colour}


@dataclass(frozen=True)
class ColourFlags:
    conv_channels: int = flag(16, "number of channels after the convolution")


class ColourAttention(nn.Module):
    """Encodes one plane, a mixture of the picture's three with weights given by the named colour."""

    def __init__(self, flags, observation_space):
        super().__init__()
        # Discrete parts arrive as indices, int64 [B, 1]; `sizes` has the numbers of choices. All other parts
        # are float32 and normalised (see --normalize_input).
        (num_colours,) = observation_space["colour"].sizes
        num_planes, height, width = observation_space["picture"].shape
        self.mixture = nn.Embedding(num_colours, num_planes)
        nn.init.constant_(self.mixture.weight, 1 / num_planes)  # at first, every plane counts the same
        self.layers = nn.Sequential(
            nn.Conv2d(1, flags.conv_channels, kernel_size=2, stride=2),
            nn.ELU(),
            nn.Flatten(),
            nn.Linear(flags.conv_channels * (height // 2) * (width // 2), flags.hidden_size),
            nn.ELU(),
        )
        self.out_size = flags.hidden_size  # required: width of the encoder's output

    def forward(self, observations) -> torch.Tensor:
        """Returns [B, out_size] for picture [B, 3, 8, 8] and colour [B, 1]."""
        weights = self.mixture(observations["colour"].squeeze(1))
        plane = torch.einsum("bc,bchw->bhw", weights, observations["picture"])
        return self.layers(plane.unsqueeze(1))


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `enjoy`, then flags. Returns the exit code."""
    network = {"encoder_custom": "colour_attention", "hidden_size": 64, "use_rnn": False, "obs_scale": 255.0}
    # The next picture does not depend on the action, hence gamma. Many small steps: the run is short.
    learning = {"gamma": 0.0, "learning_rate": 2e-3, "batch_size": 128, "train_for_env_steps": 60_000}
    defaults = {**network, **learning, "num_envs_per_worker": 16}
    register_encoder("colour_attention", ColourAttention)
    register_env(
        "my_named_colour",
        lambda full_env_name: NamedColour(),
        ColourFlags,
        defaults,
        follows_observation=False,
    )
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        return 2
    return commands[argv[0]](["--env=my_named_colour", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
