"""Version 2's base class of encoders, and functions that they use."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from sample_factory.models.encoders import ACTIVATIONS


class Encoder(nn.Module):
    """An encoder that returns its width from a method."""

    def __init__(self, cfg: Any):
        super().__init__()
        self.cfg = cfg

    def get_out_size(self) -> int:
        """Returns the width of the output."""
        raise NotImplementedError

    @property
    def out_size(self) -> int:
        """Width of the output."""
        return self.get_out_size()


def nonlinearity(cfg: Any, inplace: bool = False) -> nn.Module:
    """Returns the activation function of --nonlinearity."""
    return ACTIVATIONS[cfg.nonlinearity]()


def create_mlp(layer_sizes: Sequence[int], input_size: int, activation: nn.Module) -> nn.Module:
    """Returns fully connected layers with an activation after each; nn.Identity without sizes."""
    pairs = itertools.pairwise([input_size, *layer_sizes])
    layers = [layer for pair in pairs for layer in (nn.Linear(*pair), activation)]
    return nn.Sequential(*layers) if layers else nn.Identity()


def calc_num_elements(module: nn.Module, shape: Sequence[int]) -> int:
    """Returns the number of outputs of a module for one input of a shape."""
    with torch.no_grad():
        return int(module(torch.zeros(1, *shape)).numel())
