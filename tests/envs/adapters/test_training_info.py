"""Values of the run reach envs of all kinds; when they do, is tested in tests/sampling."""

import gymnasium as gym
import numpy as np
import pytest

from sample_factory.envs.abilities import TrainingInfo
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.protocol import ObservationRows
from sample_factory.envs.wrappers.frame_stack import stack_frames
from tests.counting import CountingEnv
from tests.envs.adapters.countdown import Countdown


class Receiving(Countdown, TrainingInfo):
    pass


def test_the_envs_in_a_vector_env_get_them_too():
    vector = gym.vector.SyncVectorEnv([Receiving] * 3)
    adapted = adapt(gym.wrappers.vector.RecordEpisodeStatistics(vector))
    assert adapted.training_info.has_receiver
    adapted.reset(0, ObservationRows.allocate(adapted.kinds))
    adapted.training_info.put({"level": 1})
    assert [env.training_info for env in vector.envs] == [{"level": 1}] * 3


def test_envs_that_ignore_values_are_known():
    assert adapt(Receiving()).training_info.has_receiver
    pair = adapt(CountingEnv(num_agents=2))
    assert not pair.training_info.has_receiver
    plain = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")])
    assert not adapt(plain).training_info.has_receiver
    pair.training_info.put({"level": 1})


def test_values_pass_a_stack_of_frames():
    picture = gym.spaces.Box(0, 255, (8, 8, 1), np.uint8)
    stacked = stack_frames(adapt(Receiving(picture)), 2)
    assert stacked is not None and stacked.training_info.has_receiver


def test_an_env_without_values_has_an_empty_mapping_that_cannot_be_changed():
    assert dict(Receiving().training_info) == {}
    with pytest.raises(TypeError):
        Receiving().training_info["level"] = 1
