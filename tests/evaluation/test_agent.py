import gymnasium as gym
import numpy as np
import pytest

from sample_factory import register_env
from sample_factory.config.flags import ConfigError
from sample_factory.evaluation.agent import load_agent

MIXED = gym.spaces.Dict({"goal": gym.spaces.Discrete(3, start=1), "speed": gym.spaces.Box(-1, 1, (2,))})


class Mixed(gym.Env):
    """Observations and actions that differ from what is stored."""

    observation_space = MIXED
    action_space = gym.spaces.Discrete(4, start=10)


@pytest.mark.parametrize("env_name", ["gym_CartPole-v1", "gym_Pendulum-v1", "gym_Taxi-v4"])
def test_an_agent_acts_with_the_observations_and_actions_of_the_env(saved_experiment, env_name):
    flags = saved_experiment(env_name, "--use_rnn=True")
    with gym.make(env_name.removeprefix("gym_")) as env:
        agent = load_agent(flags, env.observation_space, env.action_space)
        observation, _ = env.reset(seed=1)
        for _ in range(3):
            action = agent.act(observation)
            assert env.action_space.contains(action)
            observation, *_ = env.step(action)


def test_observations_of_several_parts_and_actions_with_a_start_are_converted(choosing, tmp_path):
    register_env("mixed", lambda name: Mixed())
    choosing("mixed", action=2)
    agent = load_agent(["--experiment=tiny", f"--train_dir={tmp_path}"], MIXED, Mixed.action_space)
    assert agent.act({"goal": 3, "speed": np.zeros(2, np.float32)}) == 12


def test_an_agent_remembers_until_it_is_reset(saved_experiment):
    with gym.make("Pendulum-v1") as env:
        flags = [*saved_experiment("gym_Pendulum-v1", "--use_rnn=True"), "--eval_deterministic=True"]
        agent = load_agent(flags, env.observation_space, env.action_space)
        observation, _ = env.reset(seed=1)
        first, second = agent.act(observation), agent.act(observation)
        agent.reset()
        assert agent.act(observation) == first != second


def test_an_agent_without_a_checkpoint_is_an_error(tmp_path):
    with pytest.raises(ConfigError):
        load_agent(["--experiment=nothing", f"--train_dir={tmp_path}"], MIXED, Mixed.action_space)


class Blinker(gym.Env):
    """Pictures whose pixels all have the number of the step."""

    observation_space = gym.spaces.Box(0, 255, (6, 6), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self._picture(), {}

    def step(self, action):
        self.time += 1
        return self._picture(), 0.0, False, False, {}

    def _picture(self):
        return np.full((6, 6), self.time, np.uint8)


def test_an_agent_stacks_the_images_since_its_reset_as_the_training_did(saved_experiment, monkeypatch):
    register_env("blinker", lambda name: Blinker())
    flags = saved_experiment("blinker", "--env_framestack=3", "--use_rnn=False", "--hidden_size=8")
    env = Blinker()
    agent = load_agent(flags, env.observation_space, env.action_space)
    seen = []
    act = agent._policy.act

    def recorded(observations, rnn_state):
        seen.append(observations["obs"][0, :, 0, 0].tolist())
        return act(observations, rnn_state)

    monkeypatch.setattr(agent._policy, "act", recorded)
    for _ in range(2):
        observation, _ = env.reset()
        agent.reset()
        for _ in range(4):
            observation, *_ = env.step(agent.act(observation))
    assert seen == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]] * 2
