"""Matches against past selves in envs whose agents do not begin and end together."""

import gymnasium as gym
import numpy as np
import pytest

from sample_factory.checkpoints.milestones import Milestone
from sample_factory.envs.abilities import PlaysInTeams
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import env_info
from sample_factory.exchange.messages import MatchReport, Opponents
from sample_factory.exchange.trajectory_buffers import INACTIVE
from sample_factory.launch.plan import plan_envs
from sample_factory.sampling.matchmaking.matchmaking import PastSelves
from sample_factory.sampling.rollout.env_vector import EnvVector
from tests.counting import RAW_REWARDS, make_config, make_shared
from tests.sampling.matchmaking.matchmakers import random_matchmaker
from tests.sampling.rollout.test_env_vector import Named, finish, no_actions

LENGTH = 4  # steps of an episode of the env
PAST_SELVES = tuple(Milestone(0, version, 10 * version) for version in range(8))


class Mortal:
    """Agent 0 plays all steps; agent 1 dies in the second one, and misses every fourth episode altogether."""

    is_multiagent, num_agents = True, 2
    observation_space = gym.spaces.Box(-1, 1e9, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self):
        self.unwrapped = self

    def reset(self, seed=None, options=None):
        self.episode = self.step_of_episode = 0
        return self._observations(), self._infos(is_alive=True)

    def step(self, actions):
        self.step_of_episode += 1
        is_over, dies = self.step_of_episode == LENGTH, self.step_of_episode == 2 and self.takes_part
        rewards = [0.0, 1.0 if self.takes_part else 0.0]
        if is_over:
            self.episode, self.step_of_episode = self.episode + 1, 0
        infos = self._infos(self.step_of_episode < 2)
        return self._observations(), rewards, [is_over, dies], [False, False], infos

    @property
    def takes_part(self):
        return self.episode % 4 != 1

    def _observations(self):
        return [np.zeros(4, np.float32)] * 2

    def _infos(self, is_alive):
        return [{}, {"is_active": is_alive and self.takes_part}]

    def close(self):
        pass


def past_matchmaker(num_agents):
    """Returns the matchmaking of an env in which every match is against past selves."""
    past_selves = PastSelves(1.0)
    past_selves.update(Opponents(0, PAST_SELVES, np.ones((1, len(PAST_SELVES)), np.float32)))
    return random_matchmaker(1, [0] * num_agents, True, np.random.default_rng(0), past_selves)


class Matches:
    """The past selves that act in each step, and the reported results."""

    def __init__(self, num_matches):
        env = Mortal()
        config = make_config(worker_num_splits=1, num_envs_per_worker=1, rollout=LENGTH)
        buffers, _ = make_shared(config, env)
        vector = EnvVector([Named(env, 0)], [past_matchmaker(2)], buffers, 0, 0, RAW_REWARDS)
        vector.reset([None], [0], no_actions)
        self.acting = []  # by match and step: the past selves that act, None for a live policy
        for _ in range(num_matches):
            steps = []
            for _ in range(LENGTH):
                requests = [request for _, request in vector.requests()]
                for request in requests:
                    buffers.outputs[request.buffer_indices, request.step] = 0.0
                steps.append([request.past_self for request in requests])
                vector.step()
            self.acting.append(steps)
            for trajectory in finish(vector):
                if (buffers.policy_ids[trajectory.buffer] != INACTIVE).any():
                    buffers.release(np.array([trajectory.buffer]), 0)
        self.results = [report for report in vector.log.take_reports() if isinstance(report, MatchReport)]


class Pairs(PlaysInTeams):
    """Two teams of two; a step is an episode, and its reward is the agent's team."""

    is_multiagent, num_agents = True, 4
    observation_space, action_space = Mortal.observation_space, Mortal.action_space

    def teams(self):
        return [0, 1, 1, 0]

    def reset(self, seed=None, options=None):
        return [np.zeros(4, np.float32)] * 4, [{}] * 4

    def step(self, actions):
        return self.reset()[0], [*map(float, self.teams())], [True] * 4, [False] * 4, [{}] * 4

    def close(self):
        pass


def test_the_plan_of_a_training_says_who_are_team_mates_and_no_match_rates_them_against_each_other():
    config = make_config(worker_num_splits=1, num_envs_per_worker=1, rollout=16)
    info = env_info(adapt(Pairs()), config.namespace())
    plan = plan_envs(config, EnvFamily("pairs", Pairs, None, {}), None, seed=1, info=info)
    buffers, _ = make_shared(config, Pairs())
    vector = EnvVector([Named(Pairs(), 0)], [past_matchmaker(4)], buffers, 0, 0, plan)
    vector.reset([None], [0], no_actions)
    for _ in range(16):
        for _, request in vector.requests():
            buffers.outputs[request.buffer_indices, request.step] = 0.0
        vector.step()
    results = [report for report in vector.log.take_reports() if isinstance(report, MatchReport)]
    assert len(results) == 2 * 16, "against the two opponents, and not against the team mate"
    assert {report.score for report in results} <= {0.0, 1.0}


@pytest.fixture(scope="module")
def matches():
    return Matches(300)


def test_one_live_policy_and_one_past_self_meet_in_every_match(matches):
    full = [steps[0] for i, steps in enumerate(matches.acting) if i % 4 != 1]
    assert all(len(acting) == 2 and acting.count(None) == 1 for acting in full)
    assert len({tuple(acting) for acting in full}) > 4


def test_each_result_belongs_to_the_two_players_of_the_match(matches):
    met = [steps[0] for i, steps in enumerate(matches.acting) if i % 4 != 1]
    assert len(matches.results) == len(met)
    for result, acting in zip(matches.results, met):
        assert result.past_self in acting


def test_the_agent_that_lives_longer_acts_alone_until_the_match_is_over(matches):
    for i, (first, second, third, last) in enumerate(matches.acting):
        assert first == second and third == last and set(third) <= set(first)
        assert len(third) == 1 and len(first) == (1 if i % 4 == 1 else 2)
