"""Episodes of a Gymnasium vector env in an EnvVector: true objectives and statistics reach the reports."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from sample_factory.sampling.rollout.env_vector import EnvVector
from tests.counting import RAW_REWARDS, make_config, make_shared
from tests.envs.adapters.countdown import Countdown
from tests.sampling.matchmaking.matchmakers import random_matchmaker
from tests.sampling.rollout.test_env_vector import Named, no_actions

LENGTHS = (2, 3)
NUM_STEPS = 16  # one rollout


class Scored(Countdown):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            info["true_objective"] = 10.0 * self.length
            info["episode_extra_stats"] = {"number": self.episode}
        return observation, reward, terminated, truncated, info


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_each_episode_is_reported_with_its_true_objective_and_statistics(mode):
    vector_env = gym.vector.SyncVectorEnv(
        [lambda length=length: Scored(length=length) for length in LENGTHS], autoreset_mode=mode
    )
    buffers, _ = make_shared(
        make_config(worker_num_splits=1, num_envs_per_worker=1, rollout=NUM_STEPS), vector_env
    )
    matchmaker = random_matchmaker(1, [0] * len(LENGTHS), True, np.random.default_rng(0))
    vector = EnvVector([Named(vector_env, 0)], [matchmaker], buffers, 0, 0, RAW_REWARDS)
    buffers.outputs[:] = 0.0
    vector.reset([None], [0], no_actions)
    for _ in range(NUM_STEPS):
        vector.step()
    reports = vector.log.take_reports()
    for length in LENGTHS:
        own = [report for report in reports if report.reward == length]
        steps_per_episode = length + (mode == AutoresetMode.NEXT_STEP)
        assert len(own) == (NUM_STEPS + steps_per_episode - length) // steps_per_episode
        for number, report in enumerate(own):
            assert report.true_objective == 10.0 * length and report.length == length
            assert report.extra_stats["number"] - own[0].extra_stats["number"] == number
