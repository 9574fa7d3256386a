"""The algorithm of examples/lagrangian_ppo.py: its multiplier, its targets, what is saved of it."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from examples.lagrangian_ppo import ADVANTAGES, RETURNS, Cliff, LagrangianFlags, LagrangianPPO
from sample_factory.config.sections import ModelFlags
from sample_factory.learning.algorithms.algorithm import evaluate
from sample_factory.learning.learner import Learner
from sample_factory.models.policy_spec import PolicySpec
from tests.learning.learners import learner_args, plain_batch

T, B = 4, 3
LIMIT = 2.0


def make_learner(**flags):
    own = LagrangianFlags(
        **{"rollout": T, "batch_size": T * B, "cost_limit": LIMIT, "normalize_returns": False, **flags}
    )
    observation = spaces.Dict(obs=spaces.Box(-1, 1, (3,)))
    spec = PolicySpec(
        ModelFlags(use_rnn=False, hidden_size=8), observation, spaces.Discrete(2), False, "cpu", "fp32"
    )
    return Learner(learner_args(spec, own, algorithm=LagrangianPPO))


def make_batch(costs, terminated=(), truncated=()):
    """costs: of each step, [T] for all trajectories. terminated, truncated: steps of the first one."""
    torch.manual_seed(0)
    ends = {"terminated": terminated, "truncated": truncated}
    for name, steps in ends.items():
        ends[name] = torch.zeros(T, B, dtype=torch.bool)
        ends[name][list(steps), 0] = True
    return plain_batch(
        obs={"obs": torch.randn(T + 1, B, 3)},
        actions=torch.zeros(T, B, 1),
        logits=torch.zeros(T, B, 2),
        log_probs=torch.full((T, B), np.log(0.5)),
        rewards=torch.randn(T, B),
        costs=torch.tensor(costs, dtype=torch.float32)[:, None].repeat(1, B),
        **ends,
    )


def multiplier_after(learner, batch):
    learner.train(batch)
    return float(learner.algorithm.modules["costs"].multiplier)


def test_the_multiplier_rises_above_the_limit_falls_below_it_and_is_never_negative():
    learner = make_learner(multiplier_start=0.1, multiplier_rate=0.1, cost_window=1)
    before = 0.1
    for cost in (5.0, 0.5):  # 60, and 6, in a batch with one end
        multiplier = multiplier_after(learner, make_batch([cost] * T, terminated=[2]))
        assert multiplier > before
        before = multiplier
    for _ in range(9):
        multiplier = multiplier_after(learner, make_batch([0.1] * T, terminated=[2]))
        assert 0 <= multiplier < before or multiplier == 0
        before = multiplier
    assert multiplier == 0
    assert float(learner.algorithm.modules["costs"].mean_cost) == pytest.approx(1.2)


def test_without_an_ended_episode_the_multiplier_waits_and_costs_count_for_the_next_end():
    learner = make_learner(multiplier_start=0.5, multiplier_rate=0.1, cost_window=10**9)
    assert multiplier_after(learner, make_batch([1.0] * T)) == 0.5
    assert multiplier_after(learner, make_batch([0.0] * T, truncated=[3])) > 0.5
    assert float(learner.algorithm.modules["costs"].mean_cost) == pytest.approx(T * B)


@pytest.mark.parametrize("with_vtrace", [True, False])
def test_costs_to_come_end_where_episodes_terminate_and_bootstrap_where_they_are_cut(with_vtrace):
    learner = make_learner(with_vtrace=with_vtrace, gamma=0.9, gae_lambda=1.0, vtrace_lambda=1.0)
    batch = make_batch([1.0, 2.0, 3.0, 4.0], terminated=[1], truncated=[3])
    # With equal probabilities, V-trace corrects nothing.
    evaluation = evaluate(learner.policy, batch)._replace(log_ratios=torch.zeros(T, B))
    targets = learner.algorithm.targets(batch, evaluation)
    values = learner.algorithm._cost_values(evaluation).detach()[:, 0]
    costs = torch.tensor([1.0, 2.0, 3.0, 4.0]) / LIMIT
    last = costs[3] + 0.9 * values[3]  # cut: its own value takes the place of the next one
    expected = [costs[0] + 0.9 * costs[1], costs[1], costs[2] + 0.9 * last, last]
    assert torch.allclose(targets.extra[RETURNS][:, 0], torch.stack(expected), atol=1e-5)
    assert torch.allclose(targets.extra[ADVANTAGES][:, 0], torch.stack(expected) - values[:-1], atol=1e-5)


def test_a_large_multiplier_makes_costs_decide():
    learner = make_learner(multiplier_start=1e6)
    batch = make_batch([1.0] * T, terminated=[1])
    evaluation = evaluate(learner.policy, batch)
    targets = learner.algorithm.targets(batch, evaluation)
    advantages = learner.algorithm.losses(batch, evaluation, targets).diagnostics["advantages"]
    costs = targets.extra[ADVANTAGES]
    expected = -(costs - costs.mean()) / costs.std(correction=0)
    assert torch.allclose(advantages, expected, atol=1e-3)


def test_multiplier_sums_and_critic_are_saved_and_resumed():
    learner, resumed = make_learner(), make_learner(multiplier_start=9.0)
    learner.train(make_batch([5.0] * T, terminated=[2]))
    resumed.load_state_dict(learner.state_dict())
    saved, loaded = (own.algorithm.modules["costs"].state_dict() for own in (learner, resumed))
    assert saved.keys() == loaded.keys() == {"critic.weight", "critic.bias", "multiplier", "sums"}
    assert all(torch.equal(saved[name], loaded[name]) for name in saved)


def test_a_step_off_the_cliff_costs_1_and_ends_the_episode():
    env = Cliff(gym.make("CliffWalking-v1"))
    env.reset(seed=0)
    _, *up = env.step(0)
    env.step(1)
    _, *off = env.step(2)
    assert up == [-1.0, False, False, {**up[-1], "cost": 0.0}]
    assert off == [-1.0, True, False, {**off[-1], "cost": 1.0}]
