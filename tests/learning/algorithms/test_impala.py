"""Compares a step of IMPALA with a slow and simple implementation: one sample at a time."""

import copy

import pytest
import torch

from sample_factory.spaces.actions import ACTION_MASK
from tests.learning.algorithms.learners import B, T, make_batch, make_learner
from tests.learning.test_against_reference import Trajectory, reference_targets, reward_scale


def reference_loss(flags, model, batch):
    """Sums the loss over the samples of a minibatch; masked ones are replaced by the mean of the others."""
    total, count = 0.0, 0
    for b in range(B):
        trajectory = Trajectory(batch, b)
        outputs = trajectory.acted(model)
        values = [reward_scale(model, value) for _, value in outputs]
        log_probs = [
            distribution.log_prob(batch.actions[t, b]) for t, (distribution, _) in enumerate(outputs[:T])
        ]
        ratios = {
            t: float((log_probs[t] - batch.log_probs[t, b]).detach().exp()) if batch.own[t, b] else 1.0
            for t in range(T)
        }
        targets = reference_targets(flags, trajectory, values, ratios)
        for t in range(T):
            if batch.own[t, b]:
                target, advantage = targets[t]
                distribution, value = outputs[t]
                total = total - log_probs[t] * advantage
                total = total + flags.value_loss_coeff * 0.5 * (value - target) ** 2
                total = total - flags.exploration_loss_coeff * distribution.entropy()
                count += 1
    return total / count * flags.batch_size


@pytest.mark.parametrize("actions", ["discrete", "box", "tuple"])
@pytest.mark.parametrize("num_chunks", [1, 2])
def test_a_step_is_its_definition(actions, num_chunks):
    """The gradient and RMSprop's first step are those of TorchBeast's losses, with masks and a memory."""
    learner = make_learner("IMPALA", actions, recurrence=T // num_chunks, vtrace_rho=0.9, vtrace_c=1.1)
    batch = make_batch(learner, 7, num_chunks=num_chunks)
    assert (ACTION_MASK in batch.obs) == (actions != "box")
    model = copy.deepcopy(learner.model)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=4.8e-4, alpha=0.99, eps=0.01)
    reference_loss(learner.flags, model, batch).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 40.0)
    optimizer.step()
    learner.train(batch)
    expected = dict(model.named_parameters())
    for name, parameter in learner.model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=1e-3, atol=2e-4, msg=name)
        torch.testing.assert_close(parameter, expected[name], rtol=1e-3, atol=2e-5, msg=name)


def test_the_losses_are_sums_so_that_their_size_does_not_depend_on_masked_steps():
    learner = make_learner("IMPALA")
    batch = make_batch(learner, masked=0.0)
    summaries = learner.train(batch, want_summaries=True)
    entropy_loss = summaries["exploration_loss"]
    assert entropy_loss == pytest.approx(-6e-4 * summaries["entropy"] * T * B, rel=1e-3)
