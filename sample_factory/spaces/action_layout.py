"""How actions and logits are laid out in rows of numbers (without torch).

An action is one row of float32: one value per Discrete component (an index from 0, whatever the space's
`start`) and one per element of a Box, in the order of the space. Logits follow the same order: n per Discrete
component; means, then logarithms of standard deviations, per Box.
"""

import math
from dataclasses import dataclass

import gymnasium as gym

# The observation with a number for each discrete logit: 0 forbids it. For the action distribution only;
# neither normalised nor encoded.
ACTION_MASK = "action_mask"


@dataclass(frozen=True)
class ActionLayout:
    """Where each number of a row of logits and of actions belongs: column indices, and discrete sizes."""

    discrete_sizes: tuple[int, ...]
    discrete_logits: tuple[int, ...]
    means: tuple[int, ...]
    log_stds: tuple[int, ...]
    discrete_actions: tuple[int, ...]
    box_actions: tuple[int, ...]

    @property
    def num_logits(self) -> int:
        return len(self.discrete_logits) + len(self.means) + len(self.log_stds)

    @property
    def num_action_values(self) -> int:
        return len(self.discrete_actions) + len(self.box_actions)


def action_layout(space: gym.Space) -> ActionLayout:
    """The layout of a Discrete, MultiDiscrete, Box, or (nested) Tuple of those.

    Raises TypeError for any other space.
    """
    sizes, discrete_logits, means, log_stds, discrete_actions, box_actions = [], [], [], [], [], []
    logit = action = 0
    for is_box, size in _components(space):
        if is_box:
            means += range(logit, logit + size)
            log_stds += range(logit + size, logit + 2 * size)
            box_actions += range(action, action + size)
        else:
            sizes.append(size)
            discrete_logits += range(logit, logit + size)
            discrete_actions.append(action)
        logit += 2 * size if is_box else size
        action += size if is_box else 1
    columns = (sizes, discrete_logits, means, log_stds, discrete_actions, box_actions)
    return ActionLayout(*map(tuple, columns))


def _components(space: gym.Space) -> list[tuple[bool, int]]:
    """(is it a Box, number of choices or of dimensions) of each part of the space, in order."""
    if isinstance(space, gym.spaces.Discrete):
        return [(False, int(space.n))]
    if isinstance(space, gym.spaces.MultiDiscrete):
        return [(False, int(n)) for n in space.nvec.reshape(-1)]
    if isinstance(space, gym.spaces.Box):
        return [(True, math.prod(space.shape))]
    if isinstance(space, gym.spaces.Tuple):
        return [component for part in space.spaces for component in _components(part)]
    raise TypeError(
        f"cannot act in {space}: the action space has to be Discrete, MultiDiscrete, a Box with one "
        "dimension, or a Tuple of those"
    )
