"""The scans of a minGRU compute the recurrence, and its gradients; units start with different memories."""

import pytest
import torch

from sample_factory.config.sections import ModelFlags
from sample_factory.models import mingru
from sample_factory.models.mingru import LONGEST, SHORTEST, MinGRU

SCANS = [mingru.scan_by_steps, mingru.scan_by_doubling]


def made_up(steps, rows=3, size=5, dtype=torch.float64):
    torch.manual_seed(steps)
    decays = torch.rand(steps, rows, size, dtype=dtype)
    decays[torch.rand(steps, rows) < 0.2] = 0.0  # resets
    return decays, torch.randn_like(decays), torch.randn(rows, size, dtype=dtype)


def by_definition(decays, inputs, state):
    outputs = []
    for decay, added in zip(decays, inputs):
        state = decay * state + added
        outputs.append(state)
    return torch.stack(outputs)


@pytest.mark.parametrize("steps", [1, 2, 3, 8, 33, 100])
@pytest.mark.parametrize("scan", SCANS)
def test_a_scan_is_the_recurrence_step_by_step(scan, steps):
    given = made_up(steps)
    torch.testing.assert_close(scan(*given), by_definition(*given), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("scan", SCANS)
def test_gradients_of_a_scan_are_those_of_finite_differences(scan, steps):
    given = [tensor.requires_grad_() for tensor in made_up(steps, rows=2, size=2)]
    assert torch.autograd.gradcheck(scan, given)


@pytest.mark.parametrize("decay", [1e-6, 1e-3, 0.5, 0.999, 1.0])
def test_in_float32_doubling_agrees_with_acting_over_many_steps(decay):
    """Sums of logarithms would not: over 256 steps they lose the last digits."""
    _, inputs, first = made_up(256, dtype=torch.float32)
    decays = torch.full_like(inputs, decay)
    scanned = mingru.scan_by_doubling(decays, inputs, first)
    torch.testing.assert_close(scanned, by_definition(decays, inputs, first), rtol=1e-5, atol=1e-5)


def test_units_start_with_memories_from_two_steps_to_many():
    core = MinGRU(ModelFlags(hidden_size=16), 6)
    _, state = core(torch.zeros(1, 1, 6), torch.ones(1, 16))
    assert (state.diff() > 0).all()
    torch.testing.assert_close(1 - state[0, [0, -1]], torch.tensor([1 / SHORTEST, 1 / LONGEST]))
