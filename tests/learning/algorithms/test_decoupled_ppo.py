"""Decoupled PPO: weights, the policy that the clip range is around, and equality with PPO on fresh data.

tests/learning/test_against_reference.py compares whole iterations of it with slow loops.
"""

import numpy as np
import pytest
import torch

from sample_factory.algo.losses import decouple, policy_loss
from sample_factory.learning.algorithms.algorithm import evaluate
from sample_factory.learning.algorithms.ppo import PROXIMAL
from tests.learning.algorithms.learners import make_batch, make_learner, same, state_of

SEVERAL_STEPS = {"num_batches_per_iteration": 2, "ppo_epochs": 3}


@pytest.mark.parametrize("rho", [1.0, 1.5, np.inf])
def test_loss_and_gradient_are_the_formula(rho):
    rng = np.random.default_rng(0)
    n, e = 200, 0.25
    pi, prox, mu = rng.uniform(0.05, 0.95, (3, n))
    advantages = rng.standard_normal(n)
    ratio, weight = pi / prox, np.minimum(prox / mu, rho)
    surrogate = weight * np.minimum(ratio * advantages, np.clip(ratio, 1 / (1 + e), 1 + e) * advantages)
    moves = np.where(advantages > 0, ratio < 1 + e, ratio > 1 / (1 + e))
    log_pi = torch.from_numpy(np.log(pi)).requires_grad_()
    log_mu = torch.from_numpy(np.log(mu))
    log_ratios, weights = decouple(log_pi - log_mu, torch.from_numpy(np.log(prox)) - log_mu, rho)
    loss = policy_loss(log_ratios, torch.from_numpy(advantages) * weights, e, torch.ones(n, dtype=torch.bool))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(-surrogate.mean())
    np.testing.assert_allclose(log_pi.grad, -(moves * weight * ratio * advantages) / n, atol=1e-12)
    assert 0 < moves.mean() < 1 and weight.max() > 0.99 * min(rho, 5)


def fresh_batch(learner, seed=0):
    """Returns a batch in which the current weights of the learner have acted."""
    batch = make_batch(learner, seed)
    with torch.no_grad():
        evaluation = evaluate(learner.policy, batch)
    unrolled = evaluation.unrolled
    log_probs = evaluation.distribution.log_prob(batch.actions)
    return batch._replace(log_probs=log_probs, logits=unrolled.logits[:-1], values=unrolled.values[:-1])


@pytest.mark.parametrize("use_rnn", [True, False])
@pytest.mark.parametrize("flags", [{"with_vtrace": True}, {"with_vtrace": False, **SEVERAL_STEPS}])
def test_with_fresh_data_it_is_ppo_and_with_old_data_it_is_not(flags, use_rnn):
    """V-trace is compared in one SGD step: without --ppo_decoupled, later ones compute other targets."""
    for make, is_equal in ((fresh_batch, True), (make_batch, False)):
        plain, decoupled = (
            make_learner("APPO", use_rnn=use_rnn, ppo_decoupled=chosen, adam_eps=0.1, **flags)
            for chosen in (False, True)
        )
        batch = make(plain)
        if not is_equal:
            batch = batch._replace(versions=batch.versions - 1)
        for learner in (plain, decoupled):
            learner.train(batch)
        gradients = [
            torch.cat([parameter.grad.flatten() for parameter in learner.model.parameters()])
            for learner in (plain, decoupled)
        ]
        assert torch.allclose(*gradients, rtol=1e-4, atol=1e-6) == is_equal
        assert not same(state_of(plain), state_of(make_learner("APPO", use_rnn=use_rnn)))


@pytest.mark.parametrize("with_vtrace", [True, False])
def test_the_clip_range_stays_around_the_policy_before_the_first_step(monkeypatch, with_vtrace):
    learner = make_learner(
        "APPO", ppo_decoupled=True, with_vtrace=with_vtrace, shuffle_minibatches=False, **SEVERAL_STEPS
    )
    learner.train(make_batch(learner, 1))
    batch = make_batch(learner, 2)
    before = evaluate(learner.policy, batch).log_ratios.detach()
    proximal, current = [], []
    losses = learner.algorithm.losses

    def seen(minibatch, evaluation, targets):
        proximal.append(targets.extra[PROXIMAL])
        current.append(evaluation.log_ratios.detach())
        return losses(minibatch, evaluation, targets)

    monkeypatch.setattr(learner.algorithm, "losses", seen)
    learner.train(batch)
    assert len(proximal) == 6
    for epoch in range(3):
        steps = slice(2 * epoch, 2 * epoch + 2)
        torch.testing.assert_close(torch.cat(proximal[steps], dim=1), before)
        assert epoch == 0 or not torch.allclose(torch.cat(current[steps], dim=1), before, atol=1e-4)
