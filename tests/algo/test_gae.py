import numpy as np
import pytest

from sample_factory.algo.advantages import gae
from tests.algo.trajectories import random_steps


def advantages_by_definition(steps, lam):
    """Evaluates eq. (16) of the paper for every step: discounted TD errors up to the episode's end."""
    values, next_values, rewards, discounts, continues = (tensor.double().numpy() for tensor in steps)
    num_steps, batch = values.shape
    advantages = np.zeros((num_steps, batch))
    for s in range(num_steps):
        for b in range(batch):
            weight = 1.0
            for t in range(s, num_steps):
                delta = rewards[t, b] + discounts[t, b] * next_values[t, b] - values[t, b]
                advantages[s, b] += weight * delta
                if not continues[t, b]:
                    break
                weight *= discounts[t, b] * lam
    return advantages


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_gae_is_its_definition(lam, seed):
    steps = random_steps(np.random.default_rng(seed))
    advantages, targets = gae(*steps, lam=lam)
    expected = advantages_by_definition(steps, lam)
    np.testing.assert_allclose(advantages, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(targets, expected + steps.values.numpy(), rtol=1e-5, atol=1e-5)
