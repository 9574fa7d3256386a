"""Repeated actions: --eval_env_frameskip."""

import types

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sample_factory.config.flags import ConfigError
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_info import env_info
from sample_factory.envs.protocol import FRAMES_LEFT_OUT, ObservationRows
from sample_factory.envs.wrappers.frame_stack import ActionRepeat, FrameSkip
from sample_factory.exchange.topology import make_topology
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers, kind_layouts
from sample_factory.runtime.failures import Failure
from sample_factory.sampling.rollout.env_vector import EnvVector
from sample_factory.sampling.rollout.guarded_env import GuardedEnv
from tests.counting import RAW_REWARDS, make_config
from tests.envs.adapters.countdown import Countdown, drive
from tests.envs.parallel_envs import Scripted, Turn
from tests.evaluation.playable_envs import Cards, Undrawable
from tests.sampling.matchmaking.matchmakers import random_matchmaker
from tests.sampling.rollout.test_env_vector import Named

MODES = pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)


@MODES
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("times", [2, 3, 4])
def test_an_episode_of_a_vector_env_is_counted_from_its_first_step_to_its_last(mode, copies, times):
    env = SyncVectorEnv([Undrawable] * copies, autoreset_mode=mode)
    config = make_config(worker_num_splits=1, num_envs_per_worker=1, rollout=10, batch_size=10)
    info = env_info(adapt(env), types.SimpleNamespace(env_frameskip=times))
    buffers = TrajectoryBuffers(make_topology(config, info), kind_layouts(info.kinds), 0)
    named = Named(env, 0)
    named.adapted = ActionRepeat(named.adapted, times)
    matchmaker = random_matchmaker(1, [0] * copies, True, np.random.default_rng(0))
    vector = EnvVector([named], [matchmaker], buffers, 0, 0, RAW_REWARDS)
    vector.reset([1], [0], None)
    buffers.outputs[:] = 0.0
    for _ in range(10):
        vector.step()
    finished = vector.log.take_reports()
    assert len(finished) >= 3 * copies
    assert {episode.reward for episode in finished} == {1.0 + 2.0 + 3.0}
    assert {episode.length for episode in finished} == {3}, "what was played"


@MODES
def test_copies_whose_episodes_begin_apart_are_refused_at_once(mode):
    def make():
        copies = SyncVectorEnv(
            [lambda: Countdown(length=2), lambda: Countdown(length=3)], autoreset_mode=mode
        )
        return ActionRepeat(adapt(copies), 2)

    with pytest.raises(ConfigError, match="--eval_env_frameskip .*--vector_env_copies=1"):
        drive(make(), [0] * 4)
    rebuilt = []
    guarded = GuardedEnv(make, "env 0", 0, np.zeros(1, int), lambda *texts: rebuilt.append(texts))
    rows = ObservationRows.allocate(guarded.kinds)
    guarded.reset(1, rows)
    with pytest.raises(Failure, match="env 0: --eval_env_frameskip"):
        for _ in range(4):
            guarded.step(np.zeros((2, 1), np.float32), rows)
    assert not rebuilt, "another env would do the same"


def test_an_agent_that_leaves_early_does_not_shorten_the_repeats_of_the_others():
    leaves = Turn("bc", terminated="a")
    own = Scripted([leaves, Turn("bc"), Turn("bc"), Turn("bc"), Turn("", truncated="bc")])
    env = ActionRepeat(adapt(own), 3)
    _, (first, second, third) = drive(env, [0] * 3)
    assert first.rewards.tolist() == [1.0, 3.0, 3.0] and first.terminated.tolist() == [True, False, False]
    assert first.active.tolist() == [False, True, True] and first.end_infos == {
        0: {"time": 1, FRAMES_LEFT_OUT: 2}
    }
    assert second.rewards.tolist() == [0.0, 2.0, 2.0] and second.truncated.tolist() == [False, True, True]
    assert second.active is None, "the new episode waits for its first action"
    assert third.rewards.tolist() == first.rewards.tolist()
    assert len(own.actions) == 3 + 2 + 3


def test_an_end_that_is_reported_again_while_the_agent_waits_is_not_another_one():
    env = ActionRepeat(adapt(Cards(leaves_early=0)), 2)
    _, (result,) = drive(env, [0])
    objectives = [result.end_infos[agent]["true_objective"] for agent in (0, 1)]
    assert objectives == [0.0, 0.0], "-1 would be that of the round that agent 0 has not played"


@pytest.mark.parametrize(("frameskip", "times"), [(4, 1), (3, 1), (5, 1), (2, 2), (1, 4), (2, 3)])
def test_the_frames_of_an_episode_that_ends_within_a_frame_skip_are_those_that_were_played(frameskip, times):
    env = ActionRepeat(adapt(FrameSkip(Countdown(length=10), frameskip)), times, frameskip)
    _, results = drive(env, [0] * 10)
    ended = [step for step, result in enumerate(results, start=1) if any(result.terminated)]
    left_out = results[ended[0] - 1].end_infos[0][FRAMES_LEFT_OUT]
    assert ended[0] * frameskip * times - left_out == 10
