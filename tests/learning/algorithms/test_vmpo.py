"""Compares steps of V-MPO with a slow and simple implementation: one sample at a time."""

import copy
import math
from dataclasses import replace

import pytest
import torch

from tests.learning.algorithms.learners import B, T, make_batch, make_learner, same, state_of
from tests.learning.test_against_reference import Trajectory, reference_targets, reward_scale


def gaussian_kls(old, new):
    """Returns KL by the means and by the covariance, from vectors and matrices, in float64."""
    means = [one.means.double() for one in (old, new)]
    matrices = [torch.diag((2 * one.log_stds.double()).exp()) for one in (old, new)]
    shift = means[1] - means[0]
    by_mean = 0.5 * shift @ torch.linalg.inv(matrices[0]) @ shift
    trace = torch.trace(torch.linalg.inv(matrices[1]) @ matrices[0])
    by_covariance = 0.5 * (trace - len(shift) + torch.logdet(matrices[1]) - torch.logdet(matrices[0]))
    return {"mean": by_mean, "covariance": by_covariance}


def kls_of(old, new, actions):
    if actions == "box":
        return gaussian_kls(old, new)
    tables = [(one.discrete if actions == "tuple" else one).log_probs.double() for one in (old, new)]
    components = list(zip(*tables))
    assert len(components) == (2 if actions == "tuple" else 1)
    kl = sum(float(p.exp()) * (p - q) for component in components for p, q in zip(*component))
    return {"discrete": kl, **(gaussian_kls(old.box, new.box) if actions == "tuple" else {})}


def reference_loss(flags, model, target_model, duals, batch, actions):
    """Computes the loss of a minibatch sample by sample. duals: name -> tensor that requires a gradient."""
    limits = {
        "discrete": flags.vmpo_policy_kl,
        "mean": flags.vmpo_mean_kl,
        "covariance": flags.vmpo_covariance_kl,
    }
    samples = []
    for b in range(B):
        trajectory = Trajectory(batch, b)
        outputs, of_target = trajectory.acted(model), trajectory.acted(target_model)
        values = [reward_scale(model, value) for _, value in outputs]
        targets = reference_targets(replace(flags, with_vtrace=False), trajectory, values, None)
        for t in range(T):
            if batch.own[t, b]:
                log_prob = outputs[t][0].log_prob(batch.actions[t, b])
                kls = kls_of(of_target[t][0], outputs[t][0], actions)
                samples.append((targets[t][1], targets[t][0], log_prob, outputs[t][1], kls))
    returns = torch.tensor([sample[1] for sample in samples])
    model.returns_normalizer.update(returns)
    returns = model.returns_normalizer.normalize(returns)
    std = float((model.returns_normalizer.variance + model.returns_normalizer.eps).sqrt())
    best = sorted(samples, key=lambda sample: sample[0], reverse=True)[: len(samples) // 2]
    eta = duals["temperature"]
    weights = [math.exp(sample[0] / std / float(eta.detach())) for sample in best]
    loss = -sum(weight * sample[2] for weight, sample in zip(weights, best)) / sum(weights)
    mean = sum(torch.exp(sample[0] / std / eta) for sample in best) / len(best)
    loss = loss + eta * flags.vmpo_temperature_kl + eta * mean.log()
    for sample, target in zip(samples, returns):
        loss = loss + flags.value_loss_coeff * 0.5 * (sample[3] - target) ** 2 / len(samples)
        for part, kl in sample[4].items():
            alpha = duals[part]
            loss = loss + (alpha * (limits[part] - kl.detach()) + alpha.detach() * kl) / len(samples)
    return loss


@pytest.mark.parametrize("actions", ["discrete", "box", "tuple"])
def test_a_step_is_its_definition(actions):
    learner = make_learner("VMPO", actions, max_grad_norm=0.0, learning_rate=0.02, gae_lambda=0.9)
    learner.train(make_batch(learner, 1))
    learner.train(make_batch(learner, 2))
    batch = make_batch(learner, 7)
    model = copy.deepcopy(learner.model)
    model.zero_grad()
    algorithm = learner.algorithm
    names = list(algorithm._duals.parameters_by_name)
    duals = {name: algorithm._duals.value(name).detach().clone().requires_grad_() for name in names}
    assert (
        duals.keys() - {"temperature"}
        == {
            "discrete": {"discrete"},
            "box": {"mean", "covariance"},
            "tuple": {"discrete", "mean", "covariance"},
        }[actions]
    )
    reference_loss(learner.flags, model, algorithm.modules["target"], duals, batch, actions).backward()
    learner.train(batch)
    expected = dict(model.named_parameters())
    for name, parameter in learner.model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=2e-3, atol=2e-5, msg=name)
    for name, parameter in algorithm._duals.parameters_by_name.items():
        # The parameter is the dual divided by DUAL_SPEED, 10.
        torch.testing.assert_close(parameter.grad, 10 * duals[name].grad, rtol=2e-3, atol=1e-4, msg=name)


def test_duals_move_faster_than_weights_and_stay_above_0():
    learner = make_learner("VMPO", "box", learning_rate=0.02, vmpo_target_period=1)
    learner.train(make_batch(learner, 1))
    assert abs(float(learner.algorithm._duals.value("mean").detach()) - 1.0) == pytest.approx(0.2, rel=0.02)
    for seed in range(2, 12):
        learner.train(make_batch(learner, seed))
        values = [
            float(learner.algorithm._duals.value(name).detach())
            for name in ("temperature", "mean", "covariance")
        ]
        assert min(values) > 0


def test_no_importance_weight_enters():
    one, other = (make_learner("VMPO", use_rnn=False) for _ in range(2))
    batch = make_batch(one, 1)
    one.train(batch)
    other.train(batch._replace(log_probs=batch.log_probs - 3.0))
    assert same(state_of(one), state_of(other))


def test_the_policy_stays_within_its_trust_region():
    """A multiplier keeps the divergence of fast steps near its limit; one of 0 does not."""
    divergences = []
    flags = {"use_rnn": False, "learning_rate": 0.02, "vmpo_target_period": 10**6}
    for limit in (0.02, 1e6):
        learner = make_learner("VMPO", vmpo_policy_kl=limit, **flags)
        if limit > 1.0:
            learner.algorithm._duals.parameters_by_name["discrete"].data.zero_()
        for seed in range(12):
            batch = make_batch(learner, seed, masked=0.0)
            rewards = (batch.actions[..., 0] == 2).float()
            summaries = learner.train(batch._replace(rewards=rewards), want_summaries=True)
        divergences.append(summaries["discrete_target_kl"])
    assert divergences[0] < 0.5 * divergences[1]
