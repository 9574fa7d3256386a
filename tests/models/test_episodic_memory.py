"""An episodic memory: what is kept, and how it is read."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from sample_factory.config.sections import ModelFlags
from sample_factory.models.episodic_memory import AGEING, EMPTY, KEY_SIZE, TEMPERATURE, EpisodicMemory
from sample_factory.models.towers import make_actor_critic
from sample_factory.spaces.actions import action_layout

S = gym.spaces
SPACE = S.Dict(obs=S.Box(-np.inf, np.inf, (5,), np.float32))
ACTIONS = S.Tuple([S.Discrete(3), S.Box(-1, 1, (2,))])
STEPS, ROWS, SLOTS = 7, 4, 16
ENCODING, BELIEF = 6, 4
SMALL = {"hidden_size": 16, "encoder_mlp_layers": (12,), "episodic_slots": SLOTS}


def make_memory(num_slots=SLOTS):
    torch.manual_seed(0)
    return EpisodicMemory(num_slots, action_layout(ACTIONS), ENCODING, BELIEF)


def fill(memory, count=SLOTS):
    generator = torch.Generator().manual_seed(3)
    keys = normalize(torch.randn(count, KEY_SIZE, generator=generator), dim=1)
    values = torch.randn(count, memory.values.shape[1], generator=generator)
    memory.write(keys, values, torch.arange(count, dtype=torch.float32))


def named(memory):
    """Returns the first number of each value, which names a moment, of the slots that hold something."""
    return sorted(memory.values[memory.priorities > EMPTY][:, 0].tolist())


def write(memory, names, priorities):
    values = torch.zeros(len(names), memory.values.shape[1])
    values[:, 0] = torch.tensor(names, dtype=torch.float32)
    keys = normalize(torch.ones(len(names), KEY_SIZE), dim=1)
    memory.write(keys, values, torch.tensor(priorities, dtype=torch.float32))


def test_rare_moments_are_kept_longer_than_frequent_ones():
    """Nine of ten moments are frequent; one that is e times rarer stays for 1 / AGEING writes more, and until
    all slots have been written."""
    memory = make_memory(num_slots=10)
    write(memory, [1] * 5, [2.3] * 5)  # rare: -log(0.1)
    writes = 0
    while 1 in named(memory):
        write(memory, [0], [0.1])  # frequent: -log(0.9)
        writes += 1
    assert 0 <= writes - (2.3 - 0.1) / AGEING <= 11


def test_a_rare_moment_replaces_a_frequent_one_and_not_the_reverse():
    memory = make_memory(num_slots=3)
    write(memory, [1, 2, 3], [1.0, 2.0, 3.0])
    write(memory, [4], [0.5])
    assert named(memory) == [1, 2, 3]
    write(memory, [5], [1.5])
    assert named(memory) == [2, 3, 5]


def test_moments_that_are_not_finite_or_not_to_be_kept_are_never_read():
    memory = make_memory()
    fill(memory, count=3)
    encodings = torch.randn(ROWS, ENCODING)
    before = memory(encodings)
    memory.write(torch.ones(1, KEY_SIZE), torch.full((1, memory.values.shape[1]), torch.nan), torch.ones(1))
    memory.write(torch.ones(1, KEY_SIZE), torch.ones(1, memory.values.shape[1]), torch.tensor([EMPTY]))
    torch.testing.assert_close(memory(encodings), before)


def test_reading_is_a_softmax_of_cosines_with_one_more_choice_to_remember_nothing():
    memory = make_memory()
    assert memory.read(torch.randn(ROWS, ENCODING)).abs().sum() == 0, "empty"
    fill(memory, count=3)
    encoding = torch.randn(ENCODING)
    query = memory.query_layer(encoding)
    weights = [torch.exp(memory.no_memory / TEMPERATURE)]
    used = (memory.priorities > EMPTY).nonzero().flatten().tolist()
    weights += [torch.exp(query @ memory.keys[i] / query.norm() / TEMPERATURE) for i in used]
    expected = sum(w * memory.values[i] for w, i in zip(weights[1:], used)) / sum(weights)
    torch.testing.assert_close(memory.read(encoding), expected)


def test_a_value_holds_the_action_the_return_and_the_belief():
    memory = make_memory()
    value = memory.value_of(
        torch.tensor([[2.0, 0.25, -0.5]]), torch.tensor([3.0]), torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    )
    assert value[0].tolist() == pytest.approx([0, 0, 1, 0.25, -0.5, 3, 0.1, 0.2, 0.3, 0.4])


def test_the_memory_changes_what_the_policy_does():
    torch.manual_seed(0)
    model = make_actor_critic(ModelFlags(**SMALL, episodic_memory=True), SPACE, ACTIONS)
    observations = {"obs": torch.randn(STEPS, ROWS, 5)}
    state = torch.zeros(ROWS, model.state_size)
    before = model.unroll(observations, state).logits
    fill(model.towers[0].memory)
    assert (model.unroll(observations, state).logits - before).abs().max() > 1e-3


def test_without_it_the_network_has_no_trace_of_it():
    with_it, without = (
        make_actor_critic(ModelFlags(**SMALL, episodic_memory=used), SPACE, ACTIONS) for used in (True, False)
    )
    extra = with_it.state_dict().keys() - without.state_dict().keys()
    assert extra and all(name.startswith("towers.0.memory.") for name in extra)
    assert without.towers[0].memory is None and not without.state_dict().keys() - with_it.state_dict().keys()
