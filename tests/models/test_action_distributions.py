import math

import gymnasium as gym
import pytest
import torch
from torch.distributions import Categorical, Normal, kl_divergence

from sample_factory.models.action_distributions import action_distribution, mask_logits
from sample_factory.spaces.actions import action_layout

S = gym.spaces
DISCRETE = S.Discrete(4, start=7)
MULTI = S.MultiDiscrete([3, 2, 5])
EQUAL = S.MultiDiscrete([3, 3])
BOX = S.Box(-1, 1, (3,))
MIXED = S.Tuple([S.Discrete(3), S.Box(-1, 1, (2,)), S.MultiDiscrete([2, 4]), S.Box(-1, 1, (1,))])
BOXES = S.Tuple([S.Box(-1, 1, (2,)), S.Box(-1, 1, (1,))])
NESTED = S.Tuple([S.Discrete(2), S.Tuple([S.Discrete(5), S.Discrete(1)])])
SPACES = {
    "discrete": DISCRETE,
    "multi": MULTI,
    "equal": EQUAL,
    "box": BOX,
    "mixed": MIXED,
    "boxes": BOXES,
    "nested": NESTED,
}
# Components of each space: an int for a Discrete, a float for a Box of that many dimensions.
PARTS = {
    "discrete": [4],
    "multi": [3, 2, 5],
    "equal": [3, 3],
    "box": [3.0],
    "mixed": [3, 2.0, 2, 4, 1.0],
    "boxes": [2.0, 1.0],
    "nested": [2, 5, 1],
}
DISCRETE_ONLY = ["discrete", "multi", "equal", "nested"]


def distribution_over(space, logits, action_mask=None):
    layout = action_layout(space)
    return action_distribution(
        layout, logits if action_mask is None else mask_logits(layout, logits, action_mask)
    )


def reference(name, logits):
    """Returns torch's distribution of every component, in order."""
    parts = []
    start = 0
    for part in PARTS[name]:
        size = int(part)
        if isinstance(part, float):
            means = logits[..., start : start + size]
            log_stds = logits[..., start + size : start + 2 * size]
            parts.append(Normal(means, log_stds.exp()))
            start += 2 * size
        else:
            parts.append(Categorical(logits=logits[..., start : start + size]))
            start += size
    return parts


def summed(name, tensors):
    return sum(t.sum(-1) if isinstance(part, float) else t for part, t in zip(PARTS[name], tensors))


def split_actions(name, actions):
    parts = []
    start = 0
    for part in PARTS[name]:
        size = int(part) if isinstance(part, float) else 1
        columns = actions[..., start : start + size]
        parts.append(columns if isinstance(part, float) else columns.squeeze(-1))
        start += size
    return parts


def random_logits(name, *batch, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*batch, action_layout(SPACES[name]).num_logits, generator=generator)


@pytest.mark.parametrize("batch", [(), (6,), (4, 6)])
@pytest.mark.parametrize("name", SPACES)
def test_quantities_are_sums_over_independent_parts(name, batch):
    logits = random_logits(name, *batch)
    other_logits = random_logits(name, *batch, seed=1)
    ours = distribution_over(SPACES[name], logits)
    other = distribution_over(SPACES[name], other_logits)
    theirs = reference(name, logits)
    theirs_other = reference(name, other_logits)
    actions = ours.sample()
    assert actions.shape == (*batch, action_layout(SPACES[name]).num_action_values)
    assert actions.dtype == torch.float32
    log_probs = [part.log_prob(a) for part, a in zip(theirs, split_actions(name, actions))]
    torch.testing.assert_close(ours.log_prob(actions), summed(name, log_probs))
    torch.testing.assert_close(ours.entropy(), summed(name, [part.entropy() for part in theirs]))
    kls = [kl_divergence(a, b) for a, b in zip(theirs, theirs_other)]
    torch.testing.assert_close(ours.kl(other), summed(name, kls), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", DISCRETE_ONLY)
def test_symmetric_kl_with_uniform(name):
    logits = random_logits(name, 6)
    expected = 0
    for part in reference(name, logits):
        uniform = Categorical(logits=torch.zeros_like(part.logits))
        expected = expected + 0.5 * (kl_divergence(part, uniform) + kl_divergence(uniform, part))
    ours = distribution_over(SPACES[name], logits).symmetric_kl_with_uniform()
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["box", "mixed"])
def test_nothing_is_uniform_over_the_real_line(name):
    with pytest.raises(ValueError, match="entropy"):
        distribution_over(SPACES[name], random_logits(name, 2)).symmetric_kl_with_uniform()


@pytest.mark.parametrize("name", SPACES)
def test_mode_is_the_most_likely_action(name):
    distribution = distribution_over(SPACES[name], random_logits(name, 5))
    best = distribution.log_prob(distribution.mode())
    for _ in range(50):
        assert (distribution.log_prob(distribution.sample()) <= best + 1e-6).all()


def test_samples_have_the_probabilities_of_the_distribution():
    torch.manual_seed(0)
    logits = random_logits("multi", 1)
    samples = distribution_over(MULTI, logits.expand(40_000, -1)).sample()
    for column, part in enumerate(reference("multi", logits)):
        frequencies = torch.bincount(samples[:, column].long()) / len(samples)
        torch.testing.assert_close(frequencies, part.probs[0], rtol=0, atol=0.01)


def test_gaussian_samples_have_mean_and_deviation():
    torch.manual_seed(0)
    logits = torch.tensor([3.0, math.log(0.5)])
    samples = distribution_over(S.Box(-1, 1, (1,)), logits.expand(40_000, -1)).sample()
    assert float(samples.mean()) == pytest.approx(3.0, abs=0.02)
    assert float(samples.std()) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("log_std", [-1e6, 1e6, -float("inf")])
def test_deviations_stay_within_bounds(log_std):
    distribution = distribution_over(S.Box(-1, 1, (1,)), torch.tensor([[0.0, log_std]]))
    deviation = distribution.log_stds.exp().item()
    assert 0.99e-4 <= deviation <= 1.01e4
    assert torch.isfinite(distribution.log_prob(distribution.sample())).all()


def masked(space, logits, mask):
    return distribution_over(space, logits, torch.tensor(mask, dtype=torch.uint8))


def test_forbidden_choices_are_never_taken():
    torch.manual_seed(0)
    logits = torch.tensor([[50.0, 0, 0, 0, 9, 0, 0, 0, 0, 0]])
    mask = [[0, 1, 1, 1, 0, 0, 1, 0, 1, 0]]
    distribution = masked(MULTI, logits, mask)
    samples = masked(MULTI, logits.expand(20_000, -1), mask * 20_000).sample()
    assert [set(column.tolist()) for column in samples.T] == [{1, 2}, {0}, {1, 3}]
    assert distribution.mode()[0].tolist() == [1, 0, 1]
    assert float(distribution.log_prob(torch.tensor([[0.0, 0, 1]])).exp()) == 0
    assert float(distribution.entropy()) == pytest.approx(2 * math.log(2))
    assert float(distribution.symmetric_kl_with_uniform()) == pytest.approx(0, abs=1e-6)


def test_mask_of_a_mixed_space_covers_the_discrete_logits():
    logits = torch.zeros(1, 15)
    distribution = masked(MIXED, logits, [[0, 1, 0, 1, 0, 0, 0, 1, 0]])
    mode = distribution.mode()[0]
    assert mode[[0, 3, 4]].tolist() == [1, 0, 2]
    assert float(distribution.discrete.entropy()) == pytest.approx(0)


def test_a_mask_makes_no_nan_and_no_gradient_for_what_it_forbids():
    logits = torch.randn(4, 10, requires_grad=True)
    mask = [[1, 1, 0, 1, 0, 1, 1, 0, 0, 0]] * 4
    distribution = masked(MULTI, logits, mask)
    other = masked(MULTI, logits.detach() + 1, mask)
    actions = distribution.sample()
    loss = distribution.log_prob(actions) + distribution.entropy() + distribution.kl(other)
    (loss + distribution.symmetric_kl_with_uniform()).sum().backward()
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[:, torch.tensor(mask[0]) == 0] == 0).all()


def test_masked_ratio_is_exactly_1_on_policy():
    logits = torch.randn(64, 10)
    mask = [[1, 1, 0, 1, 0, 1, 1, 0, 0, 0]] * 64
    behavior = masked(MULTI, logits, mask)
    actions = behavior.sample()
    ratio = (masked(MULTI, logits.clone(), mask).log_prob(actions) - behavior.log_prob(actions)).exp()
    assert (ratio == 1).all()


def test_a_mask_that_forbids_everything_is_uniform():
    distribution = masked(MULTI, torch.randn(1, 10), [[0] * 10])
    assert float(distribution.entropy()) == pytest.approx(math.log(3 * 2 * 5))


def test_extreme_logits_make_no_nan():
    logits = torch.tensor([[1e5, -1e5, 0.0, 0.0]], requires_grad=True)
    distribution = distribution_over(DISCRETE, logits)
    (distribution.entropy() + distribution.symmetric_kl_with_uniform()).sum().backward()
    assert torch.isfinite(logits.grad).all() and distribution.sample().item() == 0


def test_a_distribution_made_in_inference_mode_does_not_spoil_training():
    space = S.MultiDiscrete([2, 3, 4, 6])  # used in no other test, since column indices are cached
    with torch.inference_mode():
        distribution_over(space, torch.zeros(2, 15)).sample()
    logits = torch.zeros(2, 15, requires_grad=True)
    distribution_over(space, logits).entropy().sum().backward()
    assert logits.grad is not None
