"""Properties of an env that are probed before a run."""

import gymnasium as gym

from sample_factory.envs.abilities import LimitsEpisodes
from sample_factory.envs.env_info import max_episode_steps


class Match(gym.Env, LimitsEpisodes):
    def max_episode_steps(self):
        return 2100


def test_the_limit_of_an_episode_is_that_of_its_spec_or_what_the_env_says():
    assert max_episode_steps(gym.make("CartPole-v1")) == 500
    assert max_episode_steps(gym.wrappers.RecordEpisodeStatistics(Match())) == 2100
    assert max_episode_steps(gym.Env()) is None
