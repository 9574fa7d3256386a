"""Whole runs of a batched simulator of torch: what is reported is what happened in it."""

from collections import defaultdict

import pytest

import sample_factory
from sample_factory import Observer
from tests.envs.simulators import TorchCrowd

NUM_COPIES = 8


class Collects(Observer):
    def __init__(self):
        self.episodes = defaultdict(list)

    def on_episode(self, run, episode):
        self.episodes[episode.agent_id].append((episode.length, episode.reward))


def assert_as_in_the_simulator(copy, episodes):
    lengths = [3 + (number + copy) % 5 for number in range(len(episodes))]
    assert episodes == [(length, length * (length + 1) / 2) for length in lengths]


@pytest.mark.parametrize("serial", [True, False], ids=["serial", "inline"])
def test_train_and_evaluate_a_simulator(tmp_path, serial):
    collected = Collects()
    small = {"train_dir": tmp_path, "device": "cpu", "seed": 1, "serial_mode": serial}
    result = sample_factory.run(
        TorchCrowd,
        "crowd",
        **small,
        vector_env_copies=NUM_COPIES,
        train_for_env_steps=2000,
        encoder_mlp_layers=(8,),
        decorrelate_envs_on_one_worker=False,
        observers=[collected],
    )
    assert result.env_frames >= 2000
    assert sorted(collected.episodes) == list(range(NUM_COPIES))
    for copy, episodes in collected.episodes.items():
        assert len(episodes) > 20
        assert_as_in_the_simulator(copy, episodes)

    evaluation = sample_factory.evaluate("crowd", num_episodes=3 * NUM_COPIES, **small)
    played = defaultdict(list)
    for episode in evaluation.episodes:
        played[episode.agent].append((episode.length, episode.reward))
    for copy in range(NUM_COPIES):
        assert len(played[copy]) == 3
        assert_as_in_the_simulator(copy, played[copy])
