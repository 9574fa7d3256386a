"""Games that Minari's DataCollector records, in our imitation. It needs JAX, which the suite lacks."""

import gymnasium as gym
import minari
import numpy as np
import pytest

from sample_factory.__main__ import command
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.imitation.games import load_games
from tests.conformance.ledger import AT_LEAST, Tally


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_imitation_reads_the_games_that_minari_collects(env_id, data_format, tmp_path, monkeypatch, count):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    collector = minari.DataCollector(gym.make(env_id), data_format=data_format)
    collector.action_space.seed(1)
    played = []
    for seed in range(AT_LEAST // 4):
        observation, _ = collector.reset(seed=seed)
        steps, seen, is_over = [], [observation], False
        while not is_over:
            action = collector.action_space.sample()
            observation, *results, _ = collector.step(action)
            steps.append((np.ravel(action), *results))
            seen.append(observation)
            is_over = results[1] or results[2]
        played.append((np.stack(seen), [np.stack(column) for column in zip(*steps)]))
    name = "ledger/plain-v0"
    collector.create_dataset(name, description="", author="", author_email="", code_permalink="")
    spaces = adapt(gym.make(env_id)).kinds.spaces[0]
    num_steps = 0
    for own, (seen, (actions, rewards, terminated, truncated)) in zip(
        load_games(name, spaces), played, strict=True
    ):
        np.testing.assert_array_equal(own.observations["obs"], seen)
        np.testing.assert_array_equal(own.actions, actions)
        np.testing.assert_array_equal(own.rewards, rewards)
        np.testing.assert_array_equal(own.terminated, terminated)
        np.testing.assert_array_equal(own.truncated, truncated)
        num_steps += len(rewards)
    count("minari", Tally("", len(played), num_steps))
    place = [f"--env=gym_{env_id}", "--experiment=clone", f"--train_dir={tmp_path / 'runs'}", "--device=cpu"]
    small = ["--imitate_epochs=1", "--hidden_size=8", "--encoder_mlp_layers", "8", "--use_rnn=False"]
    assert command("imitate")([*place, *small, f"--games={name}", "--batch_size=256", "--rollout=32"]) == 0
