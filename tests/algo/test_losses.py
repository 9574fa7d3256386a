import math

import pytest
import torch

from sample_factory.algo.losses import (
    masked_mean,
    normalize_advantages,
    policy_loss,
    truncated_log_ratios,
    value_loss,
)


def losses_of(inputs, valid):
    """Every loss of this package, each with the tensor that receives its gradient."""
    log_ratios, advantages, values, old_values, targets = inputs
    return {
        "policy": (policy_loss(log_ratios, advantages, 0.1, valid), log_ratios),
        "value": (value_loss(values, old_values, targets, 0.2, valid), values),
    }


def random_inputs(num_rows=12, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(num_rows, generator=generator, dtype=dtype) * 0.3 for _ in range(5)]
    for learned in (0, 2):
        rows[learned].requires_grad_()
    return rows


LOSSES = ["policy", "value"]


@pytest.mark.parametrize("name", LOSSES)
def test_a_masked_row_equals_a_missing_row(name):
    valid = torch.tensor([True, False, True] * 4)
    with_mask, learned = losses_of(random_inputs(), valid)[name]
    with_mask.backward()
    inputs = [tensor.detach()[valid].requires_grad_(tensor.requires_grad) for tensor in random_inputs()]
    without, learned_alone = losses_of(inputs, torch.ones(8, dtype=torch.bool))[name]
    without.backward()
    torch.testing.assert_close(with_mask, without)
    torch.testing.assert_close(learned.grad[valid], learned_alone.grad)
    assert (learned.grad[~valid] == 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_no_valid_row_means_no_loss_and_no_gradient(name):
    loss, learned = losses_of(random_inputs(), torch.zeros(12, dtype=torch.bool))[name]
    loss.backward()
    assert loss == 0 and (learned.grad == 0).all()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), -float("inf")])
def test_garbage_in_a_masked_row_reaches_neither_loss_nor_gradient(name, garbage):
    valid = torch.tensor([True, False, True] * 4)
    clean, _ = losses_of(random_inputs(), valid)[name]
    inputs = random_inputs()
    with torch.no_grad():
        for tensor in inputs[:5]:
            tensor[~valid] = garbage
    loss, learned = losses_of(inputs, valid)[name]
    loss.backward()
    torch.testing.assert_close(loss, clean)
    assert torch.isfinite(learned.grad).all() and (learned.grad[~valid] == 0).all()


def test_policy_loss_clips_to_one_over_one_plus_e_and_one_plus_e():
    valid = torch.ones(1, dtype=torch.bool)

    def loss(ratio, advantage):
        return float(policy_loss(torch.tensor([math.log(ratio)]), torch.tensor([advantage]), 0.25, valid))

    assert loss(1.1, 1.0) == pytest.approx(-1.1)
    assert loss(3.0, 1.0) == pytest.approx(-1.25)  # further up there is no gain
    assert loss(0.5, -1.0) == pytest.approx(0.8)  # nor is there further down
    assert loss(3.0, -1.0) == pytest.approx(3.0)  # moving back towards 1 does pay
    assert loss(0.5, 1.0) == pytest.approx(-0.5)


@pytest.mark.parametrize("extreme", [float("inf"), -float("inf"), 1e8, -1e8])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_an_extreme_ratio_is_clamped_and_has_no_gradient(extreme, advantage):
    log_ratios = torch.tensor([extreme, 0.0], requires_grad=True)
    loss = policy_loss(log_ratios, torch.tensor([advantage, 1.0]), 0.1, torch.ones(2, dtype=torch.bool))
    loss.backward()
    assert torch.isfinite(loss) and loss.abs() <= 20
    assert log_ratios.grad.tolist() == [0.0, -0.5]


@pytest.mark.parametrize("extreme", [math.inf, -math.inf])
def test_an_infinite_log_prob_of_the_acting_policy_gives_no_nan(extreme):
    ratio = truncated_log_ratios(torch.zeros(1), torch.zeros(1), torch.tensor([extreme]), 2.0)
    assert not ratio.isnan().any()


def test_value_loss_takes_the_worse_of_both_errors():
    valid = torch.ones(1, dtype=torch.bool)

    def loss(value, old_value, target):
        return float(value_loss(*(torch.tensor([x]) for x in (value, old_value, target)), 1.0, valid))

    assert loss(0.5, 0.0, 2.0) == pytest.approx(1.5**2)  # a small change counts in full, without a factor 1/2
    assert loss(2.0, 0.0, 2.0) == pytest.approx(1.0)  # too far at once: as if it had stopped at 1
    assert loss(-3.0, 0.0, 2.0) == pytest.approx(25.0)


def test_masked_mean_of_nothing_is_0():
    assert masked_mean(torch.tensor([float("nan")]), torch.tensor([False])) == 0


def test_advantages_are_normalised_over_valid_rows_only():
    advantages = torch.tensor([1.0, 3.0, float("nan"), 5.0])
    valid = torch.tensor([True, True, False, True])
    normalized = normalize_advantages(advantages, valid)
    torch.testing.assert_close(normalized, torch.tensor([-1.0, 0.0, 0.0, 1.0]) * 1.5**0.5)


@pytest.mark.parametrize("advantages", [[100.0, 100.0], [100.0, 100.00001], [7.0]])
def test_equal_advantages_are_not_blown_up(advantages):
    advantages = torch.tensor(advantages)
    normalized = normalize_advantages(advantages, torch.ones(len(advantages), dtype=torch.bool))
    assert normalized.abs().max() < 0.02


def test_no_valid_advantage_gives_zeros():
    assert (normalize_advantages(torch.randn(3), torch.zeros(3, dtype=torch.bool)) == 0).all()
