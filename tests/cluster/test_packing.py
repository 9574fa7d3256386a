"""Trajectories travel as bytes, and arrive as they were."""

import numpy as np
import pytest

from sample_factory.cluster.traffic import pack, unpack
from sample_factory.config import algorithms
from sample_factory.config.algorithms import AlgorithmInfo
from sample_factory.runtime.registry import Registry
from tests.counting import CountingEnv, make_config, make_shared, poison


@pytest.fixture(params=[False, True], ids=["", "with costs"])
def two_machines(request, monkeypatch):
    """Returns buffers of a node, full of random bytes, and those of the learner's machine, which are more."""
    own = AlgorithmInfo("my.module:Mine", needs_costs=request.param)
    monkeypatch.setattr(algorithms, "_REGISTRY", Registry("algo", {"APPO": own}))
    node, _ = make_shared(make_config(), CountingEnv())
    learner, _ = make_shared(make_config(num_workers=3), CountingEnv())
    rng = np.random.default_rng(1)
    floats = (node.rewards, node.costs, node.versions, node.chunk_rnn_states)
    for array in (node.obs["obs"], node.outputs, *floats):
        array.view(np.uint8)[...] = rng.integers(0, 255, array.view(np.uint8).shape, np.uint8)
    for array in (node.terminated, node.truncated, node.active_at_end):
        array[...] = rng.random(array.shape) < 0.5
    return node, learner


def test_all_arrays_that_learners_read_arrive_bit_by_bit(two_machines):
    node, learner = two_machines
    sent = np.array([3, 1])
    received = np.array([7, 0])
    unpack(learner, pack(node, 0, sent), received)
    names = "outputs versions generations rewards costs terminated truncated policy_ids active_at_end"
    for name in (*names.split(), "chunk_rnn_states"):
        there, here = getattr(node, name)[sent], getattr(learner, name)[received]
        assert there.tobytes() == here.tobytes(), name
    assert node.obs["obs"][sent].tobytes() == learner.obs["obs"][received].tobytes()


def test_repetitive_frames_travel_in_a_fraction_of_their_size(two_machines):
    node, _ = two_machines
    poison(node)
    raw = sum(array[:2].nbytes for array in (node.obs["obs"], node.outputs, node.chunk_rnn_states))
    assert len(pack(node, 0, np.array([0, 1])).data) < raw / 2
