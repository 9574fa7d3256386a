"""A stack of convolutions over images that a CPU computes for a slice of the batch at a time.

Computed layer by layer, a batch passes through memory many times: 2,112 images of 3x72x128 pixels are 117 MB
in bfloat16, once normalised and once in the order of the first convolution; the activations of
`convnet_simple` are 107 MB, before and after the activation function. In slices that fit the cache, only the
raw images and the activations after the function are kept for the gradient; normalised images are computed
again.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sample_factory.models.cpu_layers import (
    Conv2d,
    PatchConv2d,
    convolution_gradients,
    elu_,
    pixels_to_channels,
)
from sample_factory.models.normalizers import RawImages, autocast_dtype
from sample_factory.spaces.observations import ImageLayout

SLICE_BYTES = 1 << 24  # of normalised images

Move = tuple[tuple[int, ...], tuple[int, ...]]  # stride and padding of a convolution

aten = torch.ops.aten


class Activation(NamedTuple):
    """An activation function y = f(x) and its gradient, computed from y alone; both are computed in place.

    gradient_: (gradient of y, y) -> gradient of x, in the memory of the gradient of y.
    """

    apply_: Callable[[Tensor], Tensor]
    gradient_: Callable[[Tensor, Tensor], Tensor]


BY_NAME = {
    "elu": Activation(elu_, lambda grad, y: aten.elu_backward(grad, 1.0, 1.0, 1.0, True, y, grad_input=grad)),
    "relu": Activation(torch.relu_, lambda grad, y: aten.threshold_backward(grad, y, 0.0, grad_input=grad)),
    "tanh": Activation(torch.tanh_, lambda grad, y: aten.tanh_backward(grad, y, grad_input=grad)),
}


@dataclass(frozen=True)
class PixelOrder:
    """The order of an observation's pixels in which the first convolution reads them.

    image: layout of the observation. side: of the squares whose pixels become channels; 1 for single pixels.
    """

    image: ImageLayout
    side: int

    def __call__(self, rows: Tensor) -> Tensor:
        """Maps observations [B, *shape] to [B, C * side * side, H // side, W // side], channels_last."""
        squares = pixels_to_channels(channels_first(rows, self.image), self.side)
        return squares.contiguous(memory_format=torch.channels_last)  # single pixels may have stayed in place


def channels_first(rows: Tensor, image: ImageLayout) -> Tensor:
    """Maps observations [B, *shape], which hold images as `image` says, to images [B, C, H, W]."""
    if image.is_plane:
        rows = rows.unsqueeze(1)
    elif image.is_hwc:
        rows = rows.movedim(-1, -3)
    return rows.flatten(1, 2) if image.is_stack else rows


@dataclass(frozen=True)
class ConvStack:
    """Computes a plain stack of convolutions, an nn.Sequential with activation functions between the layers.

    order: order of the pixels for the first layer. nonlinearity: name of the activation function, in BY_NAME.
    """

    order: PixelOrder
    nonlinearity: str

    def encode(self, layers: nn.Sequential, images: RawImages) -> Tensor:
        """Maps raw images of B rows on a CPU to [B, size], the flattened and activated output of the last
        convolution, in the dtype of autocast.

        Before the backward pass, neither the rows, nor the statistics of the normaliser, nor the result may
        change.
        layers: instances of Conv2d or its subclass PatchConv2d, and modules of the activation function.
        """
        dtype = autocast_dtype(images.rows.device)
        convolutions = [layer for layer in layers if isinstance(layer, Conv2d)]
        if torch.is_grad_enabled() and any(weight.requires_grad for weight in layers.parameters()):
            if images.rows.is_inference():  # autograd cannot save such tensors
                images = images._replace(rows=images.rows.clone())
            kernels = [layer.kernel() for layer in convolutions]
            parameters = [tensor for kernel in kernels for tensor in (kernel.weight, kernel.bias)]
            moves = [(kernel.stride, kernel.padding) for kernel in kernels]
            flat: Tensor = _encode(self, moves, images, dtype, *parameters)
            return flat
        parts = [self._encode_slice(convolutions, part, dtype) for part in _slices(images, dtype)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _encode_slice(self, convolutions: Sequence[Conv2d], images: RawImages, dtype: torch.dtype) -> Tensor:
        x = images.normalized(dtype, self.order)
        for layer in convolutions:
            x = BY_NAME[self.nonlinearity].apply_(layer.convolve(x))
        return x.flatten(1)


def conv_stack(layers: nn.Sequential, image: ImageLayout, nonlinearity: str) -> ConvStack:
    """Returns the ConvStack that computes `layers`. image: layout of the observations."""
    first = layers[0]
    side = first.stride[0] if isinstance(first, PatchConv2d) else 1
    return ConvStack(PixelOrder(image, side), nonlinearity)


def _slices(images: RawImages, dtype: torch.dtype) -> list[RawImages]:
    """Splits images into slices that have about SLICE_BYTES once they are normalised to `dtype`."""
    row_bytes = images.rows.shape[1:].numel() * dtype.itemsize
    parts = images.rows.split(max(1, SLICE_BYTES // row_bytes))
    return [images._replace(rows=part) for part in parts]


class _Encode(torch.autograd.Function):
    """`ConvStack.encode` with a gradient; gradients of the weights are summed over the slices in float32."""

    @staticmethod
    def forward(
        ctx: Any,
        stack: ConvStack,
        moves: Sequence[Move],
        images: RawImages,
        dtype: torch.dtype,
        *parameters: Tensor,
    ) -> Tensor:
        """moves: (stride, padding) of each layer. parameters: weight and bias of each layer."""
        activation = BY_NAME[stack.nonlinearity]
        weights = [tensor.detach().to(dtype) for tensor in parameters]
        hidden = []  # outputs of all layers but the last one
        parts = []
        for part in _slices(images, dtype):
            x = part.normalized(dtype, stack.order)
            for (stride, padding), weight, bias in zip(moves, weights[::2], weights[1::2]):
                x = activation.apply_(nn.functional.conv2d(x, weight, bias, stride, padding))
                hidden.append(x)
            hidden.pop()
            parts.append(x.flatten(1))
        flat = torch.cat(parts)
        ctx.stack = stack
        ctx.moves = moves
        ctx.normalizer = images.normalizer
        ctx.output_shape = x.shape[1:]
        ctx.save_for_backward(images.rows, flat, *weights[::2], *hidden)
        return flat

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        activation = BY_NAME[ctx.stack.nonlinearity]
        num_layers = len(ctx.moves)
        rows, flat, *saved = ctx.saved_tensors
        weights = saved[:num_layers]
        hidden = iter(saved[num_layers:])
        totals = [
            torch.zeros(shape, dtype=torch.float32)
            for weight in weights
            for shape in (weight.shape, weight.shape[:1])
        ]
        start = 0
        for part in _slices(RawImages(rows, ctx.normalizer), flat.dtype):
            of_part = slice(start, start + len(part.rows))
            start = of_part.stop
            of_hidden = list(itertools.islice(hidden, num_layers - 1))
            grad_x = activation.gradient_(grad[of_part].clone(), flat[of_part])  # `grad` may have other uses
            grad_x = grad_x.unflatten(1, ctx.output_shape)
            _add_gradients(totals, ctx.stack, ctx.moves, weights, part, of_hidden, grad_x)
        return None, None, None, None, *totals


def _add_gradients(
    totals: Sequence[Tensor],
    stack: ConvStack,
    moves: Sequence[Move],
    weights: Sequence[Tensor],
    images: RawImages,
    hidden: Sequence[Tensor],
    grad: Tensor,
) -> None:
    """Adds the gradients of a slice of the batch to `totals`: weight and bias of each layer, float32.

    A function of its own, so that the memory for one slice is freed before the next one. hidden: outputs of
    all layers but the last one, after the activation function. grad: gradient of the output of the last
    convolution, before the activation function, [B, C, H, W].
    """
    activation = BY_NAME[stack.nonlinearity]
    inputs = [images.normalized(weights[0].dtype, stack.order), *hidden]
    grad = grad.contiguous(memory_format=torch.channels_last)
    for layer in reversed(range(len(moves))):
        stride, padding = moves[layer]
        of_input, *of_parameters = convolution_gradients(
            grad, inputs[layer], weights[layer], stride, padding, of_input=layer > 0
        )
        for total, of_slice in zip(totals[2 * layer :], of_parameters):
            total += of_slice
        if of_input is not None:
            of_input = of_input.contiguous(memory_format=torch.channels_last)
            grad = activation.gradient_(of_input, inputs[layer])


_encode: Callable[..., Tensor] = _Encode.apply
