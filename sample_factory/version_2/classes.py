"""Classes of version 2 that scripts derive from or use, and functions that its encoders call."""

import collections
import contextlib
import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.envs.protocol import AttrDict
from sample_factory.models.action_distributions import GaussianActions
from sample_factory.models.encoders import ACTIVATIONS
from sample_factory.models.normalizers import RunningNormalizer


class Encoder(nn.Module):
    """Base class of version 2's encoders: a subclass implements `forward` and `get_out_size`."""

    def __init__(self, cfg: Any):
        super().__init__()
        self.cfg = cfg

    def get_out_size(self) -> int:
        """Returns the width of the output, D for an output [B, D]."""
        raise NotImplementedError

    @property
    def out_size(self) -> int:
        """Width of the output: `get_out_size()`, as an attribute that this version reads."""
        return self.get_out_size()


def nonlinearity(cfg: Any, inplace: bool = False) -> nn.Module:
    """Returns the activation function of --nonlinearity."""
    return ACTIVATIONS[cfg.nonlinearity]()


def fc_layer(in_features: int, out_features: int, bias: bool = True, spec_norm: bool = False) -> nn.Module:
    """Makes a fully connected layer. spec_norm: whether to apply spectral normalisation."""
    layer = nn.Linear(in_features, out_features, bias)
    return nn.utils.spectral_norm(layer) if spec_norm else layer


def create_mlp(layer_sizes: Sequence[int], input_size: int, activation: nn.Module) -> nn.Module:
    """Makes fully connected layers of these sizes, each followed by `activation`; nn.Identity if there are
    none."""
    pairs = itertools.pairwise([input_size, *layer_sizes])
    layers = [layer for pair in pairs for layer in (nn.Linear(*pair), activation)]
    return nn.Sequential(*layers) if layers else nn.Identity()


def calc_num_elements(module: nn.Module, shape: Sequence[int]) -> int:
    """Returns the number of outputs of a module for one input. `shape`: shape of the input without batch
    axis."""
    with torch.no_grad():
        return int(module(torch.zeros(1, *shape)).numel())


def make_dones(terminated: Any, truncated: Any) -> Any:
    """Returns `terminated or truncated` of each agent: a bool, array, tensor or list, like both arguments."""
    if isinstance(terminated, Sequence):
        return [a | b for a, b in zip(terminated, truncated)]
    return terminated | truncated


def unsqueeze_tensor(t: Any, dim: int) -> Any:
    """Returns a tensor or an array with a dimension of size 1 inserted at `dim`."""
    return t.unsqueeze(dim) if isinstance(t, Tensor) else np.expand_dims(t, dim)


class TensorDict(dict[str, Any]):
    """Maps keys to tensors, arrays or nested dicts. An index such as [:, 0] is applied to all of them."""

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
    """Normalises tensors [B, *shape] float32 in place; in training mode, first updates the statistics by
    them."""

    def forward(self, x: Tensor, denormalize: bool = False) -> None:
        if self.training and not denormalize:
            self.update(x)
        x.copy_(self.denormalize(x) if denormalize else self.normalize(x))


class ContinuousActionDistribution(GaussianActions):
    """Independent normal distributions of D actions. params: [B, 2 D], the means, then the logarithms of the
    standard deviations."""

    def __init__(self, params: Tensor):
        super().__init__(*params.chunk(2, dim=-1))

    @property
    def stddevs(self) -> Tensor:
        return self.log_stds.exp()

    kl_divergence = GaussianActions.kl


class Timing(AttrDict):
    """Measures how long blocks of code take, `with timing.timeit(key): ...`, and stores the seconds by key:
    `timeit` the last measurement, `add_time` the sum of all, `time_avg` the mean of the last `average`."""

    def __init__(self, name: str = "Profile"):
        super().__init__()
        vars(self).update(name=name, recent={})  # not among the entries

    @contextlib.contextmanager
    def timeit(self, key: str, start: float = 0.0) -> Iterator[None]:
        self.setdefault(key, 0.0)
        begin = time.perf_counter()
        yield
        self[key] = start + time.perf_counter() - begin

    def add_time(self, key: str) -> contextlib.AbstractContextManager[None]:
        return self.timeit(key, self.get(key, 0.0))

    @contextlib.contextmanager
    def time_avg(self, key: str, average: int = 10) -> Iterator[None]:
        recent = vars(self)["recent"].setdefault(key, collections.deque(maxlen=average))
        with self.timeit(key):
            yield
        recent.append(self[key])
        self[key] = statistics.fmean(recent)

    def __str__(self) -> str:
        return f"{vars(self)['name']}: " + ", ".join(f"{key}: {value:.4f}" for key, value in self.items())
