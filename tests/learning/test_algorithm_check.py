"""A user's algorithm is made and called with a made-up batch before training starts."""

import gymnasium as gym
import numpy as np
import pytest

from sample_factory.config.algorithms import BUILT_IN
from sample_factory.config.flags import ConfigError
from sample_factory.config.sections import LearningFlags, ModelFlags
from sample_factory.learning.algorithm_check import AlgorithmError, probe_algorithm
from sample_factory.learning.algorithms.ppo import PPO
from sample_factory.models.policy_spec import PolicySpec
from tests.system.own_algorithm import Tempered

SPACE = gym.spaces.Dict({"obs": gym.spaces.Box(-5, 5, (4,), np.float32)})
LEARNING = LearningFlags(rollout=8, batch_size=64)

FACTORIES = [info.factory for info in BUILT_IN.values()]


def probe(factory, **flags):
    model = ModelFlags(hidden_size=8, encoder_mlp_layers=(8,), **flags)
    probe_algorithm(
        "MINE", factory, PolicySpec(model, SPACE, gym.spaces.Discrete(3), True, "cpu", "fp32"), LEARNING
    )


class WithoutLoss:
    modules: dict = {}
    fixes_targets = False

    def __init__(self, *_):
        pass

    def set_flags(self, flags): ...
    def earlier_batches(self, batch): ...
    def targets(self, batch, evaluation): ...
    def after_step(self, version): ...
    def summaries(self, step): ...


class ReturnsDict(PPO):
    def losses(self, minibatch, evaluation, targets):
        return dict(super().losses(minibatch, evaluation, targets).terms)


class WithoutPolicyLoss(PPO):
    def losses(self, minibatch, evaluation, targets):
        losses = super().losses(minibatch, evaluation, targets)
        return losses._replace(terms={"value": losses.terms["value"]})


class LossPerStep(PPO):
    def losses(self, minibatch, evaluation, targets):
        losses = super().losses(minibatch, evaluation, targets)
        return losses._replace(terms={"policy": evaluation.log_ratios})


class WithoutGradient(PPO):
    def losses(self, minibatch, evaluation, targets):
        losses = super().losses(minibatch, evaluation, targets)
        return losses._replace(terms={"policy": losses.terms["policy"].detach()})


class Raises(PPO):
    def targets(self, batch, evaluation):
        return self.nothing


class OneEarlierBatch(PPO):
    def earlier_batches(self, batch):
        return {"batch": batch}


class AdvantagesOnly(PPO):
    def targets(self, batch, evaluation):
        return super().targets(batch, evaluation).advantages


@pytest.mark.parametrize("factory", [*FACTORIES, Tempered])
def test_an_algorithm_passes(factory):
    probe(factory)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (WithoutLoss, "MINE: WithoutLoss has no losses; it should have the methods of Algorithm in .*summ"),
        (ReturnsDict, "losses returned a dict of policy, value.*; it should be Losses"),
        (WithoutPolicyLoss, 'losses returned a dict of value; it should be .* "policy" among them'),
        (LossPerStep, "losses returned a dict of policy; it should be .* scalar tensors"),
        (WithoutGradient, "losses have no gradient"),
        (OneEarlierBatch, "earlier_batches returned a dict of batch; it should be a list of batches"),
        (Raises, "algorithm MINE: targets raised AttributeError: 'Raises' object has no attribute 'nothing'"),
        (AdvantagesOnly, r"targets returned a Tensor; it should be Targets with .* of shape \[T, B\]"),
        (lambda flags: PPO, "its factory raised TypeError"),
    ],
)
def test_an_algorithm_of_the_wrong_kind_is_an_error_of_one_line_that_says_what_it_should_give(
    factory, message
):
    with pytest.raises(AlgorithmError, match=message) as error:
        probe(factory)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("json:VTrace", "--algo=MINE: json has no attribute VTrace"),
        ("none:VTrace", "--algo=MINE: No module named 'none'"),
        ("json:__name__", "--algo=MINE is a str; it should be a class"),
    ],
)
def test_a_path_that_leads_to_no_class_is_refused(path, message):
    with pytest.raises(ConfigError, match=message):
        probe(path)
