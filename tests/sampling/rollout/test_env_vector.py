import gc
import sys
from typing import NamedTuple

import numpy as np
import pytest

from sample_factory.config import algorithms
from sample_factory.config.algorithms import AlgorithmInfo
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.protocol import (
    EPISODE_CONTINUES,
    NO_END_INFOS,
    EnvContractError,
    StepResult,
)
from sample_factory.exchange.messages import EpisodeReport, Incident
from sample_factory.exchange.trajectory_buffers import INACTIVE, WAITING
from sample_factory.runtime.registry import Registry
from sample_factory.sampling.rollout import env_vector
from sample_factory.sampling.rollout.env_vector import EnvVector
from tests.counting import (
    EPISODE,
    LAST_ACTION,
    NUM_ACTIONS,
    RAW_REWARDS,
    STEP,
    CountingEnv,
    assert_lines_up,
    counts,
    make_config,
    make_shared,
)
from tests.envs.parallel_envs import Alternating
from tests.sampling.matchmaking.matchmakers import random_matchmaker


class Named:
    """A GuardedEnv that catches no errors. loses: steps, counted from 0, in which it is rebuilt instead."""

    steps_in_background = False

    def __init__(self, env, number, loses=()):
        self.env, self.name, self.loses, self.steps = env, f"worker 0: env {number} (counting)", loses, 0
        self.adapted = adapt(env)
        self.takes_turns = self.adapted.takes_turns

    def reset(self, seed, into):
        self.active_after_reset = self.adapted.reset(seed, into)

    def step(self, actions, into):
        self.steps += 1
        if self.steps - 1 in self.loses:
            self.active_after_reset = self.adapted.reset(None, into)
            return None
        return self.adapted.step(actions, into)


def no_actions(rows):
    """Returns the first action for all agents of an env."""
    return np.zeros((len(rows.buffers), 1), np.float32)


def make_env(env_id, num_agents, sleeper):
    return Named(CountingEnv(env_id, num_agents, sleeper), env_id)


def make_vector(
    num_agents=1,
    num_policies=1,
    sleeper=1000,
    plan=RAW_REWARDS,
    num_logits=1,
    **flags,
):
    config = make_config(worker_num_splits=1, num_policies=num_policies, **flags)
    envs = [make_env(env_id, num_agents, sleeper) for env_id in range(config.sampling.num_envs_per_worker)]
    buffers, _ = make_shared(config, envs[0].env, num_logits)
    rng = np.random.default_rng(0)
    matchmakers = [random_matchmaker(num_policies, [0] * num_agents, True, rng) for _ in envs]
    vector = EnvVector(envs, matchmakers, buffers, 0, 0, plan)
    vector.reset([None] * len(envs), [0] * len(envs), no_actions)
    return vector, buffers


def make_party(env, **flags):
    """Returns an EnvVector of one env, and its buffers."""
    buffers, _ = make_shared(make_config(worker_num_splits=1, num_envs_per_worker=1, **flags), env)
    named = Named(env, 0)
    matchmaker = random_matchmaker(1, [0] * named.adapted.num_agents, True, np.random.default_rng(0))
    vector = EnvVector([named], [matchmaker], buffers, 0, 0, RAW_REWARDS)
    vector.reset([None], [0], no_actions)
    return vector, buffers


class Trajectory(NamedTuple):
    """A full buffer and the policies whose learners get it."""

    buffer: int
    policy_ids: list[int]


def finish(vector):
    """Returns the trajectory of each agent of a rollout, or None while there are too few free buffers."""
    full = vector.finish_rollout()
    if full is None:
        return None
    return [Trajectory(int(buffer), np.flatnonzero(acted).tolist()) for buffer, acted in zip(*full)]


def play(vector, buffers, steps):
    """Acts as the counting model would. Returns the finished trajectories."""
    finished = []
    for _ in range(steps):
        if vector.memory.is_full:
            done = finish(vector)
            assert done is not None
            finished += done
        for policy, request in vector.requests():
            obs = buffers.obs["obs"][request.buffer_indices, request.step]
            buffers.outputs[request.buffer_indices, request.step] = 0.0
            buffers.outputs[request.buffer_indices, request.step, 0] = (
                obs[:, STEP] + 10 * obs[:, EPISODE]
            ) % NUM_ACTIONS
            buffers.versions[request.buffer_indices, request.step] = policy
            buffers.generations[request.buffer_indices, request.step] = 0
        vector.step()
    return finished


@pytest.mark.parametrize("num_agents", [1, 3])
def test_each_row_follows_from_the_row_before(num_agents):
    vector, buffers = make_vector(num_agents)
    finished = play(vector, buffers, 9)
    assert len(finished) == 2 * num_agents
    for trajectory in finished:
        assert_lines_up(buffers, trajectory.buffer)


def test_the_last_observation_of_a_rollout_is_the_first_of_the_next():
    vector, buffers = make_vector()
    finished = play(vector, buffers, 8 + 1)
    first = [t.buffer for t in finished]
    current = vector.requests()[0][1].buffer_indices
    assert np.array_equal(buffers.obs["obs"][first, 8], buffers.obs["obs"][current, 0])
    assert not set(first) & set(current)


def test_rewards_are_scaled_and_then_clipped_but_reported_raw():
    vector, buffers = make_vector(plan=RAW_REWARDS._replace(reward_scale=0.5, reward_clip=1.0))
    finished = play(vector, buffers, 9)
    steps = buffers.obs["obs"][finished[0].buffer, :8, STEP] + 1
    assert np.array_equal(buffers.rewards[finished[0].buffer], np.minimum(steps * 0.5, 1.0))
    assert vector.log.take_reports()[0].reward == 1 + 2 + 3


@pytest.mark.parametrize("broken", [np.inf, -np.inf, np.nan])
def test_a_non_finite_reward_is_stored_as_nan(broken):
    vector, buffers = make_vector(plan=RAW_REWARDS._replace(reward_scale=0.5, reward_clip=1.0))
    buffers_used, shape = vector.memory.buffer_indices, vector.memory.buffer_indices.shape
    vector._store(np.full(shape, broken), np.zeros(shape, bool), np.zeros(shape, bool))
    assert np.isnan(buffers.rewards[buffers_used, 0]).all()


class Lives(CountingEnv):
    """Every second episode is the end of a life only."""

    def _step_agent(self, agent, action):
        *result, info = super()._step_agent(agent, action)
        return *result, {**info, EPISODE_CONTINUES: self.episode[agent] % 2 == 1}


def test_an_episode_that_continues_ends_for_the_learner_but_is_reported_with_the_next():
    vector, buffers = make_party(Lives())
    (buffer,) = vector.requests()[0][1].buffer_indices
    finished = play(vector, buffers, 3)
    assert buffers.terminated[buffer, 2] and not vector.log.take_reports()
    buffers.rnn_state[buffer] = 7.0
    play(vector, buffers, 4)
    assert buffers.truncated[buffer, 6] and not buffers.rnn_state[buffer].any()
    (report,) = vector.log.take_reports()
    assert not finished and (report.length, report.reward) == (3 + 4, 1 + 2 + 3 + 1 + 2 + 3 + 4)


def test_an_episode_is_reported_once_with_its_length():
    vector, buffers = make_vector()
    play(vector, buffers, 9)
    lengths = [(report.length, report.reward) for report in vector.log.take_reports()]
    # Env 0: episodes of 3 and 4 steps within 9; env 1: of 4 and 5.
    assert sorted(lengths) == [(3, 6.0), (4, 10.0), (4, 10.0), (5, 15.0)]


def test_truncation_is_not_termination():
    vector, buffers = make_vector()
    finished = play(vector, buffers, 9)
    b = finished[0].buffer
    assert not (buffers.terminated[b] & buffers.truncated[b]).any()
    episodes = buffers.obs["obs"][b, :8, EPISODE]
    assert (episodes[buffers.truncated[b]] % 2 == 1).all() and (
        episodes[buffers.terminated[b]] % 2 == 0
    ).all()
    assert buffers.truncated[b].any() and buffers.terminated[b].any()


def test_an_inactive_agent_has_no_requests_and_its_steps_are_marked():
    vector, buffers = make_vector(num_agents=2, sleeper=1)
    finished = play(vector, buffers, 9)
    active, sleeper = finished[0].buffer, finished[1].buffer
    assert (buffers.policy_ids[active] == 0).all()
    # It sleeps in the step after each third one.
    assert [i for i in range(8) if buffers.policy_ids[sleeper, i] == INACTIVE] == [3, 6]
    assert buffers.obs["obs"][sleeper, 4, LAST_ACTION] == 0.0, "an inactive agent acts with zeros"
    assert_lines_up(buffers, sleeper)


def test_buffers_show_which_agents_are_inactive_after_a_rollout():
    vector, buffers = make_vector(num_agents=2, sleeper=1, batch_size=256)
    finished = play(vector, buffers, 3 * 8 + 1)
    # The sleeper sleeps in the steps 3, 6, 9, ..., counted from 0: in step 24, but neither in 8 nor in 16.
    assert [bool(buffers.active_at_end[trajectory.buffer]) for trajectory in finished[0::4]] == [True] * 3
    assert [bool(buffers.active_at_end[trajectory.buffer]) for trajectory in finished[1::4]] == [
        True,
        True,
        False,
    ]


def test_a_policy_changes_only_where_an_episode_ends():
    vector, buffers = make_vector(num_agents=4, num_policies=3, num_envs_per_worker=3)
    changes = 0
    for _ in range(60):
        for trajectory in play(vector, buffers, 8):
            b = trajectory.buffer
            ids = buffers.policy_ids[b]
            ended = buffers.terminated[b] | buffers.truncated[b]
            switched = np.flatnonzero(ids[1:] != ids[:-1])
            assert ended[switched].all()
            assert set(trajectory.policy_ids) == set(ids)
            changes += len(switched)
            for policy in trajectory.policy_ids:
                buffers.release(np.array([b]), policy)
    assert changes > 0


def test_without_free_buffers_the_rollout_stays_whole_and_can_be_finished_later():
    vector, buffers = make_vector()
    held = []
    while True:
        play(vector, buffers, 0)
        while not vector.memory.is_full:
            play(vector, buffers, 1)
        done = finish(vector)
        if done is None:
            break
        held += done
    free, owned, pending = counts(buffers)
    assert (free, owned, pending) == (buffers.topology.num_buffers - 2 - len(held), 2, len(held)) and free < 2
    buffers.release(np.array([t.buffer for t in held]), 0)
    assert len(finish(vector)) == 2


class Ended(CountingEnv):
    """Agent 1 ends its episode in the first step, and is reported as ended and inactive in every step."""

    def _step_agent(self, agent, action):
        result = super()._step_agent(agent, action)
        return result if agent == 0 else (result[0], 0.0, True, False, {"is_active": False})


def test_an_agent_that_stays_inactive_has_one_episode():
    vector, buffers = make_party(Ended(0, 2))
    play(vector, buffers, 9)
    assert sorted(report.length for report in vector.log.take_reports()) == [1, 3, 4]


class RewardedWhileInactive(Ended):
    """Agent 1 gets rewards also while it is inactive."""

    def _step_agent(self, agent, action):
        result = super()._step_agent(agent, action)
        if agent == 0 or self.total_steps <= 3:
            return result
        if self.total_steps == 6:  # active again from the next step on
            return result[0], 5.0, False, False, {}
        return result[0], 100.0, False, self.total_steps == 8, {"is_active": self.total_steps == 7}


def test_rewards_between_two_episodes_of_an_agent_belong_to_neither():
    vector, buffers = make_party(RewardedWhileInactive(0, 2))
    play(vector, buffers, 8)
    returns = [report.reward for report in vector.log.take_reports()]
    # Agent 1 is inactive from the first step on; its next two active steps follow the sixth.
    assert returns == [0.0, 1.0 + 2 + 3, 1.0 + 2 + 3 + 4, 100.0 + 100.0]


class Latecomer(CountingEnv):
    """Agent 1 is inactive in the first step of an episode of the env."""

    def reset(self, seed=None, options=None):
        return super().reset()[0], [{}, {"is_active": False}]


def test_an_agent_that_is_inactive_after_the_reset_has_no_requests():
    vector, buffers = make_party(Latecomer(0, 2))
    (_, request), *_ = vector.requests()
    assert len(request.buffer_indices) == 1
    finished = play(vector, buffers, 9)
    joined = buffers.policy_ids[finished[1].buffer]
    assert list(joined) == [INACTIVE, *[0] * 7]


def test_what_a_player_gets_while_it_waits_for_its_turn_counts_for_its_last_turn():
    vector, buffers = make_party(Alternating(num_turns=5))
    buffers.rnn_state[:] = 7.0
    mine, other = play(vector, buffers, 9)
    assert (buffers.rnn_state[vector.memory.buffer_indices] == 0).all(), "both games have ended"
    # Each player's turn is rewarded with 1, the opponent's next with 10; the last turn with 2 and 20.
    expected = {
        mine.buffer: ([0, WAITING] * 2 + [0] + [0, WAITING, 0], {0: 11, 2: 11, 4: 2, 5: 11, 7: 1}),
        other.buffer: ([INACTIVE, 0, WAITING, 0, WAITING, INACTIVE, 0, WAITING], {1: 11, 3: 21, 6: 11}),
    }
    for buffer, (policies, rewards) in expected.items():
        assert buffers.policy_ids[buffer].tolist() == policies
        assert {t: float(buffers.rewards[buffer, t]) for t in rewards} == rewards
        ends = [t for t in rewards if buffers.terminated[buffer, t]]
        assert ends == ([4] if buffer == mine.buffer else [3])


def test_the_recurrent_state_of_a_player_lasts_while_it_waits_and_ends_with_the_game():
    vector, buffers = make_party(Alternating())
    states = []
    for _ in range(3):
        buffers.rnn_state[:] = 7.0
        play(vector, buffers, 1)
        states.append(buffers.rnn_state[vector.memory.buffer_indices, 0].tolist())
    assert states == [[7, 7], [7, 7], [0, 0]]


def test_an_agent_that_is_inactive_after_a_rebuild_has_no_requests():
    vector, buffers = make_party(Latecomer(0, 2))
    vector.envs[0].loses = (2,)
    finished = play(vector, buffers, 9)
    first, joined = (list(buffers.policy_ids[trajectory.buffer]) for trajectory in finished[:2])
    assert first == [0, 0, INACTIVE, 0, 0, 0, 0, 0]
    assert joined == [INACTIVE, 0, INACTIVE, INACTIVE, 0, 0, 0, 0]


def test_with_alternation_the_learner_gets_a_trajectory_even_of_an_agent_that_never_acted():
    vector, buffers = make_party(Ended(0, 2), async_rl=False)
    for _ in range(3):
        for trajectory in play(vector, buffers, 8):
            assert list(trajectory.policy_ids) == [0]
            buffers.release(np.array([trajectory.buffer]), 0)


@pytest.mark.parametrize("num_agents", [1, 2])
def test_a_step_in_which_the_env_was_rebuilt_is_not_trained_on_and_ends_no_episode(num_agents):
    vector, buffers = make_vector(num_agents)
    vector.envs[1].loses = (2,)
    buffers.rnn_state[:] = 7.0
    first = play(vector, buffers, 8 + 1)  # one step beyond the rollout, so that it is handed over
    lost = [trajectory.buffer for trajectory in first][num_agents : 2 * num_agents]
    others = [trajectory.buffer for trajectory in first][:num_agents]
    for buffer in lost:
        assert (buffers.policy_ids[buffer, :8] == [0, 0, INACTIVE, 0, 0, 0, 0, 0]).all()
        assert buffers.obs["obs"][buffer, 3, STEP] == 0 and buffers.rewards[buffer, 2] == 0.0
        assert not buffers.terminated[buffer, 2] and not buffers.truncated[buffer, 2]
        assert buffers.rewards[buffer, 3] == 1.0, "a new episode"
    for buffer in others:
        assert (buffers.policy_ids[buffer, :8] == 0).all()
    lengths = [report.length for report in vector.log.take_reports() if report.length]
    assert all(length >= 3 for length in lengths), "no episode was cut short by the loss"


def test_an_env_that_is_rebuilt_in_the_random_first_steps_begins_with_a_new_episode():
    vector, buffers = make_vector()
    vector.envs[0].loses = (2,)
    vector.reset([None] * 2, [4, 4], no_actions)
    assert buffers.obs["obs"][vector.memory.buffer_indices, 0, STEP].tolist() == [
        1,
        0,
    ]  # lost in its third step; 3 steps, 1 more


def test_a_rebuilt_env_starts_with_a_recurrent_state_of_zero():
    vector, buffers = make_vector()
    vector.envs[0].loses = (0,)
    buffers.rnn_state[:] = 7.0
    play(vector, buffers, 1)
    assert buffers.rnn_state[vector.memory.buffer_indices].ravel().tolist() == [0.0, 7.0]


def test_a_non_finite_reward_is_logged_once_with_the_env_and_counted_each_time():
    vector, buffers = make_vector()
    step = vector.envs[1].step
    vector.envs[1].step = lambda actions, into: step(actions, into)._replace(rewards=(float("nan"),))
    play(vector, buffers, 2)
    incidents = [report for report in vector.log.take_reports() if isinstance(report, Incident)]
    assert [incident.kind for incident in incidents] == ["broken_numbers"] * 2
    assert incidents[0].text.startswith("worker 0: env 1 (counting) gave agent 0 the reward nan")
    assert incidents[1].text == ""


def test_an_implausible_reward_is_clipped_logged_once_and_counted_each_time_beside_broken_ones():
    vector, buffers = make_vector(plan=RAW_REWARDS._replace(reward_scale=0.5, reward_clip=1000.0))
    step = vector.envs[1].step
    rewards = iter([1e38, float("nan"), -3e6, 1.9e3, 1.0])
    vector.envs[1].step = lambda actions, into: step(actions, into)._replace(rewards=(next(rewards),))
    play(vector, buffers, 5)
    stored = buffers.rewards[vector.memory.buffer_indices[1], :5]
    assert np.array_equal(stored, [1000, np.nan, -1000, 950, 0.5], equal_nan=True)
    incidents = [report for report in vector.log.take_reports() if isinstance(report, Incident)]
    kinds = ["implausible_numbers", "broken_numbers", "implausible_numbers"]
    assert [incident.kind for incident in incidents] == kinds
    assert incidents[0].text == (
        "worker 0: env 1 (counting) gave agent 0 the reward 1e+38; training clips rewards to +-1000, see "
        "--reward_scale and --reward_clip (health/implausible_numbers counts them)"
    )
    assert [bool(incident.text) for incident in incidents] == [True, True, False]


@pytest.mark.parametrize(("clip", "is_reported"), [(1000.0, True), (1.0, False)])
def test_rewards_that_the_default_clips_are_reported_and_those_of_a_chosen_clip_are_not(clip, is_reported):
    vector, buffers = make_vector(plan=RAW_REWARDS._replace(reward_clip=clip))
    step = vector.envs[0].step
    vector.envs[0].step = lambda actions, into: step(actions, into)._replace(rewards=(1500.0,))
    play(vector, buffers, 2)
    assert (buffers.rewards[vector.memory.buffer_indices[0], :2] == clip).all()
    incidents = [report for report in vector.log.take_reports() if isinstance(report, Incident)]
    assert [incident.kind for incident in incidents] == ["implausible_numbers"] * 2 * is_reported
    assert not is_reported or "reward 1500.0; training clips rewards to +-1000" in incidents[0].text


class Talkative(CountingEnv):
    """Reports texts among its statistics."""

    def _step_agent(self, agent, action):
        *result, info = super()._step_agent(agent, action)
        return *result, {**info, "episode_extra_stats": {"map": "corridor", "kills": self.episode[agent]}}


def test_statistics_that_are_no_numbers_are_left_out_with_one_line(caplog):
    vector, buffers = make_vector()
    vector.envs[1].adapted = adapt(Talkative(1, 1, 1000))
    vector.reset([None, None], [0, 0], no_actions)
    play(vector, buffers, 20)
    reports = [report for report in vector.log.take_reports() if isinstance(report, EpisodeReport)]
    assert {tuple(report.extra_stats) for report in reports} == {(), ("kills",)}
    (line,) = caplog.messages
    assert line.startswith(
        "worker 0: env 1 (counting): left out of an episode's statistics: 'map': 'corridor'"
    )


class Costly(CountingEnv):
    """Each step costs 2."""

    statistics = {}

    def _step_agent(self, agent, action):
        *result, info = super()._step_agent(agent, action)
        return *result, {**info, "cost": 2, "episode_extra_stats": self.statistics}


def test_the_sum_of_an_episodes_costs_is_a_statistic_unless_the_env_has_its_own_of_this_name():
    vector, buffers = make_vector()
    for own, env in zip(({}, {"cost": 0.5}), vector.envs):
        costly = Costly(int(own != {}), 1, 1000)
        costly.statistics = own
        env.adapted = adapt(costly)
    vector.reset([None, None], [2, 0], no_actions)
    play(vector, buffers, 20)
    reports = [report for report in vector.log.take_reports() if isinstance(report, EpisodeReport)]
    assert len(reports) > 5 and {report.agent_id for report in reports} == {0, 1}
    for report in reports:
        assert report.extra_stats["cost"] == (2 * report.length if report.agent_id == 0 else 0.5)


@pytest.fixture
def stores_costs(monkeypatch):
    own = AlgorithmInfo("my.module:Mine", needs_costs=True)
    monkeypatch.setattr(algorithms, "_REGISTRY", Registry("algo", {"APPO": own}))


@pytest.mark.usefixtures("stores_costs")
def test_trajectories_have_the_costs_of_their_steps_and_0_in_steps_without_one():
    vector, buffers = make_vector()
    for env_id, env in enumerate(vector.envs):
        env.adapted = adapt(Costly(env_id, 1, 1000) if env_id else CountingEnv(env_id, 1, 1000))
    vector.reset([None, None], [0, 0], no_actions)
    play(vector, buffers, 1)
    vector.envs[1].loses = (1,)
    play(vector, buffers, 2)
    stored = buffers.costs[vector.memory.buffer_indices, :3]
    assert stored.tolist() == [[0, 0, 0], [2, 0, 2]], "the second step of env 1 was lost"


@pytest.mark.usefixtures("stores_costs")
def test_what_a_player_costs_while_it_waits_for_its_turn_counts_for_its_last_one():
    memory = make_vector()[0].memory
    nothing, none = np.zeros(2), np.zeros(2, bool)
    memory.store(nothing, none, none, np.array([0, 0]), np.array([1.0, 2.0]))
    memory.step = 1
    memory.store(nothing, none, none, np.array([WAITING, 0]), np.array([4.0, 8.0]))
    assert memory._buffers.costs[memory.buffer_indices, :2].tolist() == [[5.0, 4.0], [2.0, 8.0]]


@pytest.mark.usefixtures("stores_costs")
def test_an_env_without_costs_is_refused_where_the_algorithm_needs_them():
    vector, buffers = make_vector()
    with pytest.raises(
        EnvContractError, match="env 0 .counting.: the algorithm needs info..cost.., a number"
    ):
        play(vector, buffers, 9)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_non_finite_cost_is_refused_with_the_env_and_the_agent(broken):
    vector, buffers = make_vector()
    step = vector.envs[1].step
    vector.envs[1].step = lambda actions, into: step(actions, into)._replace(costs=(broken,))
    with pytest.raises(EnvContractError, match=f"env 1 .counting. gave agent 0 the cost {broken}; info"):
        play(vector, buffers, 1)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_non_finite_reward_does_not_make_the_episodes_return_non_finite(broken):
    vector, buffers = make_vector()
    step = vector.envs[1].step
    rewards = iter([broken, *[1.0] * 10])
    vector.envs[1].step = lambda actions, into: step(actions, into)._replace(rewards=(next(rewards),))
    play(vector, buffers, 4)
    returns = [report.reward for report in vector.log.take_reports() if isinstance(report, EpisodeReport)]
    assert 3.0 in returns and np.isfinite(returns).all(), "env 1: an episode of 4 steps"


class Batched:
    """A GuardedEnv of many agents without Python per agent; no episode ever ends."""

    name = "worker 0: env 0 (batched)"
    active_after_reset = None

    steps_in_background = takes_turns = False

    def __init__(self, num_agents):
        self.num_agents = num_agents

    def reset(self, seed, into):
        self._observe(into)

    def step(self, actions, into):
        self._observe(into)
        no_agent = np.zeros(self.num_agents, bool)
        return StepResult(np.ones(self.num_agents), no_agent, no_agent, NO_END_INFOS, None)

    def _observe(self, into):
        shape = into.arrays["obs"].shape[2:]
        into.write_all({"obs": np.zeros((self.num_agents, *shape), np.float32)})


def num_python_calls(num_agents):
    """Returns the number of Python function calls in a rollout of so many agents."""
    config = make_config(worker_num_splits=1, num_envs_per_worker=1, num_policies=2)
    buffers, _ = make_shared(config, CountingEnv(0, num_agents))
    matchmakers = [random_matchmaker(2, [0] * num_agents, True, np.random.default_rng(0))]
    vector = EnvVector([Batched(num_agents)], matchmakers, buffers, 0, 0, RAW_REWARDS)
    vector.reset([None], [0], no_actions)
    events = []
    gc.disable()  # finalizers of objects that other tests have left would count, too
    sys.setprofile(lambda frame, event, _: events.append(event))
    try:
        while not vector.memory.is_full:
            vector.requests()
            vector.step()
        vector.finish_rollout()
    finally:
        sys.setprofile(None)
        gc.enable()
    return events.count("call")


def test_without_ended_episodes_no_python_runs_per_agent():
    num_python_calls(10)  # imports that NumPy does when they are first needed
    assert num_python_calls(10) == num_python_calls(300)


def test_random_first_steps_of_slow_envs_end_in_time_in_proportion_and_count_as_progress(monkeypatch):
    now = [0.0]
    beats = []
    monkeypatch.setattr(env_vector.time, "monotonic", lambda: now[0])

    def slow_step(self, actions, into):
        now[0] += 2.0  # seconds
        self.steps += 1
        return self.adapted.step(actions, into)

    monkeypatch.setattr(Named, "step", slow_step)
    vector, _ = make_vector(num_envs_per_worker=2)
    vector.reset([None, None], [60, 20], no_actions, lambda: beats.append(now[0]), max_seconds=16.0)
    # 12 s and 4 s: envs keep their shares, so that they stay decorrelated.
    assert [env.steps for env in vector.envs] == [6, 2]
    assert now[0] == 16.0
    assert len(beats) == 8 + 2
