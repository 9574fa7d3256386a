import numpy as np
import pytest
import torch

from sample_factory.algo.advantages import discounted_sums, gae
from tests.algo.trajectories import Steps, random_steps


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


def test_lambda_0_is_the_one_step_error():
    steps = random_steps(np.random.default_rng(0))
    _, targets = gae(*steps, lam=0.0)
    torch.testing.assert_close(targets, steps.rewards + steps.discounts * steps.next_values)


def test_lambda_1_targets_are_discounted_returns():
    rng = np.random.default_rng(0)
    steps = random_steps(rng, num_steps=4, batch=1, gamma=0.5, end_chance=0.0, cut_chance=0.0)
    rewards, bootstrap = steps.rewards[:, 0], steps.next_values[-1, 0]
    discounted = sum(0.5**t * rewards[t] for t in range(4)) + 0.5**4 * bootstrap
    torch.testing.assert_close(gae(*steps, lam=1.0)[1][0, 0], discounted)


def test_an_episode_end_inside_equals_two_separate_trajectories():
    steps = random_steps(np.random.default_rng(0), num_steps=12, end_chance=0.0, cut_chance=0.0)
    steps.continues[4] = 0
    whole, _ = gae(*steps, lam=0.95)
    for part in (slice(0, 5), slice(5, 12)):
        alone, _ = gae(*Steps(*(tensor[part] for tensor in steps)), lam=0.95)
        torch.testing.assert_close(whole[part], alone)


def test_discounted_sums_by_hand():
    terms, decays = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[0.5], [0.1], [9.0]])
    torch.testing.assert_close(discounted_sums(terms, decays), torch.tensor([[2.15], [2.3], [3.0]]))
