import numpy as np
import pytest
import torch

from sample_factory.algo.advantages import gae, vtrace
from tests.algo.trajectories import random_steps


def vtrace_by_definition(log_ratios, steps, rho_clip, c_clip, lam):
    """Evaluates eq. (1) of the paper for every step: a sum over products, up to the episode's end."""
    values, next_values, rewards, discounts, continues = (tensor.double().numpy() for tensor in steps)
    ratios = np.exp(log_ratios.double().numpy())
    rhos = np.minimum(ratios, rho_clip)
    cs = lam * np.minimum(ratios, c_clip)
    num_steps, batch = values.shape
    targets = values.copy()
    for s in range(num_steps):
        for b in range(batch):
            product = 1.0
            for t in range(s, num_steps):
                delta = rhos[t, b] * (rewards[t, b] + discounts[t, b] * next_values[t, b] - values[t, b])
                targets[s, b] += product * delta
                if not continues[t, b]:
                    break
                product *= discounts[t, b] * cs[t, b]
    v_tp1 = next_values.copy()
    v_tp1[:-1] = np.where(continues[:-1] > 0, targets[1:], next_values[:-1])
    return rhos * (rewards + discounts * v_tp1 - values), targets


def random_log_ratios(rng, steps):
    return torch.tensor(rng.normal(scale=0.7, size=steps.values.shape), dtype=torch.float32)


@pytest.mark.parametrize(("rho_clip", "c_clip"), [(1.0, 1.0), (1.5, 0.8), (0.3, 2.0), (100.0, 100.0)])
@pytest.mark.parametrize("lam", [1.0, 0.7])
@pytest.mark.parametrize(("seed", "num_steps"), [(0, 17), (1, 17), (2, 1)])
def test_vtrace_is_its_definition(rho_clip, c_clip, lam, seed, num_steps):
    rng = np.random.default_rng(seed)
    steps = random_steps(rng, num_steps, gamma=0.8)
    log_ratios = random_log_ratios(rng, steps)
    result = vtrace(log_ratios, *steps, rho_clip=rho_clip, c_clip=c_clip, lam=lam)
    for ours, expected in zip(result, vtrace_by_definition(log_ratios, steps, rho_clip, c_clip, lam)):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lam", [0.0, 0.6, 1.0])
def test_on_policy_vtrace_has_the_targets_of_gae_with_the_same_lambda(lam):
    steps = random_steps(np.random.default_rng(0))
    _, targets = vtrace(torch.zeros_like(steps.values), *steps, lam=lam)
    torch.testing.assert_close(targets, gae(*steps, lam=lam)[1], rtol=1e-5, atol=1e-5)


def test_infinite_log_ratios_stay_finite():
    steps = random_steps(np.random.default_rng(0))
    for extreme in (float("inf"), -float("inf")):
        result = vtrace(torch.full_like(steps.values, extreme), *steps)
        assert all(tensor.isfinite().all() for tensor in result)


def test_no_gradient_flows():
    steps = random_steps(np.random.default_rng(0))
    log_ratios = torch.zeros_like(steps.values, requires_grad=True)
    result = vtrace(log_ratios, steps.values.requires_grad_(), *steps[1:])
    assert not any(tensor.requires_grad for tensor in result)
