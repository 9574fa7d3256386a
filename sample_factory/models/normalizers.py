"""Running normalisation of observations and returns by mean and standard deviation."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Self, cast

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.runtime.totals import Total, of_one_process
from sample_factory.spaces.actions import ACTION_MASK
from sample_factory.spaces.observations import Indices, is_image

# Large batches are handled in chunks of this size, so that intermediate results stay in the cache. Measured
# (2,112 images of 3x72x128 to bfloat16, one core): 27 ms; in chunks of a quarter, 37 ms; at once, 377 ms.
CHUNK_BYTES = 1 << 21

# Images of successive steps hardly differ, and statistics of all images would take a tenth of the learner's
# time.
IMAGE_STRIDE = 4

Order = Callable[[Tensor], Tensor]  # hashable; moves or drops elements within rows, [B, ...] to [B, ...]


class RunningNormalizer(nn.Module):
    """Normalises each element of a sample by the running mean and variance of all samples passed to `update`.

    The statistics start as `start_mean` and the square of `start_std`, with the weight of one sample. They
    change in `update` only. They are float64 buffers and part of the state_dict.

    shape: shape of one sample. eps: number added to the variance. clip: largest absolute value of the result.
    """

    mean: Tensor  # [*shape]
    variance: Tensor  # [*shape]
    count: Tensor  # [], number of samples

    def __init__(
        self,
        shape: tuple[int, ...],
        eps: float = 1e-5,
        clip: float = 5.0,
        start_mean: float = 0.0,
        start_std: float = 1.0,
    ):
        super().__init__()
        self.shape = tuple(shape)
        self.eps = eps
        self.clip = clip
        self.register_buffer("mean", torch.full(self.shape, start_mean, dtype=torch.float64))
        self.register_buffer("variance", torch.full(self.shape, start_std**2, dtype=torch.float64))
        self.register_buffer("count", torch.ones((), dtype=torch.float64))
        self._affine: dict[Order | None, tuple[Tensor, Tensor]] = {}  # see _mean_and_inverse

    def _scale(self) -> Tensor:
        return (self.variance + self.eps).sqrt()

    def normalize(self, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Returns (x - mean) / sqrt(variance + eps), clipped to +-clip.

        x: [..., *shape] of any dtype; the result has the same shape and the given dtype, and no gradient.
        """
        return self.normalize_rows(x.reshape(-1, *self.shape), dtype).view(x.shape)

    def normalize_rows(self, x: Tensor, dtype: torch.dtype, order: Order | None = None) -> Tensor:
        """Normalises rows as `normalize`. x: [B, *shape]. order: reorders x and the statistics first."""
        mean, inverse = self._mean_and_inverse(order)
        x = x.detach()
        if len(x) <= _chunk_size(x):
            rows = x if order is None else order(x)
            normalized = rows.float().sub_(mean) if rows.dtype != torch.float32 else rows - mean
            return normalized.mul_(inverse).clamp_(-self.clip, self.clip).to(dtype)
        # Each row gets the memory format that `order` gives a row, so that nothing is rearranged later.
        strides = (mean.numel(), *torch.empty_like(mean).stride())
        out = torch.empty_strided((len(x), *mean.shape), strides, dtype=dtype, device=x.device)
        for chunk, out_chunk in zip(_chunks(x), out.split(_chunk_size(x))):
            rows = chunk if order is None else order(chunk)
            # Arithmetic that mixes bytes and floats takes three times as long as converting first.
            floats = out_chunk.copy_(rows) if dtype == torch.float32 else rows.to(torch.float32, copy=True)
            floats.sub_(mean).mul_(inverse).clamp_(-self.clip, self.clip)
            if floats is not out_chunk:
                out_chunk.copy_(floats)
        return out

    def _mean_and_inverse(self, order: Order | None = None) -> tuple[Tensor, Tensor]:
        """Returns the mean and 1 / sqrt(variance + eps), both float32, in the order that `order` gives rows.

        On a CPU they are cached, since computing them takes a good part of a small batch's time; not on a
        GPU, where a CUDA graph would keep using the numbers of its capture.
        """
        if order in self._affine:
            return self._affine[order]
        mean, inverse = self.mean.float(), self._scale().reciprocal().float()
        affine = (mean, inverse) if order is None else (order(mean[None])[0], order(inverse[None])[0])
        if self.mean.is_cpu:
            self._affine[order] = affine
        return affine

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._affine = {}
        super()._load_from_state_dict(*args, **kwargs)

    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        self._affine = {}  # they would stay on the old device
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        return self

    def denormalize(self, x: Tensor) -> Tensor:
        """Returns the inverse of `normalize`, [..., *shape] float32; x is clipped to +-clip first."""
        return x.float().clamp(-self.clip, self.clip) * self._scale().float() + self.mean.float()

    @torch.no_grad()
    def update(self, x: Tensor, valid: Tensor | None = None, total: Total[Tensor] = of_one_process) -> None:
        """Adds the samples of x [..., *shape] to the statistics.

        valid: bool [...]; samples where it is False are excluded, and so are samples that are not finite.
        total: sums a tensor over all learners of the policy, each of which has a share of the samples.
        Two sets of samples are merged by the algorithm of Chan et al. 1979, "Updating formulae and a pairwise
        algorithm for computing sample variances".
        """
        rows = x.reshape(-1, *self.shape)
        if x.is_floating_point():
            # A single NaN or inf would make the statistics useless forever.
            finite = rows.isfinite().reshape(len(rows), -1).all(dim=1)
            valid = finite if valid is None else valid.reshape(-1) & finite
        # On a GPU the host must not wait for the count. On a CPU it is cheap to look for excluded rows.
        if valid is None or (x.device.type == "cpu" and valid.all()):
            count = self.count.new_full((), len(rows))
            excluded = None
        else:
            count = valid.sum()
            excluded = ~valid.reshape(-1)
        count = total(count)
        mean, variance = self._moments(rows, excluded, count.clamp(min=1), total)
        new_count = self.count + count
        delta = mean - self.mean
        between = delta.square() * (self.count * count / new_count)
        self.variance.copy_((self.variance * self.count + variance * count + between) / new_count)
        self.mean.add_(delta * (count / new_count))
        self.count.copy_(new_count)
        self._affine = {}

    def _moments(
        self, rows: Tensor, excluded: Tensor | None, count: Tensor, total: Total[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Returns the mean and the variance, float64, of the rows [N, *shape] of all learners. excluded: bool
        [N], True for rows that do not count; None if all count. count: number of rows that count. For
        accuracy, float32 sums are of a few rows at a time, and of differences from the running mean."""
        shift = self.mean.float()
        sums = torch.zeros_like(self.mean)
        squares = torch.zeros_like(self.mean)
        size = _chunk_size(rows)
        buffer = torch.empty(rows[:size].shape, device=rows.device)
        for start, chunk in zip(range(0, len(rows), size), torch.split(rows, size)):
            centred = buffer[: len(chunk)].copy_(chunk).sub_(shift)
            if excluded is not None:
                mask = excluded[start : start + size]
                centred.masked_fill_(mask.view(-1, *[1] * len(self.shape)), 0.0)
            sums += centred.sum(dim=0)
            squares += centred.square_().sum(dim=0)
        mean = total(sums) / count
        variance = total(squares) / count - mean.square()
        return mean + shift, variance.clamp_(min=0)


def _chunks(rows: Tensor) -> tuple[Tensor, ...]:
    return torch.split(rows, _chunk_size(rows))


def _chunk_size(rows: Tensor) -> int:
    """Returns how many of the rows [N, ...] take up to CHUNK_BYTES as float32; on a GPU, all of them."""
    if rows.device.type != "cpu":
        return max(1, len(rows))
    row_bytes = 4 * max(1, rows.shape[1:].numel())
    return max(1, CHUNK_BYTES // row_bytes)


class FixedNormalizer(nn.Module):
    """Normalises with constants: (x - subtract) / scale."""

    def __init__(self, shape: tuple[int, ...], subtract: float = 0.0, scale: float = 1.0):
        super().__init__()
        self.shape = shape
        self.subtract = subtract
        self.scale = scale

    def normalize(self, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Returns (x - subtract) / scale in `dtype`; x: any shape and dtype."""
        if (self.subtract, self.scale) == (0.0, 1.0):
            return x.to(dtype)
        floats = x.to(torch.float32, copy=True)
        if self.subtract:
            floats.sub_(self.subtract)
        return floats.mul_(1 / self.scale).to(dtype)

    def normalize_rows(self, x: Tensor, dtype: torch.dtype, order: Order | None = None) -> Tensor:
        """Normalises x [B, *shape]. The result is in the order that `order`, if any, gives x."""
        return self.normalize(x if order is None else order(x), dtype)

    def update(self, x: Tensor, valid: Tensor | None = None, total: Total[Tensor] = of_one_process) -> None:
        """Does nothing: there are no statistics."""


class IndexNormalizer(FixedNormalizer):
    """Leaves the indices of a Discrete observation as they are."""

    def normalize(self, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Returns x as int64, whatever `dtype` is."""
        return x.long()


Normalizer = RunningNormalizer | FixedNormalizer


class RawImages(NamedTuple):
    """Observations of images that are not normalised yet.

    rows: [B, *shape], as stored. normalizer: normaliser of this observation.
    """

    rows: Tensor
    normalizer: Normalizer

    def normalized(self, dtype: torch.dtype, order: Order | None = None) -> Tensor:
        """Returns the normalised images, in the order that `order`, if any, gives the rows."""
        return self.normalizer.normalize_rows(self.rows, dtype, order)


class ObservationNormalizers(nn.Module):
    """Normalises all observations but the action mask, with one normaliser for each key, in sorted order.
    Normalisers of --critic_only_keys are kept in a separate list, so that the names of all other weights are
    the same in a network without a critic.

    Running statistics are of the raw observations, not of (x - --obs_subtract_mean) / --obs_scale: both
    normalise to the same numbers if eps is scaled.
    """

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict):
        super().__init__()
        keys = sorted(key for key in observation_space.spaces if key != ACTION_MASK)
        self.keys = tuple(sorted(keys, key=flags.critic_only_keys.__contains__))
        self.normalizers = nn.ModuleList()
        self.of_critic = nn.ModuleList()
        for key in self.keys:
            part = self.of_critic if key in flags.critic_only_keys else self.normalizers
            part.append(_make_normalizer(flags, key, cast(gym.spaces.Box, observation_space[key])))

    def forward(
        self, observations: Mapping[str, Tensor], raw: Collection[str] = ()
    ) -> dict[str, Tensor | RawImages]:
        """Maps raw observations [B, ...] to normalised observations in float32, without the action mask.

        Indices of Discrete and MultiDiscrete observations become int64. Under autocast, images get autocast's
        dtype, to which the first convolution would round them in any case.
        raw: keys of images that become RawImages.
        """
        normalized: dict[str, Tensor | RawImages] = {}
        for key, normalizer in zip(self.keys, self._each()):
            x = observations[key]
            if key in raw:
                normalized[key] = RawImages(x, normalizer)
                continue
            dtype = autocast_dtype(x.device) if x.dim() >= 4 else torch.float32
            normalized[key] = normalizer.normalize(x, dtype)
        return normalized

    def update(
        self,
        observations: Mapping[str, Tensor],
        valid: Tensor | None = None,
        total: Total[Tensor] = of_one_process,
    ) -> None:
        """Adds raw observations [T, ..., *shape] to the running statistics; of images, only every
        IMAGE_STRIDE-th step. valid: bool [T, ...]; steps where it is False are excluded. total: sums a tensor
        over all learners of the policy."""
        for key, normalizer in zip(self.keys, self._each()):
            x = observations[key]
            stride = IMAGE_STRIDE if len(normalizer.shape) >= 3 else 1
            normalizer.update(x[::stride], None if valid is None else valid[::stride], total)

    def _each(self) -> Sequence[Normalizer]:
        return cast(Sequence[Normalizer], (*self.normalizers, *self.of_critic))


def autocast_dtype(device: torch.device) -> torch.dtype:
    """Returns the dtype of layers on this device: autocast's, or float32 without autocast."""
    autocast = torch.is_autocast_enabled(device.type)
    return torch.get_autocast_dtype(device.type) if autocast else torch.float32


def _make_normalizer(flags: ModelFlags, key: str, space: gym.spaces.Box) -> Normalizer:
    if isinstance(space, Indices):
        return IndexNormalizer(space.shape)
    subtract, scale = (flags.obs_subtract_mean, flags.obs_scale) if is_image(space) else (0.0, 1.0)
    if not flags.normalize_input or (flags.normalize_input_keys and key not in flags.normalize_input_keys):
        return FixedNormalizer(space.shape, subtract, scale)
    # The first actions are chosen with these statistics, by which bytes must not be clipped.
    start_std = 255.0 if space.dtype == np.uint8 and scale == 1.0 else scale
    return RunningNormalizer(space.shape, eps=1e-5 * scale**2, start_mean=subtract, start_std=start_std)
