"""Values of the run reach envs of all kinds; when they do, is tested in tests/sampling."""

import gymnasium as gym
import numpy as np
import pytest

from sample_factory.envs.abilities import TrainingInfo
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.protocol import ObservationRows
from sample_factory.envs.wrappers.frame_stack import stack_frames

BOX = gym.spaces.Box(0, 1, (2,), np.float32)


class Noting(gym.Env, TrainingInfo):
    observation_space, action_space = BOX, gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}


class Pair:
    """Two agents in lists; the env resets itself."""

    num_agents, observation_space, action_space = 2, BOX, gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return [np.zeros(2, np.float32)] * 2, [{}, {}]

    def step(self, actions):
        return [np.zeros(2, np.float32)] * 2, [0.0, 0.0], [False] * 2, [False] * 2, [{}, {}]

    def close(self):
        pass


def test_the_envs_in_a_vector_env_get_them_too():
    vector = gym.vector.SyncVectorEnv([Noting] * 3)
    adapted = adapt(gym.wrappers.vector.RecordEpisodeStatistics(vector))
    assert adapted.training_info.has_receiver
    adapted.reset(0, ObservationRows.allocate(adapted.kinds))
    adapted.training_info.put({"level": 1})
    assert [env.training_info for env in vector.envs] == [{"level": 1}] * 3


def test_envs_that_ignore_values_are_known():
    assert adapt(Noting()).training_info.has_receiver
    assert not adapt(Pair()).training_info.has_receiver
    plain = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")])
    assert not adapt(plain).training_info.has_receiver
    adapt(Pair()).training_info.put({"level": 1})


def test_values_pass_a_stack_of_frames():
    class Picture(Noting):
        observation_space = gym.spaces.Box(0, 255, (8, 8, 1), np.uint8)

    stacked = stack_frames(adapt(Picture()), 2)
    assert stacked is not None and stacked.training_info.has_receiver


def test_an_env_without_values_has_an_empty_mapping_that_cannot_be_changed():
    assert dict(Noting().training_info) == {}
    with pytest.raises(TypeError):
        Noting().training_info["level"] = 1
