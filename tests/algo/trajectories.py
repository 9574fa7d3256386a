"""Random trajectories with endings of both kinds, as the arguments of vtrace and gae."""

from typing import NamedTuple

import numpy as np
import torch


class Steps(NamedTuple):
    """All [T, B]; see vtrace."""

    values: torch.Tensor
    next_values: torch.Tensor
    rewards: torch.Tensor
    discounts: torch.Tensor
    continues: torch.Tensor


def random_steps(rng, num_steps=17, gamma=0.9) -> Steps:
    """Returns steps of which some terminate, are truncated, or cut (as by a masked step)."""
    shape = (num_steps, 5)
    states = rng.normal(size=(num_steps + 1, 5))
    kind = rng.random(shape)
    terminated = kind < 0.125
    truncated = kind > 0.875
    cut = rng.random(shape) < 0.1
    next_values = np.where(truncated, states[:-1], states[1:])
    rewards = rng.normal(size=shape)
    continues = ~(terminated | truncated | cut)
    arrays = (states[:-1], next_values, rewards, gamma * ~terminated, continues)
    return Steps(*(torch.tensor(np.asarray(array, np.float32)) for array in arrays))
