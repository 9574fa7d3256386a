"""Version 2's dict of tensors, its normaliser, and its distribution of continuous actions."""

from typing import Any

import torch
from torch import Tensor

from sample_factory.models.action_distributions import GaussianActions
from sample_factory.models.normalizers import RunningNormalizer


class TensorDict(dict[str, Any]):
    """Tensors or arrays by key, also nested. An index that is no text is one into each of them."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            return super().__getitem__(index)
        parts = {key: TensorDict(part) if isinstance(part, dict) else part for key, part in self.items()}
        return TensorDict({key: part[index] for key, part in parts.items()})

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, str):
            super().__setitem__(index, value)
            return
        for key, part in value.items():
            own = TensorDict(self[key]) if isinstance(part, dict) else self[key]
            own[index] = torch.as_tensor(part) if isinstance(own, Tensor) else part


class RunningMeanStdInPlace(RunningNormalizer):
    """Normalises tensors [B, *shape] float32 in place; in training mode, adds them to the statistics."""

    def forward(self, x: Tensor, denormalize: bool = False) -> None:
        if self.training and not denormalize:
            self.update(x)
        x.copy_(self.denormalize(x) if denormalize else self.normalize(x))


class ContinuousActionDistribution(GaussianActions):
    """Independent normal variables. params: their means, then the logarithms of their standard deviations,
    [B, 2 D]."""

    def __init__(self, params: Tensor):
        super().__init__(*params.chunk(2, dim=-1))

    @property
    def stddevs(self) -> Tensor:
        return self.log_stds.exp()

    kl_divergence = GaussianActions.kl
