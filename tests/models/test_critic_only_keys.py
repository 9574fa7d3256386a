"""--critic_only_keys: observations that only the critic's tower gets, in a network and in its learner."""

import copy
import dataclasses

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from sample_factory.config.sections import LearningFlags, ModelFlags
from sample_factory.learning.learner import Learner
from sample_factory.models.network_checks import made_up_observations
from sample_factory.models.network_registry import register_encoder
from sample_factory.models.policy_spec import PolicySpec, state_size
from sample_factory.spaces.observations import Indices, without_entries
from tests.learning.learners import learner_args
from tests.learning.test_learner import make_batch
from tests.models.test_actor_critic import ROWS, STEPS, random_resets

S = gym.spaces
SPACE = S.Dict(
    action_mask=S.Box(0, 1, (3,), np.uint8),
    card=Indices((40, 2)),
    map=S.Box(0, 255, (3, 8, 8), np.uint8),  # sorted, it is between keys of the actor
    obs=S.Box(-np.inf, np.inf, (4,), np.float32),
    place=S.Box(-np.inf, np.inf, (2,), np.float32),
)
PRIVATE = ("card", "map", "place")
FLAGS = ModelFlags(hidden_size=16, encoder_mlp_layers=(12,), critic_only_keys=PRIVATE)


def make_spec(space=SPACE, **flags):
    return PolicySpec(dataclasses.replace(FLAGS, **flags), space, S.Discrete(3), True, "cpu", "fp32")


def build(spec):
    torch.manual_seed(0)
    return spec.build().model


def inputs(seed=0):
    """Returns observations; the seed determines those of PRIVATE only."""
    torch.manual_seed(7)
    observations = made_up_observations(SPACE, STEPS, ROWS, torch.device("cpu"))
    torch.manual_seed(seed)
    private = made_up_observations(SPACE, STEPS, ROWS, torch.device("cpu"))
    return {key: private[key] if key in PRIVATE else x for key, x in observations.items()}


def policy_gradient(model, observations):
    """Returns the unroll, and the gradient of a loss of the policy by the name of the weight."""
    model.zero_grad()
    unrolled = model.unroll(observations, torch.zeros(ROWS, model.state_size), random_resets())
    actions = torch.arange(STEPS * ROWS).view(STEPS, ROWS, 1) % 3
    model.distribution(unrolled.logits).log_prob(actions.float()).sum().backward(retain_graph=True)
    return unrolled, {name: copy.copy(weight.grad) for name, weight in model.named_parameters()}


class Summing(nn.Module):
    """A user's encoder that reads whatever it is given."""

    def __init__(self, flags, observation_space):
        super().__init__()
        self.out_size = sum(int(np.prod(space.shape)) for space in observation_space.spaces.values())
        self.layer = nn.Linear(self.out_size, self.out_size)

    def forward(self, observations):
        return self.layer(torch.cat([x.flatten(1).float() for x in observations.values()], dim=1))


@pytest.mark.parametrize("rnn", ["gru", "mingru", None])
@pytest.mark.parametrize("encoder", [None, "summing"])
def test_the_actor_and_its_gradient_do_not_depend_on_what_only_the_critic_gets(rnn, encoder):
    register_encoder("summing", Summing)
    own = {} if encoder is None else {"family_flags": {}}
    model = build(
        make_spec(use_rnn=rnn is not None, rnn_type=rnn or "gru", encoder_custom=encoder)._replace(**own)
    )
    before, gradient = policy_gradient(model, inputs())
    after, other_gradient = policy_gradient(model, inputs(seed=1))
    assert torch.equal(before.logits, after.logits) and torch.equal(before.encodings, after.encodings)
    assert (before.values != after.values).all()
    actors = {name for name, grad in gradient.items() if grad is not None and grad.any()}
    assert actors and all(name.startswith(("towers.0.", "action_head.")) for name in actors)
    assert all(torch.equal(gradient[name], other_gradient[name]) for name in actors)
    after.values.sum().backward()
    assert all(torch.equal(model.get_parameter(name).grad, other_gradient[name]) for name in actors)
    assert all(weight.grad.any() for weight in model.parameters()), "every weight learns"


@pytest.mark.parametrize("normalized", [(), ("obs", "place"), ("place",)])
def test_an_actor_alone_acts_like_the_whole_network_without_the_keys(normalized):
    spec = make_spec(normalize_input_keys=normalized)
    whole, alone = build(spec), build(spec.to_act())
    whole.observation_normalizers.update({key: x + 1 for key, x in inputs().items()})
    weights = alone.own_weights(whole.state_dict())
    alone.load_state_dict(weights)  # strictly
    assert 2 * alone.state_size == whole.state_size == state_size(spec.flags)
    assert alone.state_size == state_size(spec.flags, has_critic=False)
    state = torch.randn(ROWS, whole.state_size)
    rows = {key: x[0] for key, x in inputs().items()}
    given = {key: x for key, x in rows.items() if key not in PRIVATE}
    wanted = whole.act(rows, state, deterministic=True)
    for observations in (given, rows):
        acted = alone.act(observations, state[:, : alone.state_size], deterministic=True)
        assert torch.equal(acted.logits, wanted.logits) and torch.equal(acted.actions, wanted.actions)
        assert torch.equal(acted.rnn_state, wanted.rnn_state[:, : alone.state_size])
        assert not acted.values.any()


def test_weights_of_another_actor_are_not_taken_for_those_of_a_critic():
    alone = build(make_spec().to_act())
    deeper = build(make_spec(rnn_num_layers=2))
    assert alone.own_weights(deeper.state_dict()).keys() > alone.state_dict().keys()


def test_without_such_keys_the_network_that_acts_is_the_one_that_was_trained():
    spec = make_spec(critic_only_keys=())
    assert spec.to_act() == spec


def test_entries_of_a_nested_dict_are_named_as_they_are_stored():
    nested = S.Dict(sim=S.Dict(place=S.Box(0, 1), speed=S.Box(0, 1)), obs=S.Box(0, 1))
    assert without_entries(nested, ("sim/place", "place")) == S.Dict(
        sim=S.Dict(speed=S.Box(0, 1)), obs=S.Box(0, 1)
    )
    assert without_entries(S.Dict({"sim/place": S.Box(0, 1)}), ("sim/place",)) == S.Dict({})


def test_training_continues_exactly_from_a_checkpoint():
    space = S.Dict(obs=S.Box(-5, 5, (4,), np.float32), place=S.Box(-5, 5, (2,), np.float32))
    learning = LearningFlags(rollout=8, batch_size=48, normalize_returns=True)
    policy = make_spec(space, use_rnn=False, critic_only_keys=("place",))
    batches = []
    for seed in range(2):
        batch = make_batch(seed=seed)
        batches.append(batch._replace(obs={**batch.obs, "place": batch.obs["obs"][..., :2] * 3}))
    first, second = (Learner(learner_args(policy, learning)) for _ in range(2))
    first.train(batches[0])
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for learner in (first, second):
        learner.train(batches[1])
    ours, theirs = first.model.state_dict(), second.model.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert float(ours["observation_normalizers.of_critic.0.count"]) == 1 + 2 * 48
