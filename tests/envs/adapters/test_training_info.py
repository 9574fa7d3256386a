"""Values of the run reach envs of all kinds between two episodes."""

import gymnasium as gym
import numpy as np
import pytest

from sample_factory.envs.abilities import TrainingInfo
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.protocol import EnvContractError, ObservationRows
from sample_factory.envs.wrappers.frame_stack import stack_frames

BOX = gym.spaces.Box(0, 1, (2,), np.float32)


class Noting(gym.Env, TrainingInfo):
    """Notes the calls: values and resets. An episode has 3 steps."""

    observation_space, action_space = BOX, gym.spaces.Discrete(2)

    def __init__(self):
        self.calls = []
        self.num_steps = 0

    def set_training_info(self, training_info):
        super().set_training_info(training_info)
        self.calls.append(training_info["level"])

    def reset(self, *, seed=None, options=None):
        self.calls.append("reset")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.num_steps += 1
        return np.zeros(2, np.float32), 0.0, self.num_steps % 3 == 0, False, {}


class Pair:
    """Two agents in lists; the env resets itself."""

    num_agents, observation_space, action_space = 2, BOX, gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return [np.zeros(2, np.float32)] * 2, [{}, {}]

    def step(self, actions):
        return [np.zeros(2, np.float32)] * 2, [0.0, 0.0], [False] * 2, [False] * 2, [{}, {}]

    def close(self):
        pass


class NotingPair(Pair, TrainingInfo):
    pass


def driver(env):
    """Returns the adapted env, and a function that takes a step."""
    adapted = adapt(env)
    rows = ObservationRows.allocate(adapted.kinds)
    adapted.reset(0, rows)
    return adapted, lambda: adapted.step(np.zeros((adapted.num_agents, 1), np.float32), rows)


@pytest.mark.parametrize("wrapped", [False, True])
def test_values_arrive_once_and_before_the_reset_of_the_next_episode(wrapped):
    env = Noting()
    adapted, step = driver(gym.wrappers.TimeLimit(env, 100) if wrapped else env)
    step()
    adapted.training_info.put({"level": 1})
    adapted.training_info.put({"level": 2})
    step()
    assert env.calls == ["reset"], "an episode is not changed while it is played"
    for _ in range(4):
        step()
    assert env.calls == ["reset", 2, "reset", "reset"] and env.training_info == {"level": 2}


def test_an_env_that_resets_itself_gets_them_between_two_steps():
    env = NotingPair()
    adapted, _ = driver(env)
    adapted.training_info.put({"level": 1})
    assert env.training_info == {"level": 1}


def test_the_envs_in_a_vector_env_get_them_too():
    vector = gym.vector.SyncVectorEnv([Noting] * 3)
    adapted, _ = driver(gym.wrappers.vector.RecordEpisodeStatistics(vector))
    assert adapted.training_info.has_receiver
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


def test_an_env_that_rejects_values_violates_the_contract_in_one_line():
    class Strict(Noting):
        def set_training_info(self, training_info):
            raise ValueError(f"no level {training_info['level']}")

    adapted, step = driver(Strict())
    adapted.training_info.put({"level": 7})
    with pytest.raises(
        EnvContractError, match=r"set_training_info\({'level': 7}\) raised ValueError: no level"
    ):
        for _ in range(3):
            step()
