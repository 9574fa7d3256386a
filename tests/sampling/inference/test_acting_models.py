import itertools
import re
import threading

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from sample_factory.checkpoints.milestones import Milestone
from sample_factory.config.sections import ModelFlags
from sample_factory.exchange.policy_weights import PolicyWeights, Stamp
from sample_factory.models.network_registry import register_encoder
from sample_factory.models.policy_spec import BuiltPolicy
from sample_factory.models.towers import make_actor_critic
from sample_factory.sampling.inference.acting_models import FrozenModels, LiveModel, UnreadableOpponent

OBSERVATIONS = {"obs": torch.randn(5, 3)}
FLAGS = ModelFlags(encoder_mlp_layers=(8,), hidden_size=8)


def make_model(seed, flags=FLAGS):
    torch.manual_seed(seed)
    space = gym.spaces.Dict(obs=gym.spaces.Box(-9, 9, (3,), np.float32))
    return make_actor_critic(flags, space, gym.spaces.Discrete(4)).requires_grad_(False)


def milestone(version):
    return Milestone(0, version, env_frames=10 * version)


def write(folder, past_self, contents):
    path = past_self.path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(contents, path)


def save(folder, seed, flags=FLAGS):
    """Returns (the past self, its model)."""
    model = make_model(seed, flags)
    write(folder, milestone(seed), {"model": model.state_dict(), "train_step": seed})
    return milestone(seed), model


def outputs(model, rows=slice(None)):
    state = torch.ones(5, 8)[rows]
    output = model.act({key: tensor[rows] for key, tensor in OBSERVATIONS.items()}, state)
    return torch.cat([output.logits, output.values[:, None], output.rnn_state], dim=1)


def test_a_past_self_acts_with_the_weights_in_its_file(tmp_path):
    frozen = FrozenModels(make_model(0), tmp_path, limit=2)
    for seed in (1, 2, 3, 1):
        past_self, original = save(tmp_path, seed)
        model, stamp = frozen.get(past_self)
        assert torch.equal(outputs(model), outputs(original)) and stamp.version == seed


class Normed(nn.Module):
    """An encoder with a batch norm."""

    out_size = 3

    def __init__(self, *_):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, observations):
        return self.norm(observations["obs"])


def test_rows_that_share_a_request_do_not_influence_each_other(tmp_path):
    register_encoder("normed", Normed)
    flags = ModelFlags(encoder_custom="normed", hidden_size=8)
    built = BuiltPolicy(make_model(0, flags), torch.device("cpu"), autocast=False)
    live = LiveModel(built, PolicyWeights())
    past_self, _ = save(tmp_path, 1, flags)
    frozen, _ = FrozenModels(built.model, tmp_path, limit=1).get(past_self)
    for model in (live.model, frozen):
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        alone = [outputs(model, slice(row, row + 1)) for row in range(5)]
        assert torch.allclose(torch.cat(alone), outputs(model), atol=1e-6)
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


class Keeps(Normed):
    """An encoder that keeps a tensor that it has loaded."""

    def get_extra_state(self):
        return torch.zeros(3)

    def set_extra_state(self, state):
        self.kept = state


def publish(weights, model, version):
    state = {name: torch.full_like(tensor, version).numpy() for name, tensor in model.state_dict().items()}
    weights.publish(state, Stamp(version))


def test_a_tensor_that_an_encoder_keeps_is_of_the_weights_that_act():
    register_encoder("keeps", Keeps)
    built = BuiltPolicy(make_model(0, ModelFlags(encoder_custom="keeps")), torch.device("cpu"), False)
    weights = PolicyWeights()
    live = LiveModel(built, weights)
    publish(weights, live.model, 1)
    live.fetch()
    for version in (2, 3):
        publish(weights, live.model, version)
    [encoder] = [module for module in live.model.modules() if isinstance(module, Keeps)]
    assert encoder.kept.tolist() == [1, 1, 1] and live.stamp == Stamp(1)


@pytest.mark.timeout(60)
def test_weights_are_of_one_version_while_the_learner_publishes():
    built = BuiltPolicy(make_model(0), torch.device("cpu"), autocast=False)
    weights = PolicyWeights()
    live = LiveModel(built, weights)
    publish(weights, live.model, 0)
    stop = threading.Event()

    def publish_more():
        for version in itertools.count(1):
            publish(weights, live.model, version)
            if stop.is_set():
                return

    publisher = threading.Thread(target=publish_more)
    publisher.start()
    seen = set()
    try:
        while len(seen) < 50:
            live.fetch()
            numbers = {float(number) for tensor in live.model.parameters() for number in tensor.unique()}
            assert numbers == {live.stamp.version}
            seen.add(live.stamp.version)
    finally:
        stop.set()
        publisher.join()


def test_loading_past_selves_does_not_change_the_live_model(tmp_path):
    live = make_model(0)
    before, frozen = outputs(live), FrozenModels(live, tmp_path, limit=1)
    for seed in (1, 2):
        frozen.get(save(tmp_path, seed)[0])
    assert torch.equal(outputs(live), before)


def test_at_the_limit_the_least_recently_used_past_self_is_dropped(tmp_path):
    frozen = FrozenModels(make_model(0), tmp_path, limit=2)
    first, second, third = (save(tmp_path, seed)[0] for seed in (1, 2, 3))
    for past_self in (first, second, first, third):
        frozen.get(past_self)
        assert len(frozen._models) <= 2
    write(tmp_path, first, {})  # it is in memory, so its file is not read again
    frozen.get(first)
    write(tmp_path, second, {})
    with pytest.raises(UnreadableOpponent):
        frozen.get(second)


@pytest.mark.parametrize("damage", ["missing", "cut off", "of another model", "of no model", "empty"])
def test_an_error_names_a_file_that_cannot_be_used(tmp_path, damage):
    past_self, _ = save(tmp_path, 1, ModelFlags(encoder_mlp_layers=(9,), hidden_size=8))
    path = past_self.path(tmp_path)
    if damage == "missing":
        path.unlink()
    elif damage == "of no model":
        write(tmp_path, past_self, {"weights": 1})
    elif damage != "of another model":
        path.write_bytes(b"PK" if damage == "cut off" else b"")
    frozen = FrozenModels(make_model(0), tmp_path, limit=2)
    with pytest.raises(UnreadableOpponent, match=re.escape(str(path))):
        frozen.get(past_self)
    good, original = save(tmp_path, 2)
    assert torch.equal(outputs(frozen.get(good)[0]), outputs(original)), "others can still be used"


class TooLarge(torch.nn.Linear):
    """A model with no memory left for a copy."""

    def __deepcopy__(self, memo):
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_too_little_memory_is_not_reported_as_an_unreadable_file(tmp_path):
    live = TooLarge(1, 1)
    write(tmp_path, milestone(1), {"model": live.state_dict(), "train_step": 1})
    with pytest.raises(torch.OutOfMemoryError):
        FrozenModels(live, tmp_path, limit=1).get(milestone(1))
