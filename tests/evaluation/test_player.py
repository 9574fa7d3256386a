"""The loop, with a policy that counts the steps since its state was zero."""

import torch

from sample_factory.envs.adapters import adapt
from sample_factory.evaluation.player import EpisodeResult, Player
from tests.evaluation.playable_envs import UnevenAgents


class CountingPolicy:
    """The action is the number of steps since the state was zero, counted from 1."""

    def first_state(self, num_agents):
        return torch.zeros(num_agents, 1)

    def act(self, observations, state):
        assert observations["obs"].shape == (len(state), 3)
        return (state + 1).numpy().copy(), state + 1


def play(num_steps):
    env = UnevenAgents()
    player = Player(adapt(env), [CountingPolicy()] * 2, frameskip=4)
    player.start(None)
    return env, player, [player.step() for _ in range(num_steps)]


def test_the_state_is_zero_when_an_episode_begins_and_after_inactivity():
    env, _, _ = play(6)
    assert [actions[0] for actions in env.actions] == [1, 2, 1, 2, 1, 2]
    # Step 2 of 3 finds agent 1 inactive: its action is zero and its state starts anew; the policy still runs.
    assert [actions[1] for actions in env.actions] == [1, 0, 2, 1, 0, 2]


def test_episodes_are_reported_in_env_frames_with_their_objective():
    _, player, finished = play(3)
    assert finished == [[], [EpisodeResult(0, 2.0, 8, 10.0)], [EpisodeResult(1, 3.0, 12, 11.0)]]
    assert player.env_frames == 12
