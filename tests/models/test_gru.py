"""GRU.unroll computes what nn.GRU does, with resets, in any dtype; in bfloat16 at least as accurately."""

import pytest
import torch

from sample_factory.models.gru import GRU

STEPS = 9
ROWS = 5
IN = 6
HIDDEN = 7


def gru_of(layers=1, dtype=torch.float64, size=HIDDEN, in_size=IN):
    torch.manual_seed(0)
    return GRU(in_size, size, layers).to(dtype)


def inputs_of(layers, dtype=torch.float64, size=HIDDEN, in_size=IN, rows=ROWS, steps=STEPS):
    torch.manual_seed(1)
    x = torch.randn(steps, rows, in_size, dtype=dtype)
    hidden = torch.randn(layers, rows, size, dtype=dtype)
    keep = (torch.rand(steps, rows, 1) < 0.8).to(dtype)
    return x, hidden, keep


def by_torch(gru, x, hidden, keep):
    """Ground truth: zeroes the state where it is reset, then runs one step of nn.GRU, T times."""
    outputs = []
    for t in range(len(x)):
        hidden = hidden if keep is None else hidden * keep[t]
        out, hidden = torch.nn.GRU.forward(gru, x[t : t + 1], hidden)
        outputs.append(out.to(hidden.dtype))
    return torch.cat(outputs), hidden


def results_of(run, gru, x, hidden, keep):
    """Returns outputs, last hidden state and all gradients of a run."""
    x = x.clone().requires_grad_()
    hidden = hidden.clone().requires_grad_()
    gru.zero_grad()
    outputs, last = run(x, hidden, keep)
    (outputs.square().sum() + (last * 1.5).sum()).backward()
    return outputs.detach(), last.detach(), x.grad, hidden.grad, *(p.grad for p in gru.parameters())


@pytest.mark.parametrize("with_resets", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_in_float64_it_is_torch_s_gru_with_resets(layers, with_resets):
    gru = gru_of(layers)
    x, hidden, keep = inputs_of(layers)
    keep = keep if with_resets else None
    ours = results_of(lambda *args: gru.unroll(*args, torch.float64), gru, x, hidden, keep)
    theirs = results_of(lambda *args: by_torch(gru, *args), gru, x, hidden, keep)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("layers", [1, 2])
def test_in_bfloat16_it_is_as_near_to_float64_as_torch_s(layers):
    size = 64
    gru = gru_of(layers, torch.float32, size, size)
    args = inputs_of(layers, torch.float32, size, size, rows=16, steps=20)
    args = args[0].bfloat16().float(), *args[1:]

    def unroll(*args):
        with torch.autocast("cpu", torch.bfloat16):
            return gru.unroll(*args, torch.bfloat16)

    def torch_unroll(*args):
        with torch.autocast("cpu", torch.bfloat16):
            return by_torch(gru, *args)

    ours = results_of(unroll, gru, *args)
    theirs = results_of(torch_unroll, gru, *args)
    exact = results_of(
        lambda *args: by_torch(gru, *args), gru.double(), *(tensor.double() for tensor in args)
    )
    assert ours[0].dtype == ours[1].dtype == torch.float32
    for mine, other, truth in zip(ours, theirs, exact):
        scale = truth.abs().max()
        error, error_of_torch = ((some.double() - truth).square().mean().sqrt() for some in (mine, other))
        assert error < 0.01 * scale and error < 1.1 * error_of_torch


def test_without_gradients_the_numbers_are_the_same():
    gru = gru_of(2, torch.float32)
    x, hidden, keep = inputs_of(2, torch.float32)
    for dtype in (torch.float32, torch.bfloat16):
        with_gradients = gru.unroll(x, hidden, keep, dtype)
        with torch.no_grad():
            torch.testing.assert_close(gru.unroll(x, hidden, keep, dtype), with_gradients, rtol=0, atol=0)


def test_the_arguments_are_not_changed():
    gru = gru_of(2, torch.float32)
    given = inputs_of(2, torch.float32)
    before = [tensor.clone() for tensor in given]
    with torch.no_grad():
        gru.unroll(*given, torch.float32)
    torch.testing.assert_close(list(given), before, rtol=0, atol=0)


def test_weights_that_are_loaded_after_acting_replace_the_packed_ones():
    gru = gru_of(2, torch.bfloat16).requires_grad_(False)
    new = gru_of(2, torch.bfloat16)
    x, hidden, keep = inputs_of(2, torch.float32)
    torch.nn.init.normal_(new.weight_hh_l1)
    torch.nn.init.normal_(new.weight_ih_l0)
    with torch.no_grad():
        gru.unroll(x, hidden, keep, torch.bfloat16)
        gru.load_state_dict(new.float().state_dict())
        ours = gru.unroll(x, hidden, keep, torch.bfloat16)
        torch.testing.assert_close(ours, new.unroll(x, hidden, keep, torch.bfloat16), rtol=0, atol=0)
