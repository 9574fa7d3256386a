"""CPC|A in a learner, on a game whose next observation is known from state and action."""

import gymnasium as gym
import numpy as np
import torch

from sample_factory.config.sections import LearningFlags, ModelFlags
from sample_factory.learning.algorithms.extra_losses import CPC_COEFF, cpc_loss
from sample_factory.learning.batch import Batch, unroll
from sample_factory.learning.learner import Learner
from sample_factory.models.policy_spec import PolicySpec
from tests.learning.arguments import learner_args

T, B, H, PLACES = 12, 8, 32, 8
SPACE = gym.spaces.Dict({"obs": gym.spaces.Box(0, 1, (PLACES,), np.float32)})


def make_learner(use_rnn=True, **flags):
    chosen = {"rollout": T, "batch_size": T * B, "learning_rate": 3e-3, "use_cpc": True, **flags}
    learning = LearningFlags(cpc_forward_steps=4, max_grad_norm=1.0, **chosen)
    model = ModelFlags(use_rnn=use_rnn, hidden_size=H, encoder_mlp_layers=(H,))
    policy = PolicySpec(model, SPACE, gym.spaces.Discrete(3), True, "cpu", "fp32")
    return Learner(learner_args(policy, learning))


def networks(learner):
    return learner._algorithm.modules["cpc"]


def walk(seed=0, lie=False, state_size=H):
    """Returns a batch of walks on a ring: actions 0, 1, 2 move by -1, 0, +1.

    lie: the batch holds other actions than those that moved.
    """
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 3, (T, B))
    places = np.concatenate([rng.integers(0, PLACES, (1, B)), actions - 1]).cumsum(axis=0) % PLACES
    stored = rng.integers(0, 3, (T, B)) if lie else actions
    zeros = torch.zeros(T, B)
    never = torch.zeros(T, B, dtype=torch.bool)
    return Batch(
        obs={"obs": torch.from_numpy(np.eye(PLACES, dtype=np.float32)[places])},
        actions=torch.from_numpy(stored.astype(np.float32)).unsqueeze(-1),
        log_probs=zeros - float(np.log(3)),
        values=zeros,
        logits=torch.zeros(T, B, 3),
        versions=torch.zeros(T, B, dtype=torch.int32),
        generations=torch.zeros(T, B, dtype=torch.int32),
        rewards=zeros,
        terminated=never,
        truncated=never,
        own=~never,
        chunk_rnn_states=torch.zeros(1, B, state_size),
        resets=np.zeros((T + 1, B), bool),
    )


def loss_after_training(lie):
    learner = make_learner()
    for step in range(150):
        stats = learner.train(walk(seed=step, lie=lie), want_summaries=True)
    return stats.summaries["auxiliary_loss"] / CPC_COEFF


def test_future_observations_are_recognised_from_the_actions_in_between():
    """Wrong observations are drawn with repetition: an eighth of them equals the right one."""
    knowing, guessing = loss_after_training(lie=False), loss_after_training(lie=True)
    assert knowing < 0.6 < 1.0 < guessing < 1.4


def test_the_gradient_reaches_encoder_and_core():
    learner, batch = make_learner(), walk()
    unrolled = unroll(learner._policy, batch)
    loss = cpc_loss(learner._flags, networks(learner), batch, unrolled, np.random.default_rng(0))
    loss.backward()
    tower = learner.model.towers[0]
    trained = [*tower.encoder.parameters(), *tower.core.parameters(), *networks(learner).parameters()]
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in trained)


def test_the_contents_of_masked_steps_change_nothing():
    learner, batch = make_learner(), walk()
    batch = batch._replace(own=torch.arange(B).expand(T, B) < B // 2)
    other = batch._replace(obs={"obs": batch.obs["obs"].clone()}, actions=batch.actions.clone())
    other.obs["obs"][:-1, B // 2 :] = 9.0
    other.actions[:, B // 2 :] = 0.0
    losses = [
        cpc_loss(learner._flags, networks(learner), x, unroll(learner._policy, x), np.random.default_rng(0))
        for x in (batch, other)
    ]
    torch.testing.assert_close(*losses)


def test_save_load_and_one_more_step_equals_no_interruption():
    straight, first = make_learner(), make_learner()
    for learner in (straight, first):
        learner.train(walk(seed=1))
    resumed = make_learner()
    resumed.load_state_dict(first.state_dict())
    for learner in (straight, resumed):
        learner.train(walk(seed=2))
    for key in ("model", "cpc"):
        ours, expected = resumed.state_dict()[key], straight.state_dict()[key]
        assert all(torch.equal(ours[name], expected[name]) for name in expected)


def test_the_task_can_be_switched_on_and_off_between_runs():
    without, with_task = make_learner(use_cpc=False), make_learner()
    with_task.load_state_dict(without.state_dict())
    with_task.train(walk())
    without.load_state_dict(with_task.state_dict())
    without.train(walk())
    assert "cpc" not in without.state_dict()


def test_it_works_without_memory():
    learner = make_learner(use_rnn=False)
    stats = learner.train(walk(state_size=0), want_summaries=True)
    assert 0 < stats.summaries["auxiliary_loss"] < 4 * CPC_COEFF
