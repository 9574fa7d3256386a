"""A GRU for bfloat16 on the CPU: faster than torch's, and more exact."""

import itertools
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sample_factory.models.packed import PackedWeight, linear

sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
Weights = tuple[Tensor, Tensor, Tensor, Tensor]  # of one layer, in the order and the layout of nn.GRU


class GRU(nn.GRU):
    """nn.GRU without dropout, and `unroll`, which computes the same function in mixed precision.

    Matrix products are in a type of their own; gates and states are in the type of the state, where torch
    under autocast rounds them all to bfloat16 at every step. Measured (T 33, B 64, 512 to 512, one core,
    bfloat16, forward and backward): 51 instead of 68 ms; torch's would also have to stop at each reset.
    """

    def __init__(self, in_size: int, hidden_size: int, num_layers: int):
        super().__init__(in_size, hidden_size, num_layers)
        self._packed = [(PackedWeight(), PackedWeight()) for _ in range(num_layers)]

    def unroll(
        self, x: Tensor, hidden: Tensor, keep: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """T steps for B rows, matrix products in dtype; returns outputs [T, B, H] and the last hidden.

        x: [T, B, in_size], any type. hidden: [layers, B, H]; its type is that of the outputs.
        keep: [T, B, 1], 0 where the hidden state is zeroed before that step and 1 elsewhere; or None for 1s.
        """
        last = []
        for layer, state, packed in zip(self.all_weights, hidden, self._packed):
            weights = tuple(weight.to(dtype) for weight in layer)
            if torch.is_grad_enabled():
                x = _Unroll.apply(x.to(dtype), state, keep, *weights)
            else:
                x = _forward(x.to(dtype), state, keep, weights, packed)[0]
            last.append(x[-1])
        return x, torch.stack(last)


class _Step(NamedTuple):
    """What the backward pass needs of one step: the state before it (after a reset), reset and update gate
    [B, 2 H], the candidate for the next state, and the state's part of it before the reset gate; [B, H].
    """

    state: Tensor
    gates: Tensor
    candidate: Tensor
    product: Tensor


def _forward(
    x: Tensor, state: Tensor, keep: Tensor | None, weights: Weights, packed: tuple[PackedWeight, PackedWeight]
) -> tuple[Tensor, list[_Step]]:
    """One layer: x [T, B, I] and state [B, H] to the outputs [T, B, H]."""
    w_in, w_hidden, b_in, b_hidden = weights
    size, outputs, steps = state.shape[-1], [], []
    for t, from_input in enumerate(linear(x, w_in, b_in, packed[0])):
        if keep is not None:
            state = state * keep[t]
        from_input = from_input.to(state.dtype)
        from_state = linear(state.to(x.dtype), w_hidden, b_hidden, packed[1]).to(state.dtype)
        gates = (from_input[:, : 2 * size] + from_state[:, : 2 * size]).sigmoid_()
        reset, update = gates.chunk(2, dim=-1)
        product = from_state[:, 2 * size :]
        candidate = torch.addcmul(from_input[:, 2 * size :], reset, product).tanh_()
        steps.append(_Step(state, gates, candidate, product))
        state = torch.lerp(candidate, state, update)
        outputs.append(state)
    return torch.stack(outputs), steps


class _Unroll(torch.autograd.Function):
    """One layer of a GRU over all steps: x [T, B, I], state [B, H], keep [T, B, 1] or None to [T, B, H]."""

    @staticmethod
    def forward(
        ctx,
        x: Tensor,
        state: Tensor,
        keep: Tensor | None,
        w_in: Tensor,
        w_hidden: Tensor,
        b_in: Tensor,
        b_hidden: Tensor,
    ) -> Tensor:
        weights = w_in, w_hidden, b_in, b_hidden
        # Packing the weight of the states pays here too: it is used in each of the steps.
        outputs, steps = _forward(x, state, keep, weights, (PackedWeight(), PackedWeight()))
        ctx.save_for_backward(x, keep, w_in, w_hidden, *itertools.chain(*steps))
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, keep, w_in, w_hidden, *kept = ctx.saved_tensors
        steps = [_Step(*kept[i : i + 4]) for i in range(0, len(kept), 4)]
        size = grad.shape[2]
        grad_in = x.new_empty(*grad.shape[:2], 3 * size)  # of what the input gives to gates and candidate
        grad_hidden = torch.empty_like(grad_in)  # of what the state gives
        grad_state = torch.zeros_like(grad[0])
        transposed, packed = w_hidden.t(), PackedWeight()
        for t, (state, gates, candidate, product) in reversed(list(enumerate(steps))):
            grad_state = grad_state + grad[t]
            reset, update = gates.chunk(2, dim=-1)
            d_candidate = torch.addcmul(grad_state, grad_state, update, value=-1)
            d_candidate = tanh_backward(d_candidate, candidate)
            d_reset = sigmoid_backward(d_candidate * product, reset)
            d_update = sigmoid_backward((state - candidate).mul_(grad_state), update)
            grad_in[t, :, :size] = d_reset
            grad_in[t, :, size : 2 * size] = d_update
            grad_in[t, :, 2 * size :] = d_candidate
            grad_hidden[t, :, : 2 * size] = grad_in[t, :, : 2 * size]
            grad_hidden[t, :, 2 * size :] = d_candidate.mul_(reset)
            through_products = linear(grad_hidden[t], transposed, None, packed).to(grad.dtype)
            grad_state = through_products.addcmul_(grad_state, update)
            if keep is not None:
                grad_state *= keep[t]
        grad_in, grad_hidden = grad_in.flatten(0, 1), grad_hidden.flatten(0, 1)
        return (
            (grad_in @ w_in).view_as(x),
            grad_state,
            None,
            grad_in.t() @ x.flatten(0, 1),
            grad_hidden.t() @ torch.cat([step.state.to(x.dtype) for step in steps]),
            grad_in.sum(0),
            grad_hidden.sum(0),
        )
