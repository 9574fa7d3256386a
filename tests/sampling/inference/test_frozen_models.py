import gymnasium as gym
import numpy as np
import pytest
import torch

from sample_factory.config.sections import ModelFlags
from sample_factory.models.actor_critic import make_actor_critic
from sample_factory.sampling.inference.frozen_models import FrozenModels, UnreadableOpponent

OBSERVATIONS = {"obs": torch.randn(5, 3)}
FLAGS = ModelFlags(encoder_mlp_layers=(8,), hidden_size=8)


def make_model(seed, flags=FLAGS):
    torch.manual_seed(seed)
    space = gym.spaces.Dict(obs=gym.spaces.Box(-9, 9, (3,), np.float32))
    return make_actor_critic(flags, space, gym.spaces.Discrete(4)).requires_grad_(False)


def save(folder, seed, flags=FLAGS):
    """Returns (path, the model that is in it)."""
    model, path = make_model(seed, flags), folder / f"{seed}.milestone"
    torch.save({"model": model.state_dict(), "train_step": seed}, path)
    return str(path), model


def outputs(model):
    state = torch.ones(5, 8)
    output = model.act(OBSERVATIONS, state)
    return torch.cat([output.logits, output.values[:, None], output.rnn_state], dim=1)


def test_a_past_self_answers_as_the_weights_in_its_file_do(tmp_path):
    frozen = FrozenModels(make_model(0), limit=2)
    for seed in (1, 2, 3, 1):
        path, original = save(tmp_path, seed)
        acting = frozen.get(path)
        assert torch.equal(outputs(acting.model), outputs(original)) and acting.stamp.version == seed


def test_the_live_model_stays_as_it_is(tmp_path):
    live = make_model(0)
    before, frozen = outputs(live), FrozenModels(live, limit=1)
    for seed in (1, 2):
        frozen.get(save(tmp_path, seed)[0])
    assert torch.equal(outputs(live), before)


def test_no_more_than_so_many_are_in_memory_and_the_one_that_rested_longest_goes(tmp_path):
    frozen = FrozenModels(make_model(0), limit=2)
    paths = [save(tmp_path, seed)[0] for seed in (1, 2, 3)]
    for path in (paths[0], paths[1], paths[0], paths[2]):
        frozen.get(path)
        assert len(frozen) <= 2
    torch.save({}, paths[0])  # it is in memory, so its file is not read again
    frozen.get(paths[0])
    torch.save({}, paths[1])
    with pytest.raises(UnreadableOpponent):
        frozen.get(paths[1])


@pytest.mark.parametrize("damage", ["missing", "cut off", "of another model", "of no model", "empty"])
def test_a_file_that_cannot_be_used_is_named(tmp_path, damage):
    path, _ = save(tmp_path, 1, ModelFlags(encoder_mlp_layers=(9,), hidden_size=8))
    if damage == "missing":
        path = str(tmp_path / "none.milestone")
    elif damage == "of no model":
        torch.save({"weights": 1}, path)
    elif damage != "of another model":
        (tmp_path / "1.milestone").write_bytes(b"PK" if damage == "cut off" else b"")
    frozen = FrozenModels(make_model(0), limit=2)
    with pytest.raises(UnreadableOpponent, match=path):
        frozen.get(path)
    good, original = save(tmp_path, 2)
    assert torch.equal(outputs(frozen.get(good).model), outputs(original)), "others are not concerned"


class TooLarge(torch.nn.Linear):
    """There is memory for one only."""

    def __deepcopy__(self, memo):
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_too_little_memory_is_no_fault_of_the_file(tmp_path):
    live = TooLarge(1, 1)
    path = str(tmp_path / "1.milestone")
    torch.save({"model": live.state_dict(), "train_step": 1}, path)
    with pytest.raises(torch.OutOfMemoryError):
        FrozenModels(live, limit=1).get(path)
