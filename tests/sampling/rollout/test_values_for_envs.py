"""Values of the run reach the envs that a policy plays, in rollout workers and inline samplers."""

import threading

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest

from sample_factory.envs.abilities import RewardShaping, TrainingInfo
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.protocol import EPISODE_CONTINUES
from sample_factory.exchange.messages import EpisodeReport, NewShaping, NewTrainingInfo, reports_in
from sample_factory.exchange.policy_weights import Stamp
from sample_factory.models import towers
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.queues import SocketQueue
from sample_factory.sampling.inline_sampler import InlineSampler
from sample_factory.sampling.matchmaking.matchmaking import CheckedMatchmaking, MatchSetup, PastSelves
from sample_factory.sampling.rollout.env_vector import EnvVector
from sample_factory.sampling.rollout.guarded_env import GuardedEnv
from sample_factory.sampling.rollout.rollout_worker import RolloutWorker
from tests.counting import RAW_REWARDS, make_config, make_plan, make_shared
from tests.counting_model import CountingModel

STEPS = 3  # of an episode


class Level(gym.Env, TrainingInfo, RewardShaping):
    """The first number of the observation is the level that the episode was begun with.

    shaping: the newest. first_shaping: of the first episode. num_lives: episodes of a game.
    """

    observation_space = gym.spaces.Box(-1, 1e9, (4,), np.float32)
    action_space = gym.spaces.Discrete(1000)
    shaping = first_shaping = None
    num_lives, num_lost = 1, 0

    def get_default_reward_shaping(self):
        return {"kill": 0.0}

    def set_reward_shaping(self, shaping, agent):
        self.shaping = shaping

    def reset(self, *, seed=None, options=None):
        self.first_shaping = self.first_shaping or self.shaping
        self.level = self.training_info.get("level", -1)
        self.num_steps = 0
        return self._observation(), {}

    def step(self, action):
        self.num_steps += 1
        info = {"level": np.int64(self.level), "picture": np.zeros(9), "episode_extra_stats": {"x": 1.0}}
        is_over = self.num_steps == STEPS
        self.num_lost += is_over
        if self.num_lost % self.num_lives:
            info[EPISODE_CONTINUES] = True
        return self._observation(), 1.0, is_over, False, info

    def _observation(self):
        return np.array([self.level, 0, 0, 0], np.float32)


class Alternating:
    """Lets the policies play by turns: 0, 1, 0, 1, ..."""

    def __init__(self):
        self.num_matches = 0

    def next_match(self):
        self.num_matches += 1
        return [(self.num_matches - 1) % 2]


def message(level, policy_id=0):
    return NewTrainingInfo(policy_id, cloudpickle.dumps({"level": level}))


def levels(buffers):
    """Returns the level at each step of the first buffer."""
    return buffers.obs["obs"][0, :, 0].tolist()


def make_vector(matchmaking, env_class=Level):
    config = make_config(num_envs_per_worker=1, worker_num_splits=1, num_policies=2, rollout=16)
    buffers, _ = make_shared(config, Level())
    env = GuardedEnv(lambda: adapt(env_class()), "env 0", 0, np.zeros(1, int), print)
    setup = MatchSetup(2, (0,), True, np.random.default_rng(0), PastSelves())
    checked = CheckedMatchmaking("given", lambda _: matchmaking, setup)
    return EnvVector([env], [checked], buffers, 0, 0, RAW_REWARDS), buffers


def play(vector, buffers, num_steps):
    for _ in range(num_steps):
        for _, request in vector.requests():
            buffers.outputs[request.buffer_indices, request.step] = 0.0
        vector.step()


class Drawn:
    """A policy for each match, drawn at random."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def next_match(self):
        return [int(self.rng.integers(2))]


@pytest.mark.parametrize("matchmaking", [Alternating(), *map(Drawn, range(4))])
@pytest.mark.parametrize("num_lives", [1, 2])
def test_each_episode_is_begun_and_played_with_the_values_of_the_policy_that_plays_it(
    matchmaking, num_lives, monkeypatch
):
    monkeypatch.setattr(Level, "num_lives", num_lives)
    vector, buffers = make_vector(matchmaking)
    vector.values.set_training_info(0, {"level": 0})
    vector.values.set_training_info(1, {"level": 1})
    vector.reset([None], [7], lambda rows: np.zeros((1, 1), np.float32))
    play(vector, buffers, 16)
    policies = buffers.policy_ids[0, :16].tolist()
    assert levels(buffers)[:16] == policies and set(policies) == {0, 1}


def test_an_env_that_resets_itself_gets_the_values_of_the_policy_that_plays_now():
    class ResetsItself(TrainingInfo):
        is_multiagent, num_agents = True, 1
        observation_space, action_space = Level.observation_space, Level.action_space

        def reset(self, *, seed=None, options=None):
            return [np.zeros(4, np.float32)], [{}]

        def step(self, actions):
            return [np.full(4, self.training_info["level"], np.float32)], [0.0], [True], [False], [{}]

    vector, buffers = make_vector(Drawn(0), ResetsItself)
    vector.values.set_training_info(0, {"level": 0})
    vector.values.set_training_info(1, {"level": 1})
    vector.reset([None], [0], None)
    play(vector, buffers, 15)
    policies = buffers.policy_ids[0, :15].tolist()
    assert levels(buffers)[1:16] == policies and set(policies) == {0, 1}, "observed after the step"


def test_a_rebuilt_env_gets_the_values_of_the_policy_that_plays_it_next(monkeypatch):
    def step(env, action):
        raise RuntimeError("broken")

    vector, buffers = make_vector(Alternating())
    vector.values.set_training_info(0, {"level": 0})
    vector.values.set_training_info(1, {"level": 1})
    vector.reset([None], [0], None)
    monkeypatch.setattr(Level, "step", step)
    play(vector, buffers, 3)
    assert levels(buffers)[:4] == [0, 1, 0, 1]


def test_new_values_do_not_change_an_episode_that_is_being_played():
    vector, buffers = make_vector(Alternating())
    vector.reset([None], [0], None)
    play(vector, buffers, 1)
    vector.values.set_training_info(1, {"level": 1})  # plays the second episode
    play(vector, buffers, 2 * STEPS)
    assert levels(buffers)[: 2 * STEPS] == [-1] * STEPS + [1] * STEPS


@pytest.fixture
def shared():
    """Returns the plan of a run with one rollout worker, its buffers and its channels."""
    config = make_config(num_envs_per_worker=2, worker_num_splits=2, rollout=8, inline_samplers=1)
    family = EnvFamily("level", lambda full_env_name: Level(), None, {})
    plan = make_plan(config, Level(), family, reports_infos=True)
    return plan.sampling, *make_shared(config, Level())


def test_values_sent_before_a_worker_starts_are_in_effect_from_its_first_episodes_on(shared):
    plan, buffers, channels = shared
    channels.inboxes[0].put(message(4))
    channels.inboxes[0].put(NewShaping(0, {"kill": 7.0}))
    worker = RolloutWorker(plan.envs, 0, buffers, channels, ChildContext("rollout_worker_0"))
    envs = [env._env.env for split in worker._splits for env in split.vector.envs]
    assert [(env.level, env.first_shaping) for env in envs] == [(4, {"kill": 7.0})] * 2
    worker.close()


def test_an_inline_sampler_passes_values_on_before_and_after_it_is_built(shared, monkeypatch):
    monkeypatch.setattr(towers, "make_actor_critic", CountingModel)
    plan, buffers, channels = shared
    channels.weights[0].publish({"weight": np.zeros(1, np.float32)}, Stamp(0))
    channels.inboxes[0].put(message(4))
    sampler = InlineSampler(plan.envs, plan.acting, 0, buffers, channels, ChildContext("sampler_0"))
    (worker,) = sampler._rollout_workers
    envs = [env._env.env for split in worker._splits for env in split.vector.envs]
    assert [env.level for env in envs] == [4, 4]
    channels.inboxes[0].put(message(5))
    sampler._forward_messages()
    sampler.step()
    assert [env.level for env in envs] == [4, 4] and len(channels.inboxes[0].get_many(0.0)) == 0
    assert [split.vector.values._training_info for split in worker._splits] == [{0: {"level": 5}}] * 2
    worker.close()


@pytest.mark.parametrize("reports_infos", [True, False])
def test_numbers_of_the_last_info_are_reported_where_an_observer_reads_them(reports_infos):
    vector, buffers = make_vector(Alternating())
    vector.log.reports_infos = reports_infos
    vector.values.set_training_info(0, {"level": 10})
    vector.reset([None], [0], None)
    play(vector, buffers, STEPS)
    (report,) = vector.log.take_reports()
    assert isinstance(report, EpisodeReport) and report.extra_stats == {"x": 1.0}
    assert report.info == ({"level": 10} if reports_infos else {})
    assert type(report.info.get("level", 0)) is int, "a message contains no array"


def test_reports_that_do_not_fit_into_one_message_are_sent_in_several_and_in_order(shared):
    plan, buffers, channels = shared
    worker = RolloutWorker(plan.envs, 0, buffers, channels, ChildContext("rollout_worker_0"))
    worker.close()
    queue = SocketQueue()
    worker._channels = channels._replace(reports=queue)
    reports = [
        EpisodeReport(0, float(i), 1, 1.0, {f"statistic {i} {j}": 0.5 for j in range(300)})
        for i in range(100)
    ]
    sending = threading.Thread(target=worker._report_all, args=(reports,))
    sending.start()
    received = []
    while len(received) < len(reports):
        messages = queue.get_many(timeout=10.0)
        assert messages, f"only {len(received)} reports"
        received += reports_in(messages)
    sending.join()
    assert received == reports
