"""EpisodeRunner with policies that count the steps since their recurrent state was zero."""

import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sample_factory.envs.adapters.adapt import adapt
from sample_factory.evaluation.episode_runner import EpisodeRunner
from sample_factory.evaluation.results import EpisodeResult
from tests.evaluation.playable_envs import Undrawable, UnevenAgents


class CountingPolicy:
    """Its action is the number of steps since the state was zero, counted from 1, plus `offset`.

    `batch_sizes`: rows of each forward pass.
    """

    def __init__(self, offset=0):
        self.offset = offset
        self.batch_sizes = []

    def first_rnn_state(self, num_agents):
        return torch.zeros(num_agents, 1)

    def act(self, observations, state):
        assert observations["obs"].shape == (len(state), 3)
        self.batch_sizes.append(len(state))
        return (state + 1 + self.offset).numpy(), state + 1


def play(num_steps, policies=None):
    env = UnevenAgents()
    runner = EpisodeRunner(adapt(env), policies or [CountingPolicy()] * 2, frameskip=4)
    runner.start(None)
    return env, runner, [runner.step() for _ in range(num_steps)]


def test_the_state_is_zero_when_an_episode_begins_and_after_inactivity():
    env, _, _ = play(6)
    assert [actions[0] for actions in env.actions] == [1, 2, 1, 2, 1, 2]
    # Step 2 of 3 finds agent 1 inactive: its action is zero; the policy still runs, and its state is reset.
    assert [actions[1] for actions in env.actions] == [1, 0, 1, 1, 0, 1]


def test_the_step_that_only_resets_a_copy_leaves_no_trace_in_its_next_episode():
    copies = SyncVectorEnv([Undrawable] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    runner = EpisodeRunner(adapt(copies), [CountingPolicy()] * 2, frameskip=1)
    runner.start(None)
    counts = []
    for _ in range(8):
        runner.step()
        counts.append(runner.actions[:, 0].tolist())
    assert counts == [[count] * 2 for count in (1, 2, 3, 0, 1, 2, 3, 0)]


def test_episodes_are_reported_in_env_frames_with_their_objective():
    _, runner, finished = play(3)
    assert finished == [[], [EpisodeResult(0, 2.0, 8, 10.0)], [EpisodeResult(1, 3.0, 8, 11.0)]]
    assert runner.env_frames == 12


def test_agents_that_share_a_policy_share_its_forward_pass():
    policy = CountingPolicy()
    play(3, [policy, policy])
    assert policy.batch_sizes == [2, 2, 2]


def test_each_agent_follows_its_own_policy_and_has_its_own_state():
    policies = [CountingPolicy(10), CountingPolicy(20)]
    env, _, _ = play(6, policies)
    assert [actions[0] for actions in env.actions] == [11, 12, 11, 12, 11, 12]
    assert [actions[1] for actions in env.actions] == [21, 0, 21, 21, 0, 21]
    assert [policy.batch_sizes for policy in policies] == [[1] * 6] * 2


def test_assigning_other_policies_resets_the_recurrent_states():
    policies = [CountingPolicy(10), CountingPolicy(20)]
    env, runner, _ = play(1, policies)
    runner.assign(policies[::-1])
    runner.step()
    assert env.actions == [[11, 21], [21, 0]]  # agent 0 would have counted on to 12
    runner.step()
    assert env.actions[2] == [21, 11]
