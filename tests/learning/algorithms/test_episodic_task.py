"""The episodic memory in a learner: what is written, saved and resumed, and that ratios stay exact."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from sample_factory.learning.algorithms.episodic_task import contrastive_loss, rarity
from sample_factory.models.episodic_memory import EMPTY, KEY_SIZE, TEMPERATURE
from tests.learning.learners import build_learner, plain_batch

T, B, H, PLACES = 8, 16, 16, 6
SPACE = gym.spaces.Dict({"obs": gym.spaces.Box(0, 1, (PLACES,), np.float32)})
RARE = PLACES - 1


def make_learner(algorithm="ppo:PPO", memory=True):
    learning = {"rollout": T, "batch_size": T * B, "learning_rate": 3e-3, "episodic_momentum": 0.9}
    model = {"hidden_size": H, "encoder_mlp_layers": (H,), "episodic_memory": memory, "episodic_slots": 32}
    factory = f"sample_factory.learning.algorithms.{algorithm}"
    return build_learner(SPACE, gym.spaces.Discrete(3), learning, model, algorithm=factory)


def memory_of(learner):
    return learner.model.towers[0].memory


def batch_of(learner, seed=0, own=None):
    """Returns a batch in which the learner's model has acted: one of 16 trajectories is in a rare place."""
    torch.manual_seed(seed)
    places = torch.randint(0, PLACES - 1, (T + 1, B))
    places[:, 0] = RARE
    obs = torch.nn.functional.one_hot(places, PLACES).float()
    state = torch.zeros(B, learner.model.state_size)
    steps = []
    for t in range(T):
        steps.append(learner.model.act({"obs": obs[t]}, state))
        state = steps[-1].rnn_state
    actions, log_probs, values, logits = (torch.stack([step[i] for step in steps]) for i in range(4))
    return plain_batch(
        obs={"obs": obs},
        actions=actions,
        log_probs=log_probs,
        values=values,
        logits=logits,
        versions=torch.full((T, B), learner.version, dtype=torch.int32),
        rewards=torch.rand(T, B),
        own=torch.ones(T, B, dtype=torch.bool) if own is None else own,
        chunk_rnn_states=torch.zeros(1, B, learner.model.state_size),
    )


@pytest.mark.parametrize("algorithm", ["ppo:PPO", "impala:IMPALA", "impact:IMPACT", "vmpo:VMPO"])
def test_the_importance_ratio_is_1_on_policy_while_the_memory_fills(algorithm):
    learner = make_learner(algorithm)
    for seed in range(3):
        summaries = learner.train(batch_of(learner, seed), want_summaries=True)
        assert summaries["ratio_mean"] < 1e-5
        assert summaries["ratio_max"] == pytest.approx(1, abs=1e-5)
    assert (memory_of(learner).priorities > EMPTY).sum() >= 2
    assert np.isfinite(summaries["episodic_loss"])


def test_keys_of_a_rare_place_get_a_higher_priority_than_the_others():
    learner = make_learner()
    for seed in range(60):
        learner.train(batch_of(learner, seed))
    task = learner.algorithm._episodic
    keys = task._keys({"obs": torch.eye(PLACES)})
    found = rarity(keys, task.encoder.recent, TEMPERATURE)
    assert found[RARE] > found[:RARE].max() + 0.5


def test_moments_that_are_masked_or_went_no_better_than_expected_are_not_written():
    learner = make_learner()
    own = torch.ones(T, B, dtype=torch.bool)
    own[:, B // 2 :] = False
    batch = batch_of(learner, own=own)
    worse = batch._replace(rewards=torch.full((T, B), -5.0))
    learner.train(worse)
    assert (memory_of(learner).priorities == EMPTY).all()
    batch.obs["obs"][:, B // 2 :] = torch.nan
    for _ in range(3):
        learner.train(batch)
    memory = memory_of(learner)
    assert (memory.priorities > EMPTY).any()
    assert memory.keys.isfinite().all() and memory.values.isfinite().all()


def test_the_return_that_is_kept_is_the_discounted_one_and_not_the_advantage():
    learner = make_learner()
    with torch.no_grad():
        learner.model.critic_head.weight.zero_()
        learner.model.critic_head.bias.fill_(2.0)
    learner.train(batch_of(learner)._replace(rewards=torch.full((T, B), 0.1)))
    memory = memory_of(learner)
    returns = memory.values[memory.priorities > EMPTY][:, 3]  # after a number for each of 3 actions
    returns = learner.model.returns_normalizer.denormalize(returns)
    last_value = float(learner.model.returns_normalizer.denormalize(torch.tensor(2.0)))
    gamma = learner.flags.gamma
    possible = [0.1 * (1 - gamma**n) / (1 - gamma) + last_value * gamma**n for n in range(1, T)]
    assert len(returns) and all(min(abs(x - y) for y in possible) < 1e-4 for x in returns.tolist())


def test_save_load_and_one_more_step_equals_no_interruption():
    straight, first = make_learner(), make_learner()
    for learner in (straight, first):
        learner.train(batch_of(first, 1))
    resumed = make_learner()
    resumed.load_state_dict(first.state_dict())
    for learner in (straight, resumed):
        learner.train(batch_of(first, 2))
    for key in ("model", "episodic"):
        ours, expected = resumed.state_dict()[key], straight.state_dict()[key]
        assert all(torch.equal(ours[name], expected[name]) for name in expected)
    assert (memory_of(resumed).priorities > EMPTY).any()


def test_a_policy_that_takes_over_another_one_gets_its_memory():
    first, second = make_learner(), make_learner()
    first.train(batch_of(first))
    second.take_over(first.state_dict())
    assert torch.equal(memory_of(first).keys, memory_of(second).keys)
    published = second.weights().state
    assert np.array_equal(published["towers.0.memory.keys"], memory_of(first).keys.numpy())


def test_the_momentum_encoder_follows_slowly_and_is_not_trained():
    learner = make_learner()
    encoder = learner.algorithm.modules["episodic"]
    before = encoder.query_layer.weight.clone()
    start = memory_of(learner).query_layer.weight.clone()
    learner.train(batch_of(learner))
    moved = memory_of(learner).query_layer.weight - start
    torch.testing.assert_close(encoder.query_layer.weight - before, 0.1 * moved)


def test_without_it_a_learner_has_no_trace_of_it():
    learner = make_learner(memory=False)
    summaries = learner.train(batch_of(learner), want_summaries=True)
    assert "episodic" not in learner.state_dict() and "episodic_loss" not in summaries


def test_rarity_is_minus_the_logarithm_of_how_often_a_key_occurs():
    frequent, rare, never = torch.eye(KEY_SIZE)[:3]
    known = torch.stack([frequent] * 90 + [rare] * 10)
    found = rarity(torch.stack((frequent, rare, never)), known, temperature=0.01)
    torch.testing.assert_close(found[:2], -torch.tensor([0.9, 0.1]).log())
    assert found[2] > 50


def test_the_contrastive_loss_is_cross_entropy_among_the_right_key_and_the_others():
    torch.manual_seed(0)
    queries, keys = (normalize(torch.randn(2, KEY_SIZE), dim=1) for _ in range(2))
    others = normalize(torch.randn(5, KEY_SIZE), dim=1)
    right = (queries[0] @ keys[0] / 0.5).exp()
    wrong = sum((queries[0] @ other / 0.5).exp() for other in others)
    loss = contrastive_loss(queries, keys, others, torch.tensor([True, False]), 0.5)
    torch.testing.assert_close(loss, -(right / (right + wrong)).log())
