"""With --scale_actions, a network's outputs of -1 and 1 stand for the bounds of a Box."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sample_factory.checkpoints.file_format import check_fits
from sample_factory.config.sections import ModelFlags
from sample_factory.models.action_distributions import box_values
from sample_factory.models.towers import make_actor_critic

OBSERVATIONS = spaces.Dict(obs=spaces.Box(-1, 1, (3,), np.float32))
LOW, HIGH = np.float32([0, -30]), np.float32([1000, 10])
CENTERS, HALF_RANGES = torch.tensor([500.0, -10.0]), torch.tensor([500.0, 20.0])


def network(space, scales, **flags):
    torch.manual_seed(0)
    flags = ModelFlags(scale_actions=scales, use_rnn=False, encoder_mlp_layers=(8,), **flags)
    return make_actor_critic(flags, OBSERVATIONS, space)


def distribution_of(model):
    torch.manual_seed(1)
    unrolled = model.unroll({"obs": torch.randn(1, 40, 3)}, torch.zeros(40, 0))
    return model.distribution(unrolled.logits[0])


@pytest.mark.parametrize("flags", [{}, {"adaptive_stddev": False}, {"continuous_tanh_scale": 1.0}], ids=str)
@pytest.mark.parametrize("place", ["alone", "beside a choice"])
def test_a_policy_is_the_one_for_bounds_of_one_in_other_units(flags, place):
    one, own = spaces.Box(-1, 1, (2,)), spaces.Box(LOW, HIGH)
    if place != "alone":
        one, own = (spaces.Dict(a=spaces.Discrete(3), b=box) for box in (one, own))
    plain, scaled = network(one, False, **flags), network(own, True, **flags)
    first, second = distribution_of(plain), distribution_of(scaled)
    torch.manual_seed(2)
    actions = first.sample()
    torch.manual_seed(2)
    scaled_actions = second.sample()
    boxes = list(plain.layout.box_actions)
    torch.testing.assert_close(
        scaled_actions[:, boxes], CENTERS + HALF_RANGES * actions[:, boxes], atol=1e-2, rtol=1e-4
    )
    torch.testing.assert_close(
        box_values(scaled.layout, scaled_actions), actions[:, boxes], atol=1e-4, rtol=1e-4
    )
    units = float(HALF_RANGES.log().sum())
    torch.testing.assert_close(
        second.log_prob(scaled_actions), first.log_prob(actions) - units, atol=1e-4, rtol=1e-4
    )
    torch.testing.assert_close(second.entropy(), first.entropy() + units, atol=1e-4, rtol=1e-4)


def test_numbers_without_a_bound_stay_as_they_are():
    space = spaces.Box(np.float32([-np.inf, 0]), np.float32([1, 1000]))
    first, second = (distribution_of(network(space, scales)) for scales in (False, True))
    torch.testing.assert_close(
        second.means, torch.stack([first.means[:, 0], 500 + 500 * first.means[:, 1]], 1)
    )


@pytest.mark.parametrize("high", [1e-6, 1e9])
def test_the_limits_of_deviations_follow_the_bounds(high):
    model = network(spaces.Box(0, high, (1,)), True)
    for log_std, expected in ((0.0, 1.0), (-1e6, 1e-4), (1e6, 1e4)):
        logits = torch.tensor([[0.0, log_std + math.log(high / 2)]])
        deviation = model.distribution(logits).log_stds.exp().item()
        assert deviation == pytest.approx(expected * high / 2, rel=1e-3)


def test_weights_for_scaled_actions_fit_no_network_without():
    space = spaces.Box(LOW, HIGH)
    plain, scaled = (network(space, scales) for scales in (False, True))
    for saved, own in ((plain, scaled), (scaled, plain)):
        with pytest.raises(ValueError, match="scale_actions is"):
            check_fits(saved.state_dict(), own)


def test_weights_keep_the_bounds_that_they_were_trained_with():
    trained, other = network(spaces.Box(LOW, HIGH), True), network(spaces.Box(2 * LOW, 2 * HIGH), True)
    other.load_state_dict(trained.state_dict())
    torch.testing.assert_close(distribution_of(other).means, distribution_of(trained).means)


def test_bounds_of_minus_one_and_one_need_no_scale():
    model = network(spaces.Box(-1, 1, (2,)), True)
    assert model.state_dict().keys() == network(spaces.Box(-1, 1, (2,)), False).state_dict().keys()
