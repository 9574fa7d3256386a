"""Envs that step in threads of their own: both halves of a step, and how rollout workers overlap them."""

import itertools
import pickle

import numpy as np
import pytest

from sample_factory.envs.abilities import StepsInBackground, TrainingInfo
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.protocol import ObservationRows
from sample_factory.envs.wrappers.frame_stack import ActionRepeat, FrameStack
from sample_factory.exchange.messages import (
    ActionsReady,
    EpisodeReport,
    Incident,
    NewTrainingInfo,
    StatsReport,
)
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.queues import LocalQueue
from sample_factory.sampling.rollout import rollout_worker
from sample_factory.sampling.rollout.guarded_env import GuardedEnv
from sample_factory.sampling.rollout.rollout_worker import RolloutWorker
from tests.counting import EPISODE, STEP, assert_lines_up, make_config, make_plan, make_shared
from tests.crowd import NUM_ACTIONS, SHORTEST_EPISODE, CountingCrowd

SEND, RECEIVE, VALUES = "send", "receive", "values"


class BackgroundCrowd(CountingCrowd, StepsInBackground, TrainingInfo):
    """A CountingCrowd whose halves of steps are logged as (half, env), and values as ("values", env).

    raises_in: a half that raises once.
    """

    def __init__(self, env_id, log, raises_in=None):
        super().__init__(env_id)
        self.env_id = env_id
        self.log = log
        self.raises_in = raises_in

    def step(self, actions):
        raise AssertionError("both halves are called, not step")

    def send(self, actions):
        self._log(SEND)
        self._sent = actions.copy()

    def receive(self):
        self._log(RECEIVE)
        return super().step(self._sent)

    def set_training_info(self, training_info):
        super().set_training_info(training_info)
        self.log.append((VALUES, self.env_id))

    def _log(self, half):
        self.log.append((half, self.env_id))
        if self.raises_in == half:
            self.raises_in = None
            raise RuntimeError(f"{half} failed")


class Inline:
    """A rollout worker with two splits and a policy that answers after each turn, as in an inline sampler."""

    def __init__(self, index=0, **flags):
        self.log = []
        config = make_config(num_envs_per_worker=2, worker_num_splits=2, **flags)
        self.buffers, channels = make_shared(config, CountingCrowd(0))
        self.channels = channels._replace(inboxes=[LocalQueue(), LocalQueue()], requests=[LocalQueue()])
        family = EnvFamily("crowd", self._make_env, None, {})
        plan = make_plan(config, CountingCrowd(0), family).sampling.envs
        self.context = ChildContext("test")
        self.worker = RolloutWorker(plan, index, self.buffers, self.channels, self.context)
        self.finished = []

    def _make_env(self, name, env_config):
        return BackgroundCrowd(env_config.env_id, self.log)

    def turn(self):
        self.worker.step(timeout=0.0)
        for request in self.channels.requests[0].get_many(0.0):
            at = request.buffer_indices, request.step
            obs = self.buffers.obs["obs"][at]
            self.buffers.outputs[at] = 0.0
            self.buffers.outputs[(*at, 0)] = (obs[:, STEP] + 10 * obs[:, EPISODE]) % NUM_ACTIONS
            ready = ActionsReady(request.split, 0, request.incarnation)
            self.channels.inboxes[request.worker_index].put(ready)
        for tickets in self.channels.learners[0].get_many(0.0):
            for buffer in tickets.buffer_indices:
                assert_lines_up(self.buffers, buffer)
            self.finished += tickets.buffer_indices
            self.buffers.release(np.array(tickets.buffer_indices), 0)


def test_one_split_steps_while_the_actions_of_the_other_are_computed():
    inline = Inline()
    for _ in range(40):
        inline.turn()
    in_flight = set()
    for half, env in inline.log:
        if half == SEND:
            assert env not in in_flight
            in_flight.add(env)
        else:
            assert in_flight == {0, 1}, "the other split was sent before this one was waited for"
            in_flight.remove(env)
    assert len(inline.log) > 60


def test_values_of_the_run_reach_an_env_between_two_steps():
    inline = Inline()
    for number in range(40):
        inline.channels.inboxes[0].put(NewTrainingInfo(0, pickle.dumps({"number": number})))
        inline.turn()
    for env in (0, 1):
        calls = [call for call, called in inline.log if called == env]
        assert calls.count(VALUES) == 40 - (calls[-1] == SEND)
        after_send = [following for call, following in itertools.pairwise(calls) if call == SEND]
        assert len(after_send) > 10 and set(after_send) == {RECEIVE}


def test_the_pause_after_the_first_rollout_does_not_hold_up_the_process():
    inline = Inline(index=1, num_workers=2, decorrelate_experience_max_seconds=20.0)
    while not inline.finished:
        inline.turn()
    for _ in range(5):  # the other split ends its step
        inline.turn()
    num_calls = len(inline.log)
    assert not inline.worker.step(timeout=0.0) and len(inline.log) == num_calls
    inline.worker._not_before = 0.0
    for _ in range(100):
        inline.turn()
    assert len(inline.log) > num_calls + 100


def test_what_is_stored_lines_up_over_rollouts_and_episodes():
    inline = Inline()
    for _ in range(5 * SHORTEST_EPISODE):
        inline.turn()
    assert len(inline.finished) > 4 * 40
    reports = [message for message in inline.channels.reports.get_many(0.0) if isinstance(message, list)]
    episodes = [report for message in reports for report in message]
    assert len(episodes) > 80 and all(isinstance(report, EpisodeReport) for report in episodes)
    assert len(reports) < len(episodes) / 4, "the episodes that end in one step are one message"


@pytest.mark.parametrize("is_watched", [True, False])
def test_memory_that_doubles_is_reported_unless_the_process_also_learns(is_watched, monkeypatch):
    # Less growth than LEAK_MB above the double is not reported.
    sizes = itertools.chain([100.0, 350.0, 500.0, 600.0], itertools.repeat(1000.0))
    monkeypatch.setattr(rollout_worker, "REPORT_SECONDS", 1e-9)
    monkeypatch.setattr(rollout_worker, "private_mb", lambda: next(sizes))
    inline = Inline()
    if is_watched:  # not in --serial_mode
        inline.worker.watch_process()
    for _ in range(10):
        inline.turn()
    inline.context.stopping.set()
    reports = inline.channels.reports.get_many(0.0)
    assert any(isinstance(report, StatsReport) for report in reports)
    incidents = [(report.kind, report.text) for report in reports if isinstance(report, Incident)]
    text = "worker 0 has grown from 100 to 500 MB: do its envs leak?"
    assert incidents == ([("memory_growth", text)] if is_watched else [])


def test_an_env_around_another_that_needs_whole_steps_does_not_step_in_the_background():
    env = adapt(BackgroundCrowd(0, []))
    assert env.steps_in_background and FrameStack(env, 2).steps_in_background
    for whole in (adapt(CountingCrowd(0)), ActionRepeat(env, 2), FrameStack(ActionRepeat(env, 2), 2)):
        assert not whole.steps_in_background
    with pytest.raises(TypeError, match="ActionRepeat does not step in the background"):
        ActionRepeat(env, 2).send(np.zeros((env.num_agents, 1), np.float32))


@pytest.mark.parametrize("half", [SEND, RECEIVE])
def test_an_env_that_raises_in_either_half_is_rebuilt(half):
    log = []
    envs = [BackgroundCrowd(0, log, raises_in=half), BackgroundCrowd(0, log)]
    reported = []

    def make():
        return adapt(envs.pop(0))

    def report(text, details):
        reported.append(text)

    guarded = GuardedEnv(make, "worker 0: env 0", 0, np.zeros(1, int), report)
    rows = ObservationRows.allocate(guarded.kinds)
    guarded.reset(1, rows)
    actions = np.zeros((guarded.num_agents, 1), np.float32)
    assert guarded.steps_in_background
    guarded.send(actions)
    assert guarded.receive(rows) is None
    assert len(reported) == 1 and f"{half} failed" in reported[0]
    guarded.send(actions)
    assert guarded.receive(rows).rewards.tolist() == [1.0] * guarded.num_agents
