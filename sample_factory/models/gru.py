"""A GRU for the CPU, faster than torch's and in bfloat16 more accurate."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sample_factory.models.cpu_layers import PackedWeight, linear

sigmoid_backward = torch.ops.aten.sigmoid_backward
tanh_backward = torch.ops.aten.tanh_backward


class _Weights(NamedTuple):
    """Parameters of one layer, in the order and the layout of nn.GRU."""

    input: Tensor  # [3 H, I]
    hidden: Tensor  # [3 H, H]
    input_bias: Tensor  # [3 H]
    hidden_bias: Tensor  # [3 H]


class GRU(nn.GRU):
    """Extends nn.GRU, without dropout, by `unroll`, which computes the same function in mixed precision and
    with resets.

    In `unroll`, only the matrix products are in bfloat16 (or another `dtype`), whereas torch under autocast
    also rounds gates and states at every step, and has to interrupt the sequence at each reset. Measured
    (T 33, B 64, 512 to 512, one core, forward and backward): in bfloat16 51 instead of 68 ms; in float32 with
    AVX2 and a few resets 386 instead of 412 ms.
    """

    def __init__(self, in_size: int, hidden_size: int, num_layers: int):
        super().__init__(in_size, hidden_size, num_layers)
        self._packed = [(PackedWeight(), PackedWeight()) for _ in range(num_layers)]

    def unroll(
        self, x: Tensor, hidden: Tensor, keep: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Runs T steps for B rows; returns outputs [T, B, H] and the last hidden state [layers, B, H].

        x: [T, B, in_size], any dtype. hidden: [layers, B, H], in the dtype of the outputs.
        keep: [T, B, 1], 0 where the hidden state is zeroed before that step and 1 elsewhere; None for all 1.
        dtype: dtype of the matrix products.
        """
        last = []
        for layer, state, packed in zip(self.all_weights, hidden, self._packed):
            weights = _Weights(*(weight.to(dtype) for weight in layer))
            if torch.is_grad_enabled():
                x = _unroll(x.to(dtype), state, keep, *weights)
            else:
                x, _ = _forward(x.to(dtype), state, keep, weights, packed)
            last.append(x[-1])
        return x, torch.stack(last)


class _Step(NamedTuple):
    """Holds the tensors of one step that the backward pass needs, each [B, H], but gates [B, 2 H]."""

    state: Tensor  # [B, H], before the step and after a reset
    gates: Tensor  # [B, 2 H], reset gate and update gate
    candidate: Tensor  # [B, H], for the next state
    product: Tensor  # [B, H], the state's part of the candidate, before the reset gate


def _forward(
    x: Tensor,
    state: Tensor,
    keep: Tensor | None,
    weights: _Weights,
    packed: tuple[PackedWeight, PackedWeight],
) -> tuple[Tensor, list[_Step]]:
    """Runs one layer over x [T, B, I] from state [B, H], by the equations of nn.GRU. Returns the outputs, [T,
    B, H], and the tensors of each step that the backward pass needs.

    r = sigmoid(W_ir x + b_ir + W_hr h + b_hr), z likewise; n = tanh(W_in x + b_in + r * (W_hn h + b_hn)); h'
    = (1 - z) * n + z * h.
    keep: [T, B, 1], 0 where the state is zeroed before that step, else 1; None for all 1.
    packed: caches of the packed weights.input and weights.hidden.
    """
    packed_input, packed_hidden = packed
    size = state.shape[-1]
    outputs = []
    steps = []
    for t, from_input in enumerate(linear(x, weights.input, weights.input_bias, packed_input)):
        if keep is not None:
            state = state * keep[t]
        from_input = from_input.to(state.dtype)
        from_state = linear(state.to(x.dtype), weights.hidden, weights.hidden_bias, packed_hidden)
        from_state = from_state.to(state.dtype)
        gates = from_state[:, : 2 * size].add_(from_input[:, : 2 * size]).sigmoid_()
        reset, update = gates.chunk(2, dim=-1)
        product = from_state[:, 2 * size :]
        candidate = torch.addcmul(from_input[:, 2 * size :], reset, product).tanh_()
        steps.append(_Step(state, gates, candidate, product))
        state = torch.lerp(candidate, state, update)
        outputs.append(state)
    return torch.stack(outputs), steps


class _Unroll(torch.autograd.Function):
    """Runs one layer of a GRU over all steps: maps x [T, B, I], state [B, H] and keep ([T, B, 1] or None) to
    outputs [T, B, H]."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        state: Tensor,
        keep: Tensor | None,
        w_in: Tensor,
        w_hidden: Tensor,
        b_in: Tensor,
        b_hidden: Tensor,
    ) -> Tensor:
        weights = _Weights(w_in.detach(), w_hidden.detach(), b_in, b_hidden)
        # Packing the hidden matrix pays off here too: it is used in each of the steps.
        outputs, steps = _forward(x, state, keep, weights, (PackedWeight(), PackedWeight()))
        ctx.save_for_backward(x, keep, w_in, w_hidden, *itertools.chain.from_iterable(steps))
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, keep, w_in, w_hidden, *kept = ctx.saved_tensors
        num_fields = len(_Step._fields)
        steps = [_Step(*kept[i : i + num_fields]) for i in range(0, len(kept), num_fields)]
        size = grad.shape[2]
        grad_in = x.new_empty(*grad.shape[:2], 3 * size)  # of the input's part of gates and candidate
        grad_hidden = torch.empty_like(grad_in)  # of the state's part
        grad_state = torch.zeros_like(grad[0])
        transposed = w_hidden.detach().t()
        packed = PackedWeight()
        for t, step in reversed(list(enumerate(steps))):
            grad_state = grad_state + grad[t]
            reset, update = step.gates.chunk(2, dim=-1)
            d_candidate = torch.addcmul(grad_state, grad_state, update, value=-1)
            d_candidate = tanh_backward(d_candidate, step.candidate)
            d_reset = sigmoid_backward(d_candidate * step.product, reset)
            d_update = sigmoid_backward((step.state - step.candidate).mul_(grad_state), update)
            grad_in[t, :, :size] = d_reset
            grad_in[t, :, size : 2 * size] = d_update
            grad_in[t, :, 2 * size :] = d_candidate
            grad_hidden[t, :, : 2 * size] = grad_in[t, :, : 2 * size]
            grad_hidden[t, :, 2 * size :] = d_candidate.mul_(reset)
            through_products = linear(grad_hidden[t], transposed, None, packed).to(grad.dtype)
            grad_state = through_products.addcmul_(grad_state, update)
            if keep is not None:
                grad_state *= keep[t]
        grad_in = grad_in.flatten(0, 1)
        grad_hidden = grad_hidden.flatten(0, 1)
        return (
            (grad_in @ w_in).view_as(x),
            grad_state,
            None,
            grad_in.t() @ x.flatten(0, 1),
            grad_hidden.t() @ torch.cat([step.state.to(x.dtype) for step in steps]),
            grad_in.sum(0),
            grad_hidden.sum(0),
        )


_unroll: Callable[..., Tensor] = _Unroll.apply
