"""Compares steps of IMPACT with a slow and simple implementation: one sample at a time."""

import collections
import copy
import math
from dataclasses import replace

import pytest
import torch

from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.algorithms.impact import CircularBuffer, target_period
from tests.learning.algorithms.learners import B, T, make_batch, make_learner, same, state_of
from tests.learning.test_against_reference import Trajectory, reference_targets, reward_scale


def reference_loss(flags, model, target_model, batch):
    """Computes the loss of a minibatch sample by sample; updates the statistics of returns."""
    samples = []
    for b in range(B):
        trajectory = Trajectory(batch, b)
        outputs, of_target = trajectory.acted(model), trajectory.acted(target_model)
        actions = batch.actions[:, b]
        log_pi = [outputs[t][0].log_prob(actions[t]) for t in range(T)]
        log_target = [float(of_target[t][0].log_prob(actions[t])) for t in range(T)]
        log_mu = batch.log_probs[:, b].tolist()
        ratios = {t: math.exp(log_target[t] - log_mu[t]) if batch.own[t, b] else 1.0 for t in range(T)}
        values = [reward_scale(model, value) for _, value in outputs]
        targets = reference_targets(flags, trajectory, values, ratios)
        for t in range(T):
            if batch.own[t, b]:
                towards_target = min(math.exp(log_mu[t] - log_target[t]), flags.impact_rho)
                ratio = towards_target * (log_pi[t] - log_mu[t]).exp()
                samples.append((ratio.clamp(1 / 20, 20), outputs[t], *targets[t]))
    advantages = torch.tensor([sample[-1] for sample in samples])
    advantages = (advantages - advantages.mean()) / advantages.std(correction=0)
    returns = torch.tensor([sample[-2] for sample in samples])
    model.returns_normalizer.update(returns)
    returns = model.returns_normalizer.normalize(returns)
    e = flags.ppo_clip_ratio
    total = 0.0
    for (ratio, (distribution, value), _, _), advantage, target in zip(samples, advantages, returns):
        total = total - min(ratio * advantage, ratio.clamp(1 / (1 + e), 1 + e) * advantage)
        total = total + flags.value_loss_coeff * 0.5 * (value - target) ** 2
        total = total - flags.exploration_loss_coeff * distribution.entropy()
    return total / len(samples)


@pytest.mark.parametrize("actions", ["discrete", "tuple"])
def test_a_step_is_its_definition(actions):
    flags = {"impact_rho": 1.2, "vtrace_rho": 0.9, "ppo_clip_ratio": 0.2, "impact_uses": 1}
    learner = make_learner("IMPACT", actions, max_grad_norm=0.0, learning_rate=0.01, adam_eps=0.1, **flags)
    learner.train(make_batch(learner, 1))
    learner.train(make_batch(learner, 2))
    batch = make_batch(learner, 7)
    model = copy.deepcopy(learner.model)
    target = learner.algorithm.modules["target"]
    assert not torch.equal(next(target.parameters()), next(model.parameters())), "it lags behind"
    model.zero_grad()
    reference_loss(learner.flags, model, target, batch).backward()
    learner.train(batch)
    expected = dict(model.named_parameters())
    for name, parameter in learner.model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=1e-3, atol=1e-5, msg=name)
    statistics = learner.model.returns_normalizer, model.returns_normalizer
    torch.testing.assert_close(statistics[0].mean, statistics[1].mean)


def test_the_target_network_is_that_of_the_last_multiple_of_the_period():
    learner = make_learner("IMPACT", impact_uses=1, impact_target_period=3)
    networks = {}
    for version in range(1, 8):
        learner.train(make_batch(learner, version))
        state = state_of(learner)
        networks[version] = {name: value for name, value in state.items() if name.endswith("weight")}
        target = {name: value for name, value in networks[version].items() if name.startswith("target.")}
        as_target = {
            name.replace("model.", "target.", 1): value
            for name, value in networks.get(version // 3 * 3, {}).items()
            if name.startswith("model.")
        }
        assert same(target, as_target) == (version >= 3)


def test_without_a_period_the_target_network_is_updated_every_n_k_batches():
    flags = LearningFlags(impact_buffer_batches=16, impact_uses=20)
    assert target_period(LearningFlags()) == 8
    assert target_period(flags) == 320
    assert target_period(replace(flags, ppo_epochs=2, num_batches_per_iteration=3)) == 6 * 320
    assert target_period(replace(flags, impact_target_period=5)) == 5
    learner = make_learner("IMPACT", impact_buffer_batches=2, impact_uses=1)
    target = learner.algorithm.modules["target"]
    followed = []
    for seed in range(4):
        learner.train(make_batch(learner, seed))
        followed.append(torch.equal(next(target.parameters()), next(learner.model.parameters())))
    assert followed == [False, True, False, True]


def test_each_batch_is_trained_on_k_times_and_its_frames_are_counted_once():
    learner = make_learner("IMPACT", impact_buffer_batches=3, impact_uses=2, num_batches_per_iteration=2)
    versions = []
    for seed in range(5):
        batch = make_batch(learner, seed, masked=0.0)
        learner.train(batch)
        versions.append(learner.version)
        assert learner.env_frames == learner.samples == (seed + 1) * T * B
    assert versions == [2, 4, 8, 12, 16], "from the third on, the batch of two before, too"
    count = learner.model.observation_normalizers.normalizers[0].count
    assert float(count) == 1 + 5 * T * B, "the start counts as one"


def test_batches_of_the_former_weights_are_not_used_after_a_takeover():
    donor, receiver = (make_learner("IMPACT", impact_buffer_batches=2) for _ in range(2))
    receiver.train(make_batch(receiver, 1))
    receiver.take_over(donor.state_dict())
    before = state_of(receiver)
    batch = make_batch(receiver, 2)
    receiver.train(batch._replace(own=torch.zeros_like(batch.own)))
    assert same(state_of(receiver), before)


@pytest.mark.parametrize("num_uses", [1, 2, 3, 7])
@pytest.mark.parametrize("num_batches", [1, 2, 4, 5])
def test_each_batch_is_used_k_times_while_at_most_n_are_kept(num_batches, num_uses):
    buffer = CircularBuffer(num_batches, num_uses)
    uses = collections.defaultdict(list)
    for now in range(40):
        earlier = buffer.add(now)
        assert earlier == sorted(earlier), "the oldest one first"
        for batch in [*earlier, now]:
            uses[batch].append(now)
        assert len(buffer._batches) <= (num_batches if num_uses > 1 else 0)
    for batch in range(40 - num_batches):
        assert len(uses[batch]) == num_uses
        assert uses[batch][0] == batch
        assert uses[batch][-1] == batch + (num_batches - 1 if num_uses > 1 else 0)
