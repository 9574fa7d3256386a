import math

import numpy as np
import pytest
import torch

from sample_factory.algo.losses import truncated_log_ratios


@pytest.mark.parametrize("rho", [1.0, 2.0])
def test_the_ratio_is_its_definition_and_only_the_policy_has_a_gradient(rho):
    rng = np.random.default_rng(0)
    pi, target, mu = (torch.tensor(rng.uniform(0.02, 0.9, 50).astype(np.float32)) for _ in range(3))
    log_probs = pi.log().requires_grad_()
    ratios = truncated_log_ratios(log_probs, target.log(), mu.log(), rho).exp()
    ratios.sum().backward()
    for i in range(50):
        expected = min(float(mu[i] / target[i]), rho) * float(pi[i] / mu[i])
        assert float(ratios.detach()[i]) == pytest.approx(expected, rel=1e-4)
        assert float(log_probs.grad[i]) == pytest.approx(expected, rel=1e-4)


def test_with_the_target_network_as_the_acting_policy_it_is_the_ratio_of_ppo():
    log_probs, mu = torch.randn(9), torch.randn(9)
    torch.testing.assert_close(truncated_log_ratios(log_probs, mu, mu, 2.0), log_probs - mu)


@pytest.mark.parametrize("extreme", [math.inf, -math.inf])
def test_an_infinite_log_prob_of_the_acting_policy_gives_no_nan(extreme):
    ratio = truncated_log_ratios(torch.zeros(1), torch.zeros(1), torch.tensor([extreme]), 2.0)
    assert not ratio.isnan().any()
