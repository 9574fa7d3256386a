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


def random_steps(rng, num_steps=17, batch=5, gamma=0.9, end_chance=0.25, cut_chance=0.1) -> Steps:
    """Returns steps of which some terminate, are truncated, or cut (as by a masked step)."""
    shape = (num_steps, batch)
    states = rng.normal(size=(num_steps + 1, batch))
    kind = rng.random(shape)
    terminated = kind < end_chance / 2
    truncated = (kind > 1 - end_chance / 2) & ~terminated
    cut = rng.random(shape) < cut_chance
    next_values = np.where(truncated, states[:-1], states[1:])
    rewards = rng.normal(size=shape)
    continues = ~(terminated | truncated | cut)
    arrays = (states[:-1], next_values, rewards, gamma * ~terminated, continues)
    return Steps(*(torch.tensor(np.asarray(array, np.float32)) for array in arrays))
