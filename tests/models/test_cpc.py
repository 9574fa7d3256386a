import gymnasium as gym
import torch

from sample_factory.models.cpc import ActionConditionalCPC
from sample_factory.spaces.actions import action_layout

MIXED = gym.spaces.Tuple((gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)))
BELIEF = 6
ENCODING = 5
STEPS = 4
ROWS = 3


def make_cpc():
    torch.manual_seed(0)
    return ActionConditionalCPC(action_layout(MIXED), BELIEF, ENCODING)


def random_actions():
    boxes = torch.randn(STEPS, ROWS, 2)
    discrete = [torch.randint(0, n, (STEPS, ROWS, 1)).float() for n in (3, 2)]
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
    assert together.shape == (STEPS, 2, ROWS, BELIEF)
    torch.testing.assert_close(together[:, 1], cpc.predict(beliefs[1], actions))


def test_one_prediction_is_compared_with_many_observations():
    cpc = make_cpc()
    predictions = cpc.predict(torch.randn(ROWS, BELIEF), random_actions())[-1]
    observations = cpc.of_observation(torch.randn(ROWS, 7, ENCODING))
    logits = cpc.compare(predictions.unsqueeze(1), observations)
    assert logits.shape == (ROWS, 7)
    torch.testing.assert_close(logits[1, 4], cpc.compare(predictions[1], observations[1, 4]))
