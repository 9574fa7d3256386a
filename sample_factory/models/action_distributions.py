"""Probability distributions over the actions of a Gymnasium space.

The components of the space are independent given the observation. spaces/actions.py defines the layout of
actions and logits. K: number of values in an action; L: number of logits.
"""

import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sample_factory.spaces.actions import ActionLayout

MIN_LOG_STD = math.log(1e-4)
MAX_LOG_STD = math.log(1e4)
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

# Both give probability exactly 0 and, being finite, no NaN. Padding is lower, so that a row in which the mask
# forbids everything is uniform over real actions, without the padding.
FORBIDDEN_LOGIT = -1e8
PADDING_LOGIT = -1e10


def action_distribution(layout: ActionLayout, logits: Tensor) -> "ActionDistribution":
    """Returns the distribution over actions with the given logits, [..., L] float32; if there is an action
    mask, the logits must have been masked by `mask_logits`."""
    if not layout.box_actions:
        return CategoricalActions(layout.discrete_sizes, logits)
    if layout.discrete_actions:
        return MixedActions(layout, logits)
    return _gaussian(layout, logits)


def mask_logits(layout: ActionLayout, logits: Tensor, action_mask: Tensor) -> Tensor:
    """Masks logits [..., L] so that forbidden discrete choices have probability exactly 0. If all choices of
    a discrete component are forbidden, they become equally likely.

    action_mask: [..., number of discrete logits], nonzero where the choice is allowed. Boxes have no mask.
    """
    allowed = action_mask.bool()
    if layout.box_actions:
        all_allowed = torch.ones(logits.shape, dtype=torch.bool, device=logits.device)
        allowed = all_allowed.index_copy(-1, columns(layout.discrete_logits, logits.device), allowed)
    return torch.where(allowed, logits, FORBIDDEN_LOGIT)


@functools.cache  # never freed: CUDA graphs read these tensors
def columns(indices: tuple[int, ...], device: torch.device) -> Tensor:
    """Returns the indices as an int64 tensor on the device, made once and cached."""
    with torch.inference_mode(False):  # autograd cannot save a tensor created in inference mode
        return torch.tensor(indices, dtype=torch.int64, device=device)


@functools.cache  # as `columns`
def constants(numbers: tuple[float, ...], device: torch.device) -> Tensor:
    """Returns the numbers as a float32 tensor on the device, made once and cached."""
    with torch.inference_mode(False):
        return torch.tensor(numbers, dtype=torch.float32, device=device)


def box_values(layout: ActionLayout, actions: Tensor) -> Tensor:
    """Extracts the continuous components from actions [..., K], and converts them to the scale of the
    network's outputs (see --scale_actions). Returns [..., D]."""
    values = actions.index_select(-1, columns(layout.box_actions, actions.device))
    if not layout.is_scaled:
        return values
    shifted = values - constants(layout.centers, values.device)
    return shifted / constants(layout.half_ranges, values.device)


def _gaussian(layout: ActionLayout, logits: Tensor) -> "GaussianActions":
    if layout.log_stds[0] == len(layout.means) and not layout.discrete_sizes:  # one Box: means, then log-stds
        means, log_stds = logits.chunk(2, dim=-1)
    else:
        means = logits.index_select(-1, columns(layout.means, logits.device))
        log_stds = logits.index_select(-1, columns(layout.log_stds, logits.device))
    if not layout.is_scaled:
        return GaussianActions(means, log_stds)
    log_units = constants(tuple(map(math.log, layout.half_ranges)), logits.device)
    return GaussianActions(means, log_stds, log_units)


@functools.lru_cache(maxsize=256)
def _padding(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns indices, flat, that arrange a row of logits as a table [K, max(sizes)], where K = len(sizes).
    Index sum(sizes) stands for padding, which has to be appended to the row."""
    table = np.full((len(sizes), max(sizes)), sum(sizes))
    table[np.arange(max(sizes)) < np.array(sizes)[:, None]] = np.arange(sum(sizes))
    return tuple(table.flatten().tolist())


class CategoricalActions:
    """K independent categorical variables, computed together as one table [..., K, max(sizes)].

    sizes: number of choices of each variable. logits: [..., sum(sizes)] float32, unnormalised.
    """

    def __init__(self, sizes: tuple[int, ...], logits: Tensor):
        self.sizes = sizes
        if len(set(sizes)) > 1:
            padded = torch.nn.functional.pad(logits, (0, 1), value=PADDING_LOGIT)
            logits = padded.index_select(-1, columns(_padding(sizes), logits.device))
        table = torch.unflatten(logits, -1, (len(sizes), max(sizes)))
        self.log_probs = torch.log_softmax(table, dim=-1)

    def sample(self) -> Tensor:
        """Returns actions [..., K] float32, by the Gumbel-max trick (Maddison et al. 2014, section 3)."""
        # argmax(log p + g) with Gumbel noise g = -log e, where e is exponentially distributed.
        noise = torch.empty_like(self.log_probs).exponential_().clamp_(min=1e-30).log_()
        return torch.sub(self.log_probs, noise).argmax(dim=-1).float()

    def mode(self) -> Tensor:
        """Returns the most likely choices, [..., K] float32."""
        return self.log_probs.argmax(dim=-1).float()

    def log_prob(self, actions: Tensor) -> Tensor:
        """Returns the log-probability [...] of actions [..., K]."""
        return self.log_probs.gather(-1, actions.long().unsqueeze(-1)).flatten(-2).sum(dim=-1)

    def entropy(self) -> Tensor:
        """Returns the entropy [...], in nats."""
        return -(self.log_probs.exp() * self.log_probs).sum(dim=(-2, -1))

    def kl(self, other: Any) -> Tensor:
        """Returns KL(self || other), [...] in nats; `other` has the same sizes."""
        log_ratios: Tensor = self.log_probs - other.log_probs
        return (self.log_probs.exp() * log_ratios).sum(dim=(-2, -1))

    def symmetric_kl_with_uniform(self) -> Tensor:
        """Returns the sum over components of (KL(pi || u) + KL(u || pi)) / 2, [...].

        u: uniform distribution over the allowed choices.
        """
        allowed = self.log_probs > FORBIDDEN_LOGIT / 2
        mean_log_probs = torch.where(allowed, self.log_probs, 0.0).sum(dim=-1) / allowed.sum(dim=-1)
        return 0.5 * (-self.entropy() - mean_log_probs.sum(dim=-1))


class GaussianActions:
    """D independent normal variables, one for each element of a Box.

    means, log_stds: [..., D] float32. Standard deviations are clipped to [1e-4, 1e4] times a unit.
    log_units: [D], logarithm of the unit of each variable; None for units of 1.
    """

    def __init__(self, means: Tensor, log_stds: Tensor, log_units: Tensor | None = None):
        self.means = means
        if log_units is None:
            self.log_stds = log_stds.clamp(MIN_LOG_STD, MAX_LOG_STD)
        else:
            self.log_stds = log_stds.clamp(log_units + MIN_LOG_STD, log_units + MAX_LOG_STD)

    def sample(self) -> Tensor:
        """Returns actions [..., D] float32, not yet clipped to the bounds of the Box as the env gets them."""
        return self.means + self.log_stds.exp() * torch.randn_like(self.means)

    def mode(self) -> Tensor:
        """Returns the means, [..., D]."""
        return self.means

    def log_prob(self, actions: Tensor) -> Tensor:
        """Returns the log-density [...] of actions [..., D]."""
        scaled = (actions - self.means) * (-self.log_stds).exp()
        return -(0.5 * scaled.square() + self.log_stds + HALF_LOG_2PI).sum(dim=-1)

    def entropy(self) -> Tensor:
        """Returns the differential entropy [...], in nats."""
        return (self.log_stds + (0.5 + HALF_LOG_2PI)).sum(dim=-1)

    def kl(self, other: Any) -> Tensor:
        """Returns KL(self || other), [...] in nats; `other` has the same number of variables."""
        log_std_ratio: Tensor = self.log_stds - other.log_stds
        shift: Tensor = (self.means - other.means) * (-other.log_stds).exp()
        return (0.5 * ((2 * log_std_ratio).exp() + shift.square() - 1) - log_std_ratio).sum(dim=-1)

    def symmetric_kl_with_uniform(self) -> Tensor:
        """Always raises ValueError, since there is no uniform distribution over the real numbers."""
        raise ValueError(
            "--exploration_loss=symmetric_kl needs discrete actions; use --exploration_loss=entropy for a Box"
        )


class MixedActions:
    """Distribution over actions with both discrete and continuous components, which are independent:
    log-probability, entropy and KL are sums over both parts.

    logits: [..., L] float32, in the order of `layout`.
    """

    def __init__(self, layout: ActionLayout, logits: Tensor):
        self.layout = layout
        discrete = logits.index_select(-1, columns(layout.discrete_logits, logits.device))
        self.discrete = CategoricalActions(layout.discrete_sizes, discrete)
        self.box = _gaussian(layout, logits)

    def _join(self, discrete: Tensor, box: Tensor) -> Tensor:
        """Joins values of discrete components [..., number of components] and of continuous components
        [..., D] to actions [..., K], in the order of the space."""
        joined = torch.cat((discrete, box), dim=-1)
        places = columns(self.layout.discrete_actions + self.layout.box_actions, joined.device)
        return torch.empty_like(joined).index_copy_(-1, places, joined)

    def sample(self) -> Tensor:
        """Returns actions [..., K] float32, in the order of the space."""
        return self._join(self.discrete.sample(), self.box.sample())

    def mode(self) -> Tensor:
        """Returns the most likely choices of discrete components and the means of continuous components,
        [..., K] float32."""
        return self._join(self.discrete.mode(), self.box.mode())

    def log_prob(self, actions: Tensor) -> Tensor:
        """Returns the logarithm of probability times density, [...], of actions [..., K]."""
        discrete = actions.index_select(-1, columns(self.layout.discrete_actions, actions.device))
        box = actions.index_select(-1, columns(self.layout.box_actions, actions.device))
        return self.discrete.log_prob(discrete) + self.box.log_prob(box)

    def entropy(self) -> Tensor:
        """Returns entropy plus differential entropy [...], in nats."""
        return self.discrete.entropy() + self.box.entropy()

    def kl(self, other: Any) -> Tensor:
        """Returns KL(self || other), [...] in nats; `other` has the same layout."""
        return self.discrete.kl(other.discrete) + self.box.kl(other.box)

    def symmetric_kl_with_uniform(self) -> Tensor:
        """Always raises ValueError, since there is no uniform distribution over continuous components."""
        return self.box.symmetric_kl_with_uniform()


# Distributions over actions [..., K] float32; log_prob, entropy and kl have the shape [...] of their batch.
# The other distribution of kl is of the same class.
ActionDistribution = CategoricalActions | GaussianActions | MixedActions
