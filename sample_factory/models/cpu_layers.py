"""Layers that compute the same functions as torch's, but faster on a CPU.

- Linear and Conv2d pack their weights once while they act. With AVX2, `convolution_gradients` computes the
  gradient of a float32 weight by matrix products.
- PatchConv2d turns squares of pixels into channels before a convolution over pictures with few channels.

OneDNN's kernels need weights in a special order (packed). torch's layers reorder them in each call, which
takes as long as the products of a few rows. The operators for packed weights are private operators of torch's
compiler: where they are missing, and where packing is impossible (gradients, other dtypes and devices), the
layers compute like nn.Linear and nn.Conv2d. Measured (one core, 16 rows): in bfloat16 with AMX, 2304 to 512
features in 92 instead of 160 us, 64 to 128 channels of 7x14 pixels in 90 instead of 165 us; in float32 with
AVX2, 664 instead of 755 and 587 instead of 725 us.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

ops = torch.ops.mkldnn


class PackedWeight:
    """Caches a copy of one weight in the memory order that oneDNN's kernels need (packed). The copy is made
    at its first use and after every change of the weight.

    A change shows in the version number, which torch increments at every in-place operation (an optimizer's
    step, load_state_dict), or in the memory address (`.to`, a new parameter); a change through `weight.data`
    goes unnoticed. Copies of this object are empty: a packed tensor can be neither copied nor saved.
    """

    def __init__(self) -> None:
        self._source: Tensor | None = None  # keeps the memory alive, so that its address is not reused
        self._version: tuple[int, int] | None = None
        self._packed: Tensor | None = None

    def __reduce__(self) -> tuple[type["PackedWeight"], tuple[()]]:
        return PackedWeight, ()

    def get(self, weight: Tensor, x: Tensor, pack: Callable[[Tensor], Tensor]) -> Tensor | None:
        """Returns `pack(weight)`, cached, to multiply with the input x; None where packing is impossible, see
        `_packable`."""
        if not _packable(weight, x):
            return None
        version = weight.data_ptr(), weight._version
        if version != self._version:
            self._source = weight.detach()
            self._version = version
            self._packed = pack(weight.detach())
        return self._packed


def _packable(weight: Tensor, x: Tensor) -> bool:
    """Returns whether the weight may be packed: no gradient is computed, and the weight is multiplied with
    the input x on the CPU without a conversion of its dtype.

    Weights in training are not packed, since fused optimizers change a weight without a new version number.
    """
    if weight.requires_grad or torch.is_grad_enabled() or not (weight.is_cpu and x.is_cpu):
        return False
    if weight.is_inference() or torch.compiler.is_compiling():
        return False
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
    return dtype == weight.dtype and _can_pack(dtype)


@functools.cache
def _can_pack(dtype: torch.dtype) -> bool:
    if dtype not in (torch.bfloat16, torch.float32):
        return False
    names = (
        "_is_mkldnn_bf16_supported",
        "_reorder_linear_weight",
        "_linear_pointwise",
        "_reorder_convolution_weight",
        "_convolution_pointwise",
    )
    has_mkldnn: Callable[[], bool] = torch.backends.mkldnn.is_available
    if not has_mkldnn() or not all(hasattr(ops, name) for name in names):
        return False
    return dtype == torch.float32 or bool(ops._is_mkldnn_bf16_supported())


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, packed: PackedWeight) -> Tensor:
    """Computes F.linear(x, weight, bias), [..., in] to [..., out], with the packed weight if possible."""
    packed_weight = packed.get(weight, x, lambda weight: ops._reorder_linear_weight(weight))
    if packed_weight is None:
        return nn.functional.linear(x, weight, bias)
    out: Tensor = ops._linear_pointwise(x.to(weight.dtype), packed_weight, bias, "none", [], "")
    return out


class Linear(nn.Linear):
    """nn.Linear that packs its weight for inference on a CPU."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        super().__init__(in_features, out_features, bias)
        self._packed = PackedWeight()

    def forward(self, x: Tensor) -> Tensor:
        """Maps [..., in_features] to [..., out_features]."""
        return linear(x, self.weight, self.bias, self._packed)


class Kernel(NamedTuple):
    """Weights of a convolution and how it moves over its input.

    weight: [out_channels, in_channels, height, width]. bias: [out_channels].
    """

    weight: Tensor
    bias: Tensor
    stride: tuple[int, ...]
    padding: tuple[int, ...]


class Conv2d(nn.Conv2d):
    """nn.Conv2d, padded with zeros, that packs its weight for inference on a CPU."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int = 1, padding: int = 0):
        super().__init__(in_channels, out_channels, kernel, stride, padding)
        self._packed = PackedWeight()

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, in_channels, H, W] to [B, out_channels, H', W']."""
        return self.convolve(x)

    def convolve(self, x: Tensor) -> Tensor:
        """Maps an input that is in the order of `kernel` to [B, out_channels, H', W']."""
        assert isinstance(self.padding, tuple)
        return conv2d(x, self.weight, self.bias, self._packed, self.stride, self.padding)

    def kernel(self) -> Kernel:
        """Returns the convolution that `convolve` computes."""
        assert isinstance(self.padding, tuple) and self.bias is not None
        return Kernel(self.weight, self.bias, self.stride, self.padding)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    packed: PackedWeight,
    stride: tuple[int, ...] = (1, 1),
    padding: tuple[int, ...] = (0, 0),
    rearrange: Callable[[Tensor], Tensor] = lambda weight: weight,
) -> Tensor:
    """Computes F.conv2d(x, rearrange(weight), bias, stride, padding), with the packed weight if possible."""
    sizes = padding, stride, (1, 1), 1  # dilation and groups

    def pack(weight: Tensor) -> Tensor:
        # The best order depends on the size of the picture, not on the number of rows; the results do not.
        order: Tensor = ops._reorder_convolution_weight(
            rearrange(weight).contiguous(), *sizes, [1, *x.shape[1:]]
        )
        return order

    packed_weight = packed.get(weight, x, pack)
    if packed_weight is None:
        return nn.functional.conv2d(x, rearrange(weight), bias, stride, padding)
    out: Tensor = ops._convolution_pointwise(x.to(weight.dtype), packed_weight, bias, *sizes, "none", [], "")
    return out


def convolution_gradients(
    grad: Tensor, x: Tensor, weight: Tensor, stride: tuple[int, ...], padding: tuple[int, ...], of_input: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Returns the gradients of a convolution's input (None unless `of_input`), weight and bias.

    oneDNN 3.12 has no fast kernel for the gradient of a float32 weight with AVX2, so there it is computed by
    matrix products. Measured (2,112 images, one core): convnet_simple's convolutions, forward and backward,
    in 263, 210 and 80 instead of 292, 286 and 116 ms.

    grad: gradient of the output, [B, out_channels, H', W']. x: the input, [B, in_channels, H, W], in the
    dtype of `weight`. Both in channels_last.
    """
    by_products = (
        x.dtype == torch.float32 and not any(padding) and torch.backends.cpu.get_cpu_capability() == "AVX2"
    )
    sizes = [len(weight)], stride, padding, (1, 1), False, (0, 0), 1
    needed = (of_input, not by_products, not by_products)
    grads: tuple[Any, Any, Any] = torch.ops.aten.convolution_backward(grad, x, weight, *sizes, needed)
    if not by_products:
        return grads
    return grads[0], _weight_gradient(x, grad, weight, stride), grad.sum((0, 2, 3))


ELU_CHUNK = 1 << 19  # numbers per chunk: a megabyte, which stays in the cache


def elu_(x: Tensor) -> Tensor:
    """Computes ELU in place, and returns x, without a gradient: in bfloat16, autograd does not notice it.

    In bfloat16, exp(x) - 1 of negative numbers is rounded to multiples of 2^-8 or finer, the rounding of
    exp(x), which takes half the time of torch's ELU: 0.77 instead of 1.47 ns per number (AVX-512, one core).
    """
    if x.dtype != torch.bfloat16:
        return nn.functional.elu_(x)
    # As integers, bfloat16 numbers are negative if and only if their sign is. So the positive numbers and the
    # negative ones, each with 0 in place of the others, are found and joined faster than as floats.
    rows = max(1, ELU_CHUNK * len(x) // max(1, x.numel()))  # with about ELU_CHUNK numbers
    for bits in x.view(torch.int16).split(rows):
        negative = bits.clamp(max=0)
        negative.view(torch.bfloat16).exp_().sub_(1)
        bits.clamp_(min=0).bitwise_or_(negative)
    return x


def _weight_gradient(x: Tensor, grad: Tensor, weight: Tensor, stride: tuple[int, ...]) -> Tensor:
    """Returns the gradient of the weight [O, C, KH, KW] of a convolution without padding. x: input of the
    convolution, [B, C, H, W]. grad: gradient of its output, [B, O, H', W']. Both in channels_last."""
    out_channels, channels, kernel_height, kernel_width = weight.shape
    row_size = kernel_width * channels  # numbers in a row of a patch, which are neighbours in memory
    pixels = x.permute(0, 2, 3, 1)
    grads = grad.permute(0, 2, 3, 1)
    batch, height, width = grads.shape[:3]
    strides = pixels.stride()
    patches = pixels.as_strided(
        (batch, height, width, kernel_height, row_size),
        (strides[0], stride[0] * strides[1], stride[1] * strides[2], strides[1], 1),
    )
    patch_size = kernel_height * row_size
    pictures = max(1, MAX_MATRIX_SIZE // (height * width * patch_size))  # in a part
    matrix = x.new_empty(min(pictures, batch), height, width, kernel_height, row_size)
    total = x.new_zeros(out_channels, patch_size)
    for some_patches, some_grads in zip(patches.split(pictures), grads.split(pictures)):
        part = matrix[: len(some_patches)].copy_(some_patches)
        total.addmm_(some_grads.reshape(-1, out_channels).t(), part.view(-1, patch_size))
    return total.view(out_channels, kernel_height, kernel_width, channels).permute(0, 3, 1, 2)


class ToChannelsLast(nn.Module):
    """Changes the memory format of images [B, C, H, W] to channels_last, in which convolutions are faster;
    their outputs keep the format."""

    def forward(self, x: Tensor) -> Tensor:
        return x.contiguous(memory_format=torch.channels_last)


class PatchConv2d(Conv2d):
    """The same function as nn.Conv2d without padding, for a kernel that is a multiple of the stride.

    Squares of stride x stride pixels become channels, and the kernel moves over squares, since a convolution
    over the 3 channels of a picture has too little work per pixel. A kernel of 8x8 with stride 4 over 3
    channels becomes one of 2x2 over 48 channels. Measured (2,112 pictures of 72x128 through convnet_simple,
    one core, forward and backward): 937 instead of 1,416 ms in float32, 400 instead of 586 ms in bfloat16.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, C, H, W] to [B, out_channels, H', W'], in channels_last format."""
        return self.convolve(pixels_to_channels(x, self.stride[0]))

    def convolve(self, x: Tensor) -> Tensor:
        """Maps squares of pixels, as `pixels_to_channels` returns them, to [B, out_channels, H', W']."""
        return conv2d(x, self.weight, self.bias, self._packed, rearrange=self._over_squares)

    def kernel(self) -> Kernel:
        """Returns the convolution over squares that `convolve` computes."""
        assert self.bias is not None
        return Kernel(self._over_squares(self.weight), self.bias, (1, 1), (0, 0))

    def _over_squares(self, weight: Tensor) -> Tensor:
        """Rearranges the weight [O, C, K, K] for a convolution over the channels that `pixels_to_channels`
        makes of squares of S x S pixels, S being the stride: [O, C * S * S, K / S, K / S]."""
        side = self.stride[0]
        squares = self.kernel_size[0] // side
        weight = weight.view(self.out_channels, self.in_channels, squares, side, squares, side)
        return weight.permute(0, 2, 4, 1, 3, 5).flatten(3).permute(0, 3, 1, 2)


MAX_MATRIX_SIZE = 400_000  # elements of a matrix of patches, see _weight_gradient
MANY_PICTURES = 128  # see pixels_to_channels

# dtype to copy with, by the number of bytes in one side of a square.
WORDS = {4: torch.int32, 8: torch.int64, 16: torch.complex128}


def pixels_to_channels(x: Tensor, side: int) -> Tensor:
    """Turns each square of side x side pixels into channels, as F.pixel_unshuffle does, but faster.

    Maps [B, C, H, W] to [B, C * side * side, H // side, W // side] in channels_last format. Rows and columns
    beyond a multiple of `side` are dropped.
    """
    batch, channels, height, width = x.shape
    rows = height // side
    columns = width // side
    x = x[:, :, : rows * side, : columns * side]
    word = WORDS.get(side * x.element_size())
    if word and x.is_contiguous() and x.storage_offset() % side == 0 and not x.requires_grad:
        # Neighbouring pixels are copied as one word. A channel at a time takes a quarter of the time for a
        # small batch, but 12 instead of 7 ms for 258 pictures of 4x84x84 in float32 on one core.
        # Flat first: with one channel, its stride may be 1, and `view(word)` refuses such a stride.
        words = x.view(-1).view(word).view(batch, channels, rows, side, columns)
        squares = words.new_empty(batch, rows, columns, channels, side)
        if batch >= MANY_PICTURES and x.element_size() == 4:
            squares.copy_(words.permute(0, 2, 4, 1, 3))
        else:
            for channel in range(channels):
                squares[:, :, :, channel].copy_(words[:, channel].transpose(2, 3))
        squares = squares.view(x.dtype)
    else:
        squares = x.reshape(batch, channels, rows, side, columns, side).permute(0, 2, 4, 1, 3, 5)
    return squares.reshape(batch, rows, columns, channels * side * side).permute(0, 3, 1, 2)
