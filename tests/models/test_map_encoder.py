"""The encoder of maps, which computes the logits of actions that belong to fields."""

from dataclasses import replace

import gymnasium.spaces as S
import numpy as np
import pytest
import torch

from sample_factory.config.sections import ModelFlags
from sample_factory.models.network_registry import NetworkError
from sample_factory.models.towers import TowerActorCritic, make_actor_critic

CHANNELS = 3
SIDE = 16
PLANES = 2
NUM_ACTIONS = PLANES * SIDE * SIDE + 1
FLAGS = ModelFlags(encoder_custom="map", use_rnn=False, normalize_input=False, nonlinearity="relu")


def spaces(num_masked=NUM_ACTIONS, **others):
    board = S.Box(-1, 1, (CHANNELS, SIDE, SIDE), np.float32)
    return S.Dict(obs=board, action_mask=S.Box(0, 1, (num_masked,), np.int8), **others)


def make(flags=FLAGS, observation_space=None, num_actions=NUM_ACTIONS) -> TowerActorCritic:
    torch.manual_seed(0)
    return make_actor_critic(flags, observation_space or spaces(), S.Discrete(num_actions))


def unroll(model, board):
    mask = torch.ones((1, len(board), NUM_ACTIONS), dtype=torch.int8)
    rows = {"obs": board.unsqueeze(0), "action_mask": mask}
    return model.unroll(rows, torch.zeros(len(board), model.state_size))


def test_what_is_learned_in_one_place_of_the_map_holds_in_another():
    model = make()
    board = torch.zeros(2, CHANNELS, SIDE, SIDE)
    pattern = torch.randn(CHANNELS, 3, 3)
    board[0, :, 6:9, 6:9] = pattern
    board[1, :, 7:10, 8:11] = pattern  # one row down, two columns to the right
    logits = unroll(model, board).logits[0]
    planes = logits[:, :-1].reshape(2, PLANES, SIDE, SIDE)
    torch.testing.assert_close(planes[0, :, 6:9, 6:9], planes[1, :, 7:10, 8:11], atol=1e-3, rtol=0)
    torch.testing.assert_close(logits[0, -1], logits[1, -1], atol=1e-3, rtol=0)  # by the borders
    assert planes[0].std() > 0.01


def test_logits_and_values_depend_on_the_whole_map():
    model = make()
    board = torch.randn(1, CHANNELS, SIDE, SIDE)
    board.requires_grad_()
    output = unroll(model, board)
    (of_corner,) = torch.autograd.grad(output.logits[0, 0, 0], board, retain_graph=True)
    (of_value,) = torch.autograd.grad(output.values[0, 0], board)
    assert of_corner[0, :, -1, -1].abs().sum() > 0 and of_value[0, :, -1, -1].abs().sum() > 0


def test_the_value_loss_does_not_move_the_logits_themselves():
    model = make()
    unroll(model, torch.randn(4, CHANNELS, SIDE, SIDE)).values.sum().backward()
    encoder = model.each_tower()[0].encoder
    assert encoder.planes.weight.grad is None or not encoder.planes.weight.grad.any()
    assert encoder.whole.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("flags", "observation_space", "num_actions", "message"),
    [
        (FLAGS, spaces(), NUM_ACTIONS + 1, f"computes {NUM_ACTIONS} logits"),
        (FLAGS, spaces(num_masked=SIDE), SIDE, "less than one for each field"),
        (FLAGS, S.Dict(obs=spaces()["obs"]), NUM_ACTIONS, "needs an observation action_mask"),
        (FLAGS, spaces(other=S.Box(-1, 1, (2,), np.float32)), NUM_ACTIONS, "encodes one observation"),
        (ModelFlags(encoder_custom="map", use_rnn=True), spaces(), NUM_ACTIONS, "--use_rnn=False"),
        (replace(FLAGS, decoder_mlp_layers=(8,)), spaces(), NUM_ACTIONS, "--decoder_mlp_layers"),
    ],
)
def test_what_does_not_fit_is_refused(flags, observation_space, num_actions, message):
    with pytest.raises((ValueError, NetworkError), match=message):
        make(flags, observation_space, num_actions)
