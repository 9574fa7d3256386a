"""Each formula of V-MPO against a loop over the samples in float64."""

import math

import numpy as np
import pytest
import torch

from sample_factory.algo.vmpo import (
    sample_weights,
    temperature_loss,
    top_half,
    trust_region_loss,
    weighted_policy_loss,
)

SHAPE = (4, 5)


def random_samples(seed, scale=1.0, masked=0.3):
    rng = np.random.default_rng(seed)
    advantages = torch.tensor(rng.normal(scale=scale, size=SHAPE).astype(np.float32))
    return advantages, torch.tensor(rng.random(SHAPE) >= masked)


def top_half_by_definition(advantages, valid):
    """Returns the places [t, b] of the best half of the valid samples."""
    places = [(t, b) for t in range(SHAPE[0]) for b in range(SHAPE[1]) if valid[t, b]]
    best = sorted(places, key=lambda place: float(advantages[place]), reverse=True)
    return best[: max(min(1, len(best)), len(best) // 2)]


@pytest.mark.parametrize("masked", [0.0, 0.3, 0.97, 1.1])
@pytest.mark.parametrize("seed", range(3))
def test_the_top_half_is_the_better_half_of_the_valid_samples(seed, masked):
    advantages, valid = random_samples(seed, masked=masked)
    top = top_half(advantages, valid)
    assert {tuple(place) for place in top.nonzero().tolist()} == set(
        top_half_by_definition(advantages, valid)
    )


def test_of_equal_advantages_half_is_chosen():
    assert top_half(torch.zeros(SHAPE), torch.ones(SHAPE, dtype=torch.bool)).sum() == 10


@pytest.mark.parametrize(("temperature", "scale"), [(1.0, 1.0), (0.1, 1.0), (0.01, 50.0), (30.0, 1.0)])
def test_weights_and_temperature_loss_are_their_definitions(temperature, scale):
    advantages, valid = random_samples(5, scale)
    places = top_half_by_definition(advantages, valid)
    top = top_half(advantages, valid)
    log_probs = torch.randn(SHAPE, requires_grad=True)
    eta = torch.tensor(temperature, requires_grad=True)
    # Shifted by the largest one, which cancels out.
    scaled = {place: float(advantages[place]) / temperature for place in places}
    largest = max(scaled.values())
    total = sum(math.exp(value - largest) for value in scaled.values())
    psi = {place: math.exp(value - largest) / total for place, value in scaled.items()}
    weights = sample_weights(advantages, eta, top)
    for place in np.ndindex(*SHAPE):
        assert float(weights[place]) == pytest.approx(psi.get(place, 0.0), rel=1e-3, abs=1e-7)
    loss = weighted_policy_loss(log_probs, weights)
    expected = -sum(weight * float(log_probs.detach()[place]) for place, weight in psi.items())
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-3)
    dual = temperature_loss(advantages, eta, 0.02, top)
    expected = temperature * (0.02 + largest + math.log(total / len(places)))
    assert float(dual.detach()) == pytest.approx(expected, rel=1e-4)
    # d/d eta = epsilon - KL(psi || uniform over the top half)
    dual.backward()
    kl = sum(weight * math.log(weight * len(places)) for weight in psi.values() if weight > 0)
    assert float(eta.grad) == pytest.approx(0.02 - kl, rel=1e-2, abs=1e-3)


def test_descent_on_the_temperature_reaches_the_divergence_that_is_asked_for():
    advantages, valid = random_samples(1, masked=0.0)
    top = top_half(advantages, valid)
    eta = torch.tensor(1.0, requires_grad=True)
    optimizer = torch.optim.Adam([eta], lr=0.03)
    for _ in range(120):
        optimizer.zero_grad()
        temperature_loss(advantages, eta, 0.1, top).backward()
        optimizer.step()
    weights = sample_weights(advantages, eta, top)[top]
    assert float((weights * (weights * len(weights)).log()).sum()) == pytest.approx(0.1, abs=0.02)


def test_without_a_valid_sample_every_loss_and_gradient_is_0_even_of_nan():
    advantages, _ = random_samples(3)
    nothing = torch.zeros(SHAPE, dtype=torch.bool)
    inputs = [torch.rand((), requires_grad=True), torch.full(SHAPE, torch.nan, requires_grad=True)]
    dual, tensor = inputs
    top = top_half(advantages, nothing)
    losses = [
        weighted_policy_loss(tensor, sample_weights(advantages, dual, top)),
        temperature_loss(advantages, dual, 0.1, top),
        trust_region_loss(tensor, dual, 0.1, nothing),
    ]
    sum(losses).backward()
    assert [float(loss.detach()) for loss in losses] == [0.0, 0.0, 0.0]
    assert all(not one.grad.any() for one in inputs)
