"""The network that is exported computes what the trained one does."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sample_factory.config.sections import ModelFlags
from sample_factory.exporting.network import _conversion, action_parts, with_plain_layers
from sample_factory.models.cpu_layers import PatchConv2d
from sample_factory.models.family_encoders import TextEncoder
from sample_factory.models.normalizers import RunningNormalizer
from sample_factory.models.towers import make_actor_critic
from sample_factory.spaces.actions import batch_action_decoder
from sample_factory.spaces.observations import Indices
from tests.action_spaces import ACTION_SPACES, random_rows
from tests.exporting.conftest import disturb

PICTURE = gym.spaces.Dict(obs=gym.spaces.Box(0, 255, (3, 36, 40), np.uint8))
MISSION = gym.spaces.Dict(
    obs=Indices(np.full((5, 5, 3), 6)), direction=Indices((4,)), mission=Indices(np.full(7, 30))
)


@pytest.mark.parametrize(
    ("space", "flags"),
    [
        (PICTURE, {"encoder_subtype": "convnet_simple", "normalize_input": True}),
        (PICTURE, {"encoder_subtype": "resnet_impala", "rnn_type": "lstm"}),
        (PICTURE, {"encoder_subtype": "convnet_small", "rnn_type": "mingru"}),
        (MISSION, {"encoder_custom": "minigrid", "encoder_subtype": "minigrid_convnet_tiny"}),
    ],
)
def test_a_copy_with_plain_layers_has_the_same_outputs(space, flags):
    torch.manual_seed(1)
    model_flags = ModelFlags(hidden_size=8, use_rnn=True, **flags)
    model = make_actor_critic(model_flags, space, gym.spaces.Discrete(5), normalize_returns=True).eval()
    disturb(model)
    plain = with_plain_layers(model)
    space.seed(2)
    rows = [space.sample() for _ in range(4)]
    observations = {key: torch.from_numpy(np.stack([row[key] for row in rows])) for key in rows[0]}
    state = torch.randn(4, model.state_size)
    expected = model.act(observations, state, deterministic=True)
    computed = plain.act(observations, state, deterministic=True)
    for field in ("actions", "values", "logits", "rnn_state"):
        torch.testing.assert_close(computed._asdict()[field], expected._asdict()[field], atol=1e-5, rtol=1e-5)
    special = (PatchConv2d, RunningNormalizer, TextEncoder)
    assert any(isinstance(module, special) for module in model.modules())


@settings(max_examples=50, deadline=None)
@given(ACTION_SPACES, st.integers(0, 100))
def test_exported_actions_are_those_of_the_env(space, seed):
    rows = random_rows(space, 4, seed)
    expected = batch_action_decoder(space)(rows)
    parts = list(action_parts(space))
    assert len({part.action for part in parts}) == len(parts)
    for part in parts:
        own = expected
        for key in part.path:
            own = own[key]
        found = _conversion(part)(torch.from_numpy(rows)).numpy()
        assert found.dtype == own.dtype
        np.testing.assert_array_equal(found, own)
