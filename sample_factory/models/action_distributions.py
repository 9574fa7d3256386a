"""Probability distributions over the actions of a gymnasium space. Its components are independent given the
observation; spaces/actions.py says how actions and logits are laid out.
"""

import functools
import math

import gymnasium as gym
import torch
from torch import Tensor

from sample_factory.spaces.actions import ActionLayout, action_layout

MIN_LOG_STD, MAX_LOG_STD = math.log(1e-4), math.log(1e4)
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

# Both have probability exactly 0 and, being finite, make no NaN. Padding lies lower, so that a row whose mask
# forbids everything is uniform over real actions rather than over padding.
FORBIDDEN_LOGIT = -1e8
PADDING_LOGIT = -1e10


def action_distribution(space: gym.Space, logits: Tensor, action_mask: Tensor | None = None):
    """The distribution over `space` that logits [..., num_logits] float32 stand for.

    action_mask: [..., number of discrete logits], nonzero where the choice is allowed; boxes have no mask.
    """
    layout = action_layout(space)
    return distribution_of(layout, mask_logits(layout, logits, action_mask))


def distribution_of(layout: ActionLayout, logits: Tensor):
    """As `action_distribution`, for callers that keep the layout. Masked logits are masked already."""
    if not layout.box_actions:
        return CategoricalActions(layout.discrete_sizes, logits)
    if not layout.discrete_actions:
        return GaussianActions(*logits.chunk(2, dim=-1)) if _is_one_box(layout) else _gaussian(layout, logits)
    return MixedActions(layout, logits)


def mask_logits(layout: ActionLayout, logits: Tensor, action_mask: Tensor | None) -> Tensor:
    """Logits [..., L] that give what is forbidden probability exactly 0; if all is, a row is uniform."""
    if action_mask is None:
        return logits
    allowed = action_mask.bool()
    if layout.box_actions:
        everything = torch.ones(logits.shape, dtype=torch.bool, device=logits.device)
        allowed = everything.index_copy(-1, columns(layout.discrete_logits, logits.device), allowed)
    return torch.where(allowed, logits, FORBIDDEN_LOGIT)


@functools.cache  # for good: CUDA graphs read them
def columns(indices: tuple[int, ...], device: torch.device) -> Tensor:
    """Indices as an int64 tensor that lives on the device once."""
    with torch.inference_mode(False):  # autograd could not save a tensor first made in inference mode
        return torch.tensor(indices, dtype=torch.int64, device=device)


def _is_one_box(layout: ActionLayout) -> bool:
    return layout.log_stds[0] == len(layout.means)


def _gaussian(layout: ActionLayout, logits: Tensor) -> "GaussianActions":
    means = logits.index_select(-1, columns(layout.means, logits.device))
    log_stds = logits.index_select(-1, columns(layout.log_stds, logits.device))
    return GaussianActions(means, log_stds)


@functools.lru_cache(maxsize=256)
def _padding(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Column of each entry of a [K, max size] table in a row of logits with a column of padding last."""
    padding_column, width = sum(sizes), max(sizes)
    table, first = [], 0
    for size in sizes:
        table += [*range(first, first + size), *[padding_column] * (width - size)]
        first += size
    return tuple(table)


class CategoricalActions:
    """K independent categorical variables, computed as one table [..., K, max size], whatever K is.

    sizes: choices of each; logits: [..., sum(sizes)] float32, unnormalised.
    """

    def __init__(self, sizes: tuple[int, ...], logits: Tensor):
        self.sizes = sizes
        if len(set(sizes)) > 1:
            padded = torch.nn.functional.pad(logits, (0, 1), value=PADDING_LOGIT)
            logits = padded.index_select(-1, columns(_padding(sizes), logits.device))
        table = logits.unflatten(-1, (len(sizes), max(sizes)))
        self.log_probs = torch.log_softmax(table, dim=-1)

    def sample(self) -> Tensor:
        """Actions [..., K] float32."""
        # argmax(log p + Gumbel noise), and -log of an exponential variable is Gumbel noise.
        noise = torch.empty_like(self.log_probs).exponential_().clamp_(min=1e-30).log_()
        return torch.sub(self.log_probs, noise).argmax(dim=-1).float()

    def mode(self) -> Tensor:
        """The most likely action, [..., K] float32."""
        return self.log_probs.argmax(dim=-1).float()

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability [...] of actions [..., K]."""
        return self.log_probs.gather(-1, actions.long().unsqueeze(-1)).flatten(-2).sum(dim=-1)

    def entropy(self) -> Tensor:
        """[...], in nats."""
        return -(self.log_probs.exp() * self.log_probs).sum(dim=(-2, -1))

    def kl(self, other: "CategoricalActions") -> Tensor:
        """KL(self || other), [...]."""
        return (self.log_probs.exp() * (self.log_probs - other.log_probs)).sum(dim=(-2, -1))

    def symmetric_kl_with_uniform(self) -> Tensor:
        """Sum over components of (KL(pi || u) + KL(u || pi)) / 2, [...]; u: uniform over what is allowed."""
        allowed = self.log_probs > FORBIDDEN_LOGIT / 2
        mean_log_probs = torch.where(allowed, self.log_probs, 0.0).sum(dim=-1) / allowed.sum(dim=-1)
        return 0.5 * (-self.entropy() - mean_log_probs.sum(dim=-1))


class GaussianActions:
    """D independent normal variables. means, log_stds: [..., D] float32; deviations stay in [1e-4, 1e4]."""

    def __init__(self, means: Tensor, log_stds: Tensor):
        self.means = means
        self.log_stds = log_stds.clamp(MIN_LOG_STD, MAX_LOG_STD)

    def sample(self) -> Tensor:
        """Actions [..., D] float32; not clipped to the bounds of the space, which is up to the env."""
        return self.means + self.log_stds.exp() * torch.randn_like(self.means)

    def mode(self) -> Tensor:
        """The means, [..., D]."""
        return self.means

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-density [...] of actions [..., D]."""
        scaled = (actions - self.means) * (-self.log_stds).exp()
        return -(0.5 * scaled.square() + self.log_stds + HALF_LOG_2PI).sum(dim=-1)

    def entropy(self) -> Tensor:
        """Differential entropy [...], in nats."""
        return (self.log_stds + (0.5 + HALF_LOG_2PI)).sum(dim=-1)

    def kl(self, other: "GaussianActions") -> Tensor:
        """KL(self || other), [...]."""
        log_std_ratio = self.log_stds - other.log_stds
        shift = (self.means - other.means) * (-other.log_stds).exp()
        return (0.5 * ((2 * log_std_ratio).exp() + shift.square() - 1) - log_std_ratio).sum(dim=-1)

    def symmetric_kl_with_uniform(self) -> Tensor:
        """Raises ValueError: there is no uniform distribution over the real line."""
        raise ValueError("--exploration_loss=symmetric_kl needs discrete actions; use entropy with a Box")


class MixedActions:
    """Discrete and Box components side by side; every quantity is the sum of the two halves."""

    def __init__(self, layout: ActionLayout, logits: Tensor):
        self.layout = layout
        discrete = logits.index_select(-1, columns(layout.discrete_logits, logits.device))
        self.discrete = CategoricalActions(layout.discrete_sizes, discrete)
        self.box = _gaussian(layout, logits)

    def _join(self, discrete: Tensor, box: Tensor) -> Tensor:
        joined = torch.cat((discrete, box), dim=-1)
        places = columns(self.layout.discrete_actions + self.layout.box_actions, joined.device)
        return torch.empty_like(joined).index_copy_(-1, places, joined)

    def sample(self) -> Tensor:
        """Actions [..., K] float32, in the order of the space."""
        return self._join(self.discrete.sample(), self.box.sample())

    def mode(self) -> Tensor:
        """The most likely choices and the means, [..., K] float32."""
        return self._join(self.discrete.mode(), self.box.mode())

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability times density, [...], of actions [..., K]."""
        discrete = actions.index_select(-1, columns(self.layout.discrete_actions, actions.device))
        box = actions.index_select(-1, columns(self.layout.box_actions, actions.device))
        return self.discrete.log_prob(discrete) + self.box.log_prob(box)

    def entropy(self) -> Tensor:
        """[...], in nats."""
        return self.discrete.entropy() + self.box.entropy()

    def kl(self, other: "MixedActions") -> Tensor:
        """KL(self || other), [...]."""
        return self.discrete.kl(other.discrete) + self.box.kl(other.box)

    def symmetric_kl_with_uniform(self) -> Tensor:
        """Raises ValueError, as for any space with a Box."""
        return self.box.symmetric_kl_with_uniform()
