import numpy as np
import pytest

from sample_factory.sampling.rollout.shared_reward import SharedReward
from tests.counting import RAW_REWARDS
from tests.sampling.rollout.test_env_vector import make_vector, play

ALL = np.ones(4, bool)


def mix(share, rewards, teams=(0, 0), members=ALL):
    plan = RAW_REWARDS._replace(shared_reward=share, sharers=teams)
    sharing = SharedReward(plan, len(rewards) // len(teams))
    return sharing.mix(np.array(rewards, float), np.array(members)).tolist()


@pytest.mark.parametrize(
    ("share", "mixed"), [(0.0, [8, 2, 0, 4]), (0.5, [6.5, 3.5, 1, 3]), (1.0, [5, 5, 2, 2])]
)
def test_agents_of_an_env_share_a_part_of_the_mean_of_their_team(share, mixed):
    assert mix(share, [8, 2, 0, 4]) == mixed


def test_each_team_shares_by_itself():
    assert mix(1.0, [1, 2, 3, 6], teams=(7, 3, 7, 3)) == [2, 4, 2, 4]


def test_who_does_not_act_neither_gives_nor_gets():
    assert mix(1.0, [6, 100, 2, 8], teams=(0, 0, 0, 1), members=[1, 0, 1, 0]) == [4, 100, 4, 8]


def test_a_reward_that_is_no_number_spoils_those_of_its_team_only():
    mixed = mix(0.5, [float("nan"), 2, 0, 4])
    assert np.isnan(mixed[:2]).all() and mixed[2:] == [1, 3]
    assert mix(1.0, [float("nan"), 2, 0, 4], members=[0, 1, 1, 1])[1:] == [2, 2, 2]


def played_with(first, second):
    plan = RAW_REWARDS._replace(shared_reward=0.5, sharers=(0, 0), reward_scale=2.0)
    vector, buffers = make_vector(2, num_envs_per_worker=1, plan=plan)
    step = vector.envs[0].step
    vector.envs[0].step = lambda actions, into: step(actions, into)._replace(rewards=(first, second))
    play(vector, buffers, 4)
    return vector, buffers.rewards[vector.memory.buffer_indices, :4].tolist()


def test_an_infinite_reward_is_trained_on_by_none_of_its_team():
    assert np.isnan(played_with(3.0, float("inf"))[1]).all()


def test_shared_rewards_are_trained_on_and_each_agents_own_are_reported():
    vector, rewards = played_with(3.0, -1.0)
    assert rewards == [[4.0] * 4, [0.0] * 4]
    reports = {report.agent_id: report.reward / report.length for report in vector.log.take_reports()}
    assert reports == {0: 3.0, 1: -1.0}
