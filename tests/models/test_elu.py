"""ELU on the CPU is as exact as its type allows, forward and backward."""

import pytest
import torch

from sample_factory.models.elu import ELU


@pytest.mark.parametrize(
    "shape, memory_format",
    [
        ((0, 3), torch.contiguous_format),
        ((5,), torch.contiguous_format),
        ((7, 8, 9, 10), torch.channels_last),
        ((3, 300, 300), torch.contiguous_format),
    ],
)
def test_bfloat16_elu_is_its_definition_rounded_once(shape, memory_format):
    x = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 3).to(torch.bfloat16)
    x = x.contiguous(memory_format=memory_format).requires_grad_()
    y = ELU()(x)
    exact = x.detach().double()
    expected = torch.where(exact > 0, exact, torch.expm1(exact))
    assert y.dtype == torch.bfloat16 and y.shape == x.shape
    torch.testing.assert_close(y.double(), expected, rtol=2**-8, atol=1e-7)
    y.backward(torch.ones_like(y))
    slope = torch.where(exact > 0, 1.0, torch.exp(exact))
    torch.testing.assert_close(x.grad.double(), slope, rtol=2**-7, atol=2**-8)


def test_bfloat16_elu_keeps_what_is_not_finite():
    x = torch.tensor([float("nan"), float("inf"), float("-inf")], dtype=torch.bfloat16)
    y = ELU()(x)
    assert y[0].isnan() and y[1] == float("inf") and y[2] == -1


def test_float32_elu_is_torch_s_forward_and_backward():
    x = torch.linspace(-4, 4, 101)
    mine, torch_s = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, expected = ELU()(mine), torch.nn.functional.elu(torch_s)
    assert torch.equal(y, expected)
    (y * x).sum().backward()
    (expected * x).sum().backward()
    torch.testing.assert_close(mine.grad, torch_s.grad, rtol=1e-6, atol=1e-6)
