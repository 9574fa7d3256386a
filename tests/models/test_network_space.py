import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.actor_critic import ActorCritic, NetworkOutput
from sample_factory.models.custom_parts import NetworkSpace
from sample_factory.models.network_checks import check_network
from sample_factory.models.network_registry import register_actor_critic, register_encoder
from sample_factory.models.towers import make_actor_critic

HEIGHT, WIDTH = 6, 5
SPACE = gym.spaces.Dict(
    {
        "action_mask": gym.spaces.Box(0, 1, (2,), np.int8),
        "last": gym.spaces.Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8),
        "first": gym.spaces.Box(0, 255, (3, HEIGHT, WIDTH), np.uint8),
        "plane": gym.spaces.Box(0, 255, (HEIGHT, WIDTH), np.uint8),
        "stack": gym.spaces.Box(0, 255, (2, HEIGHT, WIDTH, 3), np.uint8),
        "table": gym.spaces.Box(0, 1, (HEIGHT, WIDTH), np.float32),
        "vector": gym.spaces.Box(0, 1, (4,), np.float32),
    }
)
SHAPES = {
    "last": (3, HEIGHT, WIDTH),
    "first": (3, HEIGHT, WIDTH),
    "plane": (1, HEIGHT, WIDTH),
    "stack": (6, HEIGHT, WIDTH),
    "table": (HEIGHT, WIDTH),
    "vector": (4,),
}
ACTIONS = gym.spaces.Discrete(2)


class Sees(nn.Module):
    """An encoder over whatever is in the space, as in Stable-Baselines3; keeps what it gets."""

    def __init__(self, flags, observation_space):
        super().__init__()
        self.shapes = {key: space.shape for key, space in observation_space.spaces.items()}
        self.layers = nn.ModuleDict(
            {key: nn.Linear(int(np.prod(shape)), 4) for key, shape in self.shapes.items()}
        )
        self.out_size = 4 * len(self.shapes)

    def forward(self, observations):
        self.seen = observations
        return torch.cat([layer(observations[key].flatten(1)) for key, layer in self.layers.items()], -1)


class Whole(ActorCritic):
    def __init__(self, flags, observation_space, action_space):
        super().__init__(flags, observation_space, action_space)
        self.encoder = Sees(flags, observation_space)
        self.head = nn.Linear(self.encoder.out_size, 3)

    def forward(self, observations, rnn_state, resets):
        outputs = self.head(self.encoder(observations)).unflatten(0, (-1, len(rnn_state)))
        return NetworkOutput(outputs[..., :2], outputs[..., 2], rnn_state)


def rows():
    made = {key: np.stack([space.sample() for _ in range(3)]) for key, space in SPACE.spaces.items()}
    made["action_mask"][:] = (0, 1)
    return {key: torch.from_numpy(array) for key, array in made.items()}


@pytest.mark.parametrize("part", ["encoder", "actor_critic"])
def test_forward_gets_what_the_space_says_channels_first_and_without_the_mask(part):
    register_encoder("sees", Sees)
    register_actor_critic("whole", Whole)
    name = {"encoder": "sees", "actor_critic": "whole"}[part]
    flags = ModelFlags(**{f"{part}_custom": name}, use_rnn=False, normalize_input=False)
    model = make_actor_critic(flags, SPACE, ACTIONS)
    twin, random_state = make_actor_critic(flags, SPACE, ACTIONS), torch.get_rng_state()
    check_network(model, twin, flags, SPACE)
    assert torch.equal(torch.get_rng_state(), random_state), "a serial run is the same with a trial"
    encoder = model.towers[0].encoder if part == "encoder" else model.encoder
    assert encoder.shapes == SHAPES
    raw = rows()
    output = model.act(raw, torch.zeros(3, model.state_size))
    assert (output.actions == 1).all(), "the mask applies"
    seen = encoder.seen
    assert {key: tuple(tensor.shape[1:]) for key, tensor in seen.items()} == SHAPES
    assert torch.equal(seen["last"], raw["last"].permute(0, 3, 1, 2).float())
    assert torch.equal(seen["first"], raw["first"].float())
    assert torch.equal(seen["stack"], raw["stack"].permute(0, 1, 4, 2, 3).flatten(1, 2).float())


def test_bounds_move_with_the_channels():
    low = np.zeros((HEIGHT, WIDTH, 3), np.float32)
    low[..., 2] = -1
    space = NetworkSpace(gym.spaces.Dict(obs=gym.spaces.Box(low, np.ones_like(low))))["obs"]
    assert space.shape == SHAPES["last"] and (space.low[2] == -1).all() and not space.low[:2].any()
