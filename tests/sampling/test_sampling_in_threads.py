"""Rollout worker and policy worker as in a run, but in threads of one process and with the counting model."""

import functools
import math
import pickle
import re
import threading
import time

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sample_factory.envs.env_family import EnvFamily
from sample_factory.exchange import messages
from sample_factory.exchange.messages import (
    ActionsReady,
    EpisodeReport,
    Incident,
    PolicyRequest,
    StatsReport,
    Trajectories,
    reports_in,
)
from sample_factory.exchange.policy_weights import Stamp
from sample_factory.learning.batch import Batcher
from sample_factory.learning.receiver import Handover, Receiver
from sample_factory.models import towers
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.queues import MAX_MESSAGE_BYTES
from sample_factory.sampling.inference import number_reports
from sample_factory.sampling.inference.number_reports import NumberReports
from sample_factory.sampling.inference.policy_worker import PolicyWorker
from sample_factory.sampling.rollout import rollout_worker
from sample_factory.sampling.rollout.rollout_worker import RolloutWorker
from tests.counting import (
    ENV,
    LAST_ACTION,
    NUM_ACTIONS,
    STEP,
    CountingEnv,
    assert_lines_up,
    counts,
    make_config,
    make_plan,
    make_shared,
)
from tests.counting_model import CountingModel


def family(num_agents, env):
    return EnvFamily("counting", lambda name, cfg, env_config: env(env_config.env_id, num_agents), None, {})


class ShowsNaN(CountingEnv):
    """Agent 1 of env 5, the second one of worker 1, sees NaN in every third step."""

    total_steps = 0

    def _observation(self, agent, action):
        observation = super()._observation(agent, action)
        if (self.env_id, agent) == (5, 1) and self.total_steps % 3 == 2:
            observation[LAST_ACTION] = np.nan
        return observation


class ShowsTooMuch(CountingEnv):
    """Agent 1 of env 5, the second one of worker 1, sees a number outside of its space."""

    def _observation(self, agent, action):
        observation = super()._observation(agent, action)
        if (self.env_id, agent) == (5, 1):
            observation[LAST_ACTION] = -2000
        return observation


class RaisesMuch(CountingEnv):
    """Env 5 raises an error with a message of a megabyte in its 20th step."""

    def step(self, actions):
        if self.env_id == 5 and self.total_steps == 20:
            raise LookupError("x" * 1_000_000)
        return super().step(actions)


class AnswersNaN(CountingModel):
    """Its value is inf at the end of every episode."""

    def act(self, observations, state, *choice):
        output = super().act(observations, state, *choice)
        output.values[observations["obs"][:, STEP] == 2] = float("inf")
        return output


class Sampler:
    """Two rollout workers and one policy worker per policy, each in a thread."""

    def __init__(self, monkeypatch, num_agents=1, *, env_class=CountingEnv, model=CountingModel, **flags):
        monkeypatch.setattr(towers, "make_actor_critic", model)
        self.config = make_config(**{"num_workers": 2, "num_envs_per_worker": 4, "batch_size": 128, **flags})
        env = env_class(0, num_agents)
        self.buffers, self.channels = make_shared(self.config, env)
        context = ChildContext("test")
        self.stopping = context.stopping
        self.shared = self.buffers, self.channels, context
        self.plan = make_plan(self.config, env, family(num_agents, env_class)).sampling
        self.workers = [RolloutWorker(self.plan.envs, i, *self.shared) for i in range(2)]
        self.workers += [
            PolicyWorker(self.plan.acting, i, 0, *self.shared)
            for i in range(self.config.sampling.num_policies)
        ]
        for weights in self.channels.weights:
            weights.publish({"weight": np.zeros(1, np.float32)}, Stamp(0))

    def __enter__(self):
        self.threads = [threading.Thread(target=worker.run) for worker in self.workers]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def trajectories(self, count, policy=0):
        """Returns the next full buffers of a policy, at least `count`; the caller must release them."""
        found, deadline = [], time.monotonic() + 30
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {len(found)} of {count} trajectories in 30 s"
            for message in self.channels.learners[policy].get_many(timeout=0.1):
                assert isinstance(message, Trajectories)
                found += message.buffer_indices
        return found


@pytest.mark.parametrize(("num_agents", "max_rows"), [(1, 20_000), (2, 20_000), (3, 4)])
def test_observations_actions_and_states_line_up_over_many_rollouts(monkeypatch, num_agents, max_rows):
    monkeypatch.setattr(messages, "MAX_ROWS", max_rows)  # with 4, a split of 6 agents sends two requests
    with Sampler(monkeypatch, num_agents) as sampler:
        for _ in range(30):
            for buffer in sampler.trajectories(8):
                assert_lines_up(sampler.buffers, buffer)
                # The counting model's value is its state: the number of steps since the episode began.
                steps = sampler.buffers.obs["obs"][buffer, :-1, STEP]
                assert np.array_equal(sampler.buffers.outputs[buffer, :, 2], steps)
                assert sampler.buffers.chunk_rnn_states[buffer, 0, 0] == steps[0]
                assert (sampler.buffers.versions[buffer] == 0).all()
                sampler.buffers.release(np.array([buffer]), 0)


def test_weights_of_another_generation_are_fetched_though_their_version_is_the_same(monkeypatch):
    with Sampler(monkeypatch) as sampler:
        before = np.array(sampler.trajectories(1))
        assert (sampler.buffers.generations[before] == 0).all()
        sampler.buffers.release(before, 0)
        sampler.channels.weights[0].publish({"weight": np.zeros(1, np.float32)}, Stamp(0, 1))
        deadline = time.monotonic() + 30
        is_new = False
        while not is_new:
            assert time.monotonic() < deadline
            buffers = np.array(sampler.trajectories(1))
            is_new = (sampler.buffers.generations[buffers] == 1).all()
            sampler.buffers.release(buffers, 0)


def test_a_state_is_kept_for_every_chunk(monkeypatch):
    with Sampler(monkeypatch, recurrence=2) as sampler:
        for buffer in sampler.trajectories(16):
            steps = sampler.buffers.obs["obs"][buffer, :-1, STEP]
            assert np.array_equal(sampler.buffers.chunk_rnn_states[buffer, :, 0], steps[::2])
            sampler.buffers.release(np.array([buffer]), 0)


def test_every_policy_gets_the_trajectories_it_acted_in(monkeypatch):
    with Sampler(monkeypatch, num_agents=2, num_policies=2) as sampler:
        for policy in (0, 1):
            for buffer in sampler.trajectories(4, policy):
                assert (sampler.buffers.policy_ids[buffer] == policy).any()
                assert_lines_up(sampler.buffers, buffer)


def test_sampling_pauses_while_no_buffer_is_free_and_continues_after_a_release(monkeypatch):
    with Sampler(monkeypatch) as sampler:
        buffers, deadline = sampler.buffers, time.monotonic() + 30
        held = []
        # Until sampling stops: no buffer is released.
        while counts(buffers)[0] >= sampler.buffers.topology.agents_per_split * 2:
            held += sampler.trajectories(1)
            assert time.monotonic() < deadline
        for message in sampler.channels.learners[0].get_many(timeout=0.2):
            held += message.buffer_indices
        assert len(set(held)) == len(held)
        assert len(held) >= sampler.buffers.topology.trajectories_per_batch, (
            "a learner could never fill a batch"
        )
        buffers.release(np.array(held), 0)
        assert sampler.trajectories(8)


def test_with_alternation_no_rollout_starts_before_its_iteration(monkeypatch):
    # 8 agents with rollouts of 8 steps: one rollout of each makes an iteration of 64 samples.
    with Sampler(monkeypatch, async_rl=False, batch_size=64) as sampler:
        first = sampler.trajectories(8)
        assert sampler.channels.learners[0].get_many(timeout=0.3) == []
        sampler.buffers.release(np.array(first), 0)
        assert sampler.channels.learners[0].get_many(timeout=0.3) == [], (
            "it must wait for the learner, not for buffers"
        )
        sampler.channels.progress["iterations"][0] += 1
        assert len(sampler.trajectories(8)) == 8


def test_with_sample_ahead_rollouts_start_one_iteration_early_and_no_earlier(monkeypatch):
    with Sampler(monkeypatch, async_rl=False, sample_ahead=True, batch_size=64) as sampler:
        for missing in (16, 8, 8):  # trajectories, until the learner ends its first, second, third iteration
            while missing > 0:
                full = np.array(sampler.trajectories(1))
                sampler.buffers.release(full, 0)
                missing -= len(full)
            assert missing == 0 and sampler.channels.learners[0].get_many(timeout=0.3) == []
            sampler.channels.progress["iterations"][0] += 1


@pytest.mark.parametrize("turn_of_death", range(12))
def test_with_alternation_every_agent_has_its_share_of_each_iteration_whenever_a_worker_dies(
    monkeypatch, turn_of_death
):
    # Nothing runs in a thread here. An iteration has two rollouts of 2 steps of each of 8 agents, and takes
    # about 12 turns.
    sampler = Sampler(monkeypatch, async_rl=False, batch_size=32, rollout=2)
    buffers, channels = sampler.buffers, sampler.channels
    for inbox in channels.inboxes:  # so that one split is ahead of the other
        inbox.get_many = functools.partial(inbox.get_many, max_messages=1)
    handover = Handover(buffers.topology.max_ready_batches)
    batcher = Batcher(buffers, 0, torch.device("cpu"))
    receiver = Receiver(0, buffers, batcher, channels, handover, lambda ready: None)
    end_of_training, num_trained = math.inf, 0
    for turn in range(50):
        if turn == turn_of_death:
            buffers.reclaim(0)
            sampler.workers[0] = RolloutWorker(sampler.plan.envs, 0, *sampler.shared)
        for worker in sampler.workers:
            worker.step(timeout=0.0)
        receiver.step(16, timeout=0.0)
        batch = handover.take_batch(0.0)
        if batch is not None:
            assert end_of_training == math.inf, "a batch of trajectories that were sampled too early"
            assert (batch.versions == num_trained).all(), "an old policy acted"
            envs = batch.obs["obs"][0, :, ENV].int().tolist()
            assert sorted(envs) == [env for env in range(8) for _ in range(2)]
            end_of_training = turn + 3
        if turn == end_of_training:
            end_of_training, num_trained = math.inf, num_trained + 1
            channels.weights[0].publish({"weight": np.zeros(1, np.float32)}, Stamp(num_trained))
            channels.progress["iterations"][0] = num_trained
    assert num_trained >= 3


def test_episodes_are_reported(monkeypatch):
    with Sampler(monkeypatch) as sampler:
        held = sampler.trajectories(8)
        received = reports_in(sampler.channels.reports.get_many(timeout=1.0))
        reports = [r for r in received if isinstance(r, EpisodeReport)]
        assert held and reports and all(r.reward == r.length * (r.length + 1) / 2 for r in reports)


def incidents(sampler):
    return [
        r
        for r in list(reports_in(sampler.channels.reports.get_many(0.0, 100_000)))
        if isinstance(r, Incident)
    ]


class ForbidsAll(CountingEnv):
    """Agent 1 of env 5, the second one of worker 1, may choose nothing in the third step of an episode."""

    observation_space = spaces.Dict(
        obs=CountingEnv.observation_space, action_mask=spaces.Box(0, 1, (NUM_ACTIONS,), np.int8)
    )

    def _observation(self, agent, action):
        obs = super()._observation(agent, action)
        is_empty = (self.env_id, agent, self.step_of_episode[agent]) == (5, 1, 2)
        return {"obs": obs, "action_mask": np.full(NUM_ACTIONS, not is_empty, np.int8)}


@pytest.mark.parametrize(
    ("env_class", "kind", "is_wrong", "text"),
    [
        (
            ShowsNaN,
            "broken_numbers",
            lambda seen: np.isnan(seen["obs"]).any(axis=-1),
            "its observation had NaN or inf; such steps",
        ),
        (
            ShowsTooMuch,
            "implausible_numbers",
            lambda seen: seen["obs"][..., LAST_ACTION] == -2000,
            "its observation 'obs' has the value -2000.0, outside of its space; such",
        ),
        (
            ForbidsAll,
            "implausible_numbers",
            lambda seen: ~seen["action_mask"].any(axis=-1),
            "its action mask allowed nothing, so a forbidden",
        ),
    ],
)
def test_every_wrong_observation_is_counted_and_the_first_logged_with_worker_env_and_agent(
    monkeypatch, env_class, kind, is_wrong, text
):
    monkeypatch.setattr(number_reports, "CHECK_EVERY", 1)
    with Sampler(monkeypatch, num_agents=2, env_class=env_class) as sampler:
        held = sampler.trajectories(16)
        wrong = is_wrong({key: array[held, :-1] for key, array in sampler.buffers.obs.items()})
        are_trained_on = sampler.buffers.policy_ids[held][wrong] == 0
        found = incidents(sampler)
    assert sum(incident.times for incident in found) >= wrong.sum() > 1
    assert {incident.kind for incident in found} == {kind}
    assert found[0].text.startswith(f"worker 1: env 1, agent 1: {text}")
    assert {incident.text for incident in found[1:]} == {""}
    assert are_trained_on.all() or env_class is not ShowsTooMuch


def test_a_mask_has_to_allow_a_choice_of_each_of_several_actions(monkeypatch):
    found = []
    space = spaces.Dict(action_mask=spaces.Box(0, 1, (5,), np.int8))
    reports = NumberReports(0, space, (2, 3), Sampler(monkeypatch).buffers, found.append)
    masks = np.array([[0, 1, 0, 0, 1], [1, 1, 0, 0, 0], [0, 0, 1, 1, 1], [1, 0, 0, 1, 0]], np.int8)
    reports.check_masks({"action_mask": masks[[0, 3]]}, np.arange(2))
    assert not found
    reports.check_masks({"action_mask": masks}, np.arange(4))
    assert found[0].times == 2


def test_an_error_of_an_env_with_a_very_long_message_fits_into_a_report(monkeypatch):
    found = []
    with Sampler(monkeypatch, env_class=RaisesMuch) as sampler:
        while not found:  # the other worker may be the only one to step for a while
            sampler.buffers.release(np.array(sampler.trajectories(8)), 0)
            found = incidents(sampler)
    assert "worker 1: env 1 (counting) raised and is rebuilt" in found[0].text
    assert all(len(pickle.dumps(incident)) < MAX_MESSAGE_BYTES for incident in found)


def test_every_answer_with_inf_is_counted_and_the_first_logged_with_the_policy(monkeypatch):
    with Sampler(monkeypatch, model=AnswersNaN) as sampler:
        held = sampler.trajectories(16)
        broken = np.isinf(sampler.buffers.outputs[held]).any(axis=-1)
        found = incidents(sampler)
        assert sum(incident.times for incident in found) >= broken.sum() > 1
        assert re.match(
            r"worker \d: env \d, agent 0: policy 0 answered its finite observation with NaN or inf; such",
            found[0].text,
        )
        assert {incident.text for incident in found[1:]} == {""}


def test_requests_of_a_worker_that_has_died_are_dropped(monkeypatch):
    sampler = Sampler(monkeypatch, num_agents=2)
    buffers, worker = sampler.buffers, sampler.workers[-1]
    worker._live.fetch()
    buffers.rnn_state[:] = 7.0
    for kind in buffers.kinds:
        kind.obs["obs"][:] = 0.0
    starts = [buffers.topology.buffers_of(index).start for index in range(2)]
    requests = [PolicyRequest(index, 0, 0, np.array([start]), 1) for index, start in enumerate(starts)]
    buffers.reclaim(0)
    outputs = buffers.outputs.copy()
    worker.answer(requests)
    first, second = (request.buffer_indices for request in requests)
    assert (buffers.rnn_state[first] == 7.0).all() and (buffers.rnn_state[second] == 8.0).all()
    np.testing.assert_equal(buffers.outputs[first], outputs[first])
    assert not sampler.channels.inboxes[0].get_many(0.0)
    assert sampler.channels.inboxes[1].get_many(0.0) == [ActionsReady(0, 0, 1)]


@pytest.mark.parametrize("answer_seconds, longest_wait", [(0.0, 0.004), (0.006, 0.012), (0.5, 0.02)])
def test_a_policy_worker_waits_for_more_requests_the_longer_the_slower_its_answers(
    monkeypatch, answer_seconds, longest_wait
):
    sampler = Sampler(monkeypatch)
    worker, now = sampler.workers[-1], [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(worker, "answer", lambda requests: now.__setitem__(0, now[0] + answer_seconds))
    waits = []

    class OneRequest:
        """Yields one request at a time, and never a second one soon after."""

        def get_many(self, timeout):
            waits.append(timeout)
            return ["request"] if len(waits) % 2 else []

    monkeypatch.setattr(worker, "_requests", OneRequest())
    worker.step(timeout=0.1)
    worker.step(timeout=0.1)
    assert waits == pytest.approx([0.1, 0.004, 0.1, longest_wait])


def test_rollout_workers_report_how_many_samples_they_have_taken(monkeypatch):
    monkeypatch.setattr(rollout_worker, "REPORT_SECONDS", 0.05)
    with Sampler(monkeypatch, num_agents=2) as sampler:
        rollout = sampler.config.learning.rollout
        sampler.buffers.release(np.array(sampler.trajectories(16)), 0)
        time.sleep(0.2)
    reports = list(reports_in(sampler.channels.reports.get_many(0.0, 100_000)))
    own = [report for report in reports if isinstance(report, StatsReport) and report.longest_episode]
    assert sum(report.samples for report in own) >= 16 * rollout
    assert max(report.longest_episode for report in own) <= 7, "the length of the longest episodes"
