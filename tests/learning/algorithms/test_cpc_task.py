"""CPC|A: its networks, what is compared, and a learner on a game whose next observation is predictable."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from sample_factory.config.sections import LearningFlags
from sample_factory.learning.algorithms.cpc_task import (
    CPC_COEFF,
    NUM_WRONG,
    ActionConditionalCPC,
    contrastive_loss,
    cpc_loss,
    draw_comparisons,
    usable_comparisons,
)
from sample_factory.learning.batch import unroll
from sample_factory.spaces.actions import action_layout
from tests.learning.learners import build_learner, plain_batch

T, B, H, PLACES = 12, 8, 32, 8
SPACE = gym.spaces.Dict({"obs": gym.spaces.Box(0, 1, (PLACES,), np.float32)})
STEPS, COLUMNS = 10, 4  # of a minibatch whose steps are compared
MIXED = gym.spaces.Tuple((gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)))
BELIEF = 6
ENCODING = 5
HORIZON = 4
ROWS = 3


def make_learner(use_rnn=True, **flags):
    chosen = {"rollout": T, "batch_size": T * B, "learning_rate": 3e-3, "use_cpc": True, **flags}
    learning = {"cpc_forward_steps": 4, "max_grad_norm": 1.0, **chosen}
    model = {"use_rnn": use_rnn, "hidden_size": H, "encoder_mlp_layers": (H,)}
    return build_learner(SPACE, gym.spaces.Discrete(3), learning, model)


def networks(learner):
    return learner.algorithm.modules["cpc"]


def walk(seed=0, lie=False, state_size=H):
    """Returns a batch of walks on a ring: actions 0, 1, 2 move by -1, 0, +1.

    lie: the batch holds other actions than those that moved.
    """
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 3, (T, B))
    places = np.concatenate([rng.integers(0, PLACES, (1, B)), actions - 1]).cumsum(axis=0) % PLACES
    stored = rng.integers(0, 3, (T, B)) if lie else actions
    return plain_batch(
        obs={"obs": torch.from_numpy(np.eye(PLACES, dtype=np.float32)[places])},
        actions=torch.from_numpy(stored.astype(np.float32)).unsqueeze(-1),
        log_probs=torch.full((T, B), -math.log(3)),
        logits=torch.zeros(T, B, 3),
        chunk_rnn_states=torch.zeros(1, B, state_size),
    )


def loss_after_training(lie):
    learner = make_learner()
    for step in range(150):
        summaries = learner.train(walk(seed=step, lie=lie), want_summaries=True)
    return summaries["auxiliary_loss"] / CPC_COEFF


def test_future_observations_are_recognised_from_the_actions_in_between():
    """Wrong observations are drawn with repetition: an eighth of them equals the right one."""
    knowing, guessing = loss_after_training(lie=False), loss_after_training(lie=True)
    assert knowing < 0.6 < 1.0 < guessing < 1.4


def test_the_gradient_reaches_encoder_and_core():
    learner, batch = make_learner(), walk()
    unrolled = unroll(learner.policy, batch)
    loss = cpc_loss(learner.flags, networks(learner), batch, unrolled, np.random.default_rng(0))
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
        cpc_loss(learner.flags, networks(learner), x, unroll(learner.policy, x), np.random.default_rng(0))
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
    summaries = learner.train(walk(state_size=0), want_summaries=True)
    assert 0 < summaries["auxiliary_loss"] < 4 * CPC_COEFF


def make_cpc():
    torch.manual_seed(0)
    return ActionConditionalCPC(action_layout(MIXED), BELIEF, ENCODING)


def random_actions():
    boxes = torch.randn(HORIZON, ROWS, 2)
    discrete = [torch.randint(0, n, (HORIZON, ROWS, 1)).float() for n in (3, 2)]
    return torch.cat([discrete[0], boxes, discrete[1]], dim=-1)


def test_the_prediction_k_steps_ahead_depends_on_the_first_k_actions_only():
    cpc = make_cpc()
    beliefs = torch.randn(ROWS, BELIEF)
    actions = random_actions()
    before = cpc.predict(beliefs, actions)
    for column in range(actions.shape[-1]):
        changed = actions.clone()
        changed[2, 1, column] = 1 - changed[2, 1, column].clamp(0, 1)
        after = cpc.predict(beliefs, changed)
        same = (before == after).all(dim=-1)
        assert same[:2].all() and not same[2:, 1].any() and same[:, [0, 2]].all()


def test_predictions_start_from_the_belief():
    cpc = make_cpc()
    actions = random_actions()
    zero, one = (cpc.predict(torch.full((ROWS, BELIEF), x), actions) for x in (0.0, 1.0))
    assert not torch.allclose(zero[0], one[0])


def test_predictions_of_any_leading_shape():
    cpc = make_cpc()
    beliefs = torch.randn(2, ROWS, BELIEF)
    actions = random_actions()
    together = cpc.predict(beliefs, torch.stack([actions, actions], dim=1))
    assert together.shape == (HORIZON, 2, ROWS, BELIEF)
    torch.testing.assert_close(together[:, 1], cpc.predict(beliefs[1], actions))


def test_one_prediction_is_compared_with_many_observations():
    cpc = make_cpc()
    predictions = cpc.predict(torch.randn(ROWS, BELIEF), random_actions())[-1]
    observations = cpc.of_observation(torch.randn(ROWS, 7, ENCODING))
    logits = cpc.compare(predictions.unsqueeze(1), observations)
    assert logits.shape == (ROWS, 7)
    torch.testing.assert_close(logits[1, 4], cpc.compare(predictions[1], observations[1, 4]))


def draw(seed=0, num_steps=STEPS, num_starts=6, num_horizons=3):
    flags = LearningFlags(
        cpc_forward_steps=4, cpc_time_subsample=num_starts, cpc_forward_subsample=num_horizons
    )
    rng = np.random.default_rng(seed)
    return draw_comparisons(flags, (num_steps, COLUMNS), rng, torch.device("cpu"))


def random_marks(seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.random((STEPS, COLUMNS)) < 0.85), torch.from_numpy(
        rng.random((STEPS, COLUMNS)) < 0.15
    )


def test_horizons_are_distinct_and_end_within_the_experience():
    start, end, wrong = draw(num_starts=100)
    assert sorted(start[:, 0].tolist()) == list(range(STEPS - 4 + 1))
    horizons = end - start
    assert horizons.min() >= 1 and horizons.max() == 4 and end.max() <= STEPS
    assert all(len(set(row)) == 3 for row in horizons.tolist())
    assert (
        wrong.shape == (7, 3, COLUMNS, NUM_WRONG) and wrong.min() >= 0 and wrong.max() < (STEPS + 1) * COLUMNS
    )


def test_every_horizon_is_drawn_when_there_are_no_more_than_asked_for():
    start, end, _ = draw(num_horizons=99)
    assert sorted((end - start)[0].tolist()) == [1, 2, 3, 4]


def test_experience_as_long_as_the_horizon_has_one_start():
    start, _, _ = draw(num_steps=4)
    assert start.tolist() == [[0]]


@pytest.mark.parametrize("seed", range(5))
def test_only_consecutive_valid_steps_of_one_episode_are_compared(seed):
    """The definition, one comparison at a time."""
    valid, ended = random_marks(seed)
    comparisons = draw(seed)
    usable_right, usable_wrong = usable_comparisons(comparisons, valid, ended)
    start, end, wrong = (tensor.tolist() for tensor in comparisons)

    def observation_is_valid(step, column):
        return step == STEPS or bool(valid[step, column])

    for s, (first,) in enumerate(start):
        for k, last in enumerate(end[s]):
            for b in range(COLUMNS):
                steps = range(first, last)
                right = all(valid[t, b] and not ended[t, b] for t in steps) and observation_is_valid(last, b)
                assert usable_right[s, k, b] == right
                for n, index in enumerate(wrong[s][k][b]):
                    other = index != last * COLUMNS + b and observation_is_valid(*divmod(index, COLUMNS))
                    assert usable_wrong[s, k, b, n] == (right and other)


def test_the_loss_of_guessing_is_2_log_2_and_of_knowing_is_0():
    usable = usable_comparisons(
        draw(), torch.ones(STEPS, COLUMNS, dtype=bool), torch.zeros(STEPS, COLUMNS, dtype=bool)
    )
    right, wrong = torch.zeros(6, 3, COLUMNS), torch.zeros(6, 3, COLUMNS, NUM_WRONG)
    assert float(contrastive_loss(right, wrong, usable)) == pytest.approx(2 * math.log(2))
    assert float(contrastive_loss(right + 50, wrong - 50, usable)) == pytest.approx(0, abs=1e-6)


def test_the_loss_is_the_binary_cross_entropy_of_usable_comparisons_with_the_right_gradient():
    usable = usable_comparisons(draw(), *random_marks())
    generator = torch.Generator().manual_seed(0)
    right = torch.randn(6, 3, COLUMNS, generator=generator, dtype=torch.float64, requires_grad=True)
    wrong = torch.randn(
        6, 3, COLUMNS, NUM_WRONG, generator=generator, dtype=torch.float64, requires_grad=True
    )
    loss = contrastive_loss(right, wrong, usable)
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
    picked = (right[usable[0]], wrong[usable[1]])
    expected = sum(cross_entropy(x, torch.full_like(x, 1.0 - i)) for i, x in enumerate(picked))
    torch.testing.assert_close(loss, expected)
    assert torch.autograd.gradcheck(lambda r, w: contrastive_loss(r, w, usable), (right, wrong))


def test_nothing_usable_is_no_loss_and_no_gradient():
    usable = usable_comparisons(
        draw(), torch.zeros(STEPS, COLUMNS, dtype=bool), torch.zeros(STEPS, COLUMNS, dtype=bool)
    )
    right = torch.randn(6, 3, COLUMNS, requires_grad=True)
    loss = contrastive_loss(right, torch.randn(6, 3, COLUMNS, NUM_WRONG), usable)
    loss.backward()
    assert loss == 0 and (right.grad == 0).all()
