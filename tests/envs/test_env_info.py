"""Properties of an env that are probed before a run."""

import time

import gymnasium as gym
import numpy as np

from sample_factory.envs.abilities import LimitsEpisodes
from sample_factory.envs.env_info import max_episode_steps, probe_env_info, probe_own_spaces
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.runtime import child_side
from sample_factory.runtime.log import log
from tests.counting import make_config


class Match(gym.Env, LimitsEpisodes):
    def max_episode_steps(self):
        return 2100


def test_the_limit_of_an_episode_is_that_of_its_spec_or_what_the_env_says():
    assert max_episode_steps(gym.make("CartPole-v1")) == 500
    assert max_episode_steps(gym.wrappers.RecordEpisodeStatistics(Match())) == 2100
    assert max_episode_steps(gym.Env()) is None


class NeverCloses(gym.Env):
    observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self):
        child_side.END_SECONDS = 0.3  # shorter than usual, in this process only

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def close(self):
        time.sleep(10_000)


def test_an_env_whose_close_never_returns_is_probed_with_a_line_that_names_it(monkeypatch, caplog):
    monkeypatch.setattr(log, "propagate", True)
    family = EnvFamily("never_closes", lambda name: NeverCloses(), None, {})
    cfg = make_config().namespace()
    assert probe_env_info(family, cfg).num_agents == 1
    assert probe_own_spaces(family, cfg, policy_id=0).action == NeverCloses.action_space
    assert len(caplog.messages) == 2
    assert all("Ended by force" in line and "close (test_env_info.py:" in line for line in caplog.messages)
