import math

import numpy as np
import pytest
import torch

from sample_factory.algo.cpc import contrastive_loss, draw_comparisons, usable_comparisons

T, B = 10, 4
CPU = torch.device("cpu")


def draw(seed=0, shape=(T, B), forward_steps=4, counts=(6, 3, 5)):
    return draw_comparisons(shape, forward_steps, counts, np.random.default_rng(seed), CPU)


def random_marks(seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.random((T, B)) < 0.85), torch.from_numpy(rng.random((T, B)) < 0.15)


def test_horizons_are_distinct_and_end_within_the_experience():
    start, end, wrong = draw(counts=(100, 3, 5))
    assert sorted(start[:, 0].tolist()) == list(range(T - 4 + 1))
    horizons = end - start
    assert horizons.min() >= 1 and horizons.max() == 4 and end.max() <= T
    assert all(len(set(row)) == 3 for row in horizons.tolist())
    assert wrong.shape == (7, 3, B, 5) and wrong.min() >= 0 and wrong.max() < (T + 1) * B


def test_every_horizon_is_drawn_when_there_are_no_more_than_asked_for():
    start, end, _ = draw(counts=(2, 99, 1))
    assert sorted((end - start)[0].tolist()) == [1, 2, 3, 4]


def test_experience_as_long_as_the_horizon_has_one_start():
    start, _, _ = draw(shape=(4, B), counts=(6, 2, 1))
    assert start.tolist() == [[0]]


@pytest.mark.parametrize("seed", range(5))
def test_only_consecutive_valid_steps_of_one_episode_are_compared(seed):
    """The definition, one comparison at a time."""
    valid, ended = random_marks(seed)
    comparisons = draw(seed)
    usable = usable_comparisons(comparisons, valid, ended)
    start, end, wrong = (tensor.tolist() for tensor in comparisons)

    def observation_is_valid(step, column):
        return step == T or bool(valid[step, column])

    for s, (first,) in enumerate(start):
        for k, last in enumerate(end[s]):
            for b in range(B):
                steps = range(first, last)
                right = all(valid[t, b] and not ended[t, b] for t in steps) and observation_is_valid(last, b)
                assert usable.right[s, k, b] == right
                for n, index in enumerate(wrong[s][k][b]):
                    other = index != last * B + b and observation_is_valid(*divmod(index, B))
                    assert usable.wrong[s, k, b, n] == (right and other)


def test_the_loss_of_guessing_is_2_log_2_and_of_knowing_is_0():
    usable = usable_comparisons(draw(), torch.ones(T, B, dtype=bool), torch.zeros(T, B, dtype=bool))
    right, wrong = torch.zeros(6, 3, B), torch.zeros(6, 3, B, 5)
    assert float(contrastive_loss(right, wrong, usable)) == pytest.approx(2 * math.log(2))
    assert float(contrastive_loss(right + 50, wrong - 50, usable)) == pytest.approx(0, abs=1e-6)


def test_the_loss_is_the_binary_cross_entropy_of_usable_comparisons_with_the_right_gradient():
    usable = usable_comparisons(draw(), *random_marks())
    generator = torch.Generator().manual_seed(0)
    right = torch.randn(6, 3, B, generator=generator, dtype=torch.float64, requires_grad=True)
    wrong = torch.randn(6, 3, B, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    loss = contrastive_loss(right, wrong, usable)
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
    picked = (right[usable.right], wrong[usable.wrong])
    expected = sum(cross_entropy(x, torch.full_like(x, 1.0 - i)) for i, x in enumerate(picked))
    torch.testing.assert_close(loss, expected)
    assert torch.autograd.gradcheck(lambda r, w: contrastive_loss(r, w, usable), (right, wrong))


def test_nothing_usable_is_no_loss_and_no_gradient():
    usable = usable_comparisons(draw(), torch.zeros(T, B, dtype=bool), torch.zeros(T, B, dtype=bool))
    right = torch.randn(6, 3, B, requires_grad=True)
    loss = contrastive_loss(right, torch.randn(6, 3, B, 5), usable)
    loss.backward()
    assert loss == 0 and (right.grad == 0).all()
