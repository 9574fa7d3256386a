"""Games that we record, by Minari's reader, beside a replay in Gymnasium. The other way: in simulators/."""

import gymnasium as gym
import minari
import numpy as np
import pytest

from sample_factory.envs.adapters.adapt import adapt
from sample_factory.imitation.games import Episode, save_games
from sample_factory.imitation.recorded_env import RecordedEnv
from tests.conformance.ledger import AT_LEAST, Tally
from tests.conformance.product import train_on

ENVS = pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])


def make(env_id):
    limit = {"Pendulum-v1": 15}.get(env_id)  # such episodes are all cut, and CartPole's all end
    return gym.make(env_id, **({} if limit is None else {"max_episode_steps": limit}))


@ENVS
def test_minari_reads_the_games_that_we_record(env_id, tmp_path, count):
    games: list[Episode] = []
    env = RecordedEnv(adapt(make(env_id)), lambda agent, episode: games.append(episode))
    train_on(env, 5_000)
    games = games[:AT_LEAST]
    save_games(str(tmp_path / "games"), env.kinds.spaces[0], games, {})
    dataset = minari.MinariDataset(tmp_path / "games" / "data")
    assert dataset.total_episodes == len(games) == AT_LEAST
    seeds = [found["seed"] for found in dataset.storage.get_episode_metadata(dataset.episode_indices)]
    plain = make(env_id)
    num_steps = 0
    for read, seed in zip(dataset, seeds, strict=True):
        observation, _ = plain.reset(seed=int(seed))
        for t, action in enumerate(read.actions):
            np.testing.assert_array_equal(read.observations[t], observation)
            observation, reward, terminated, truncated, _ = plain.step(action)
            assert read.rewards[t] == pytest.approx(float(reward), rel=1e-6)
            assert (read.terminations[t], read.truncations[t]) == (terminated, truncated)
        assert terminated or truncated
        num_steps += len(read.actions)
    assert num_steps == dataset.total_steps
    count("minari", Tally("", len(games), num_steps))
