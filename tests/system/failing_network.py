"""A script with an encoder that raises after it has computed some actions."""

import sys

import torch

from sample_factory import register_encoder
from sample_factory.train import main

MAX_CALLS = 200  # more than the trial makes


class Failing(torch.nn.Module):
    out_size = 4

    def __init__(self, flags, observation_space):
        super().__init__()
        self.layer = torch.nn.Linear(4, self.out_size)
        self.calls = 0

    def forward(self, observations):
        self.calls += 1
        if self.calls > MAX_CALLS and not torch.is_grad_enabled():
            raise ValueError("a broken layer")
        return self.layer(observations["obs"])


register_encoder("failing", Failing)

if __name__ == "__main__":
    sys.exit(main())
