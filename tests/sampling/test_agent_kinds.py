"""Agents of one env that differ in their spaces: their policies, memory and training data."""

import types

import numpy as np
import pytest
import torch

from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_info import env_info
from sample_factory.envs.random_actions import RandomActions
from sample_factory.exchange.topology import make_topology
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers, kind_layouts
from sample_factory.learning.batch import Batcher
from sample_factory.sampling.rollout.env_vector import EnvVector
from tests.counting import RAW_REWARDS, counts, make_config, poison
from tests.mixed import EPISODE, IMAGE, LAST_ACTION, STEP, VECTOR, WALKER, MixedCounting
from tests.sampling.matchmaking.matchmakers import random_matchmaker
from tests.sampling.rollout.test_env_vector import Named, finish

ROLLOUT = 8


def make_info(env=None):
    return env_info(adapt(env or MixedCounting()), types.SimpleNamespace(env_frameskip=None))


def make_buffers(num_policies=2):
    config, info = make_config(worker_num_splits=1, num_policies=num_policies, batch_size=256), make_info()
    buffers = TrajectoryBuffers(make_topology(config, info), kind_layouts(info.kinds), rnn_state_size=1)
    poison(buffers)
    return buffers


def make_vector(num_policies=2):
    buffers = make_buffers(num_policies)
    rng = np.random.default_rng(0)
    envs = [Named(MixedCounting(env_id), env_id) for env_id in range(2)]
    matchmakers = [random_matchmaker(num_policies, MixedCounting.kind_of_agent, True, rng) for _ in envs]
    vector = EnvVector(envs, matchmakers, buffers, 0, 0, RAW_REWARDS)
    vector.reset([None] * 2, [3, 0], RandomActions(make_info().kinds, 0))
    return vector, buffers


def read(kind, buffers, steps):
    shapes = kind.row_shapes().items()
    into = {key: np.empty((len(buffers), *shape), dtype) for key, (shape, dtype) in shapes}
    kind.read_observations(buffers, steps, into)
    return into


def act(buffers, policy, request):
    """Watchers choose their step plus ten times their episode; walkers the same, halved, and 1 less."""
    kind = buffers.storage_of_policy(policy)
    observations = read(kind, request.buffer_indices, np.full(len(request.buffer_indices), request.step))
    where = observations["where"] if "where" in observations else observations["obs"]
    chosen = where[:, STEP] + 10 * where[:, EPISODE]
    rows = np.zeros((len(chosen), kind.rows.size), np.float32)
    rows[:, kind.rows.actions] = (
        np.stack([chosen / 2, chosen / 2 - 1], 1) if "obs" in observations else chosen[:, None]
    )
    rows[:, kind.rows.value], rows[:, kind.rows.log_prob] = chosen, -policy
    kind.outputs[request.buffer_indices, request.step] = rows
    buffers.versions[request.buffer_indices, request.step] = 0
    buffers.generations[request.buffer_indices, request.step] = 0


def play(vector, buffers, steps):
    finished = []
    for _ in range(steps):
        if vector.memory.is_full:
            finished += finish(vector)
        for policy, request in vector.requests():
            act(buffers, policy, request)
        vector.step()
    return finished


def test_agents_with_equal_spaces_are_of_one_kind():
    kinds = make_info().kinds
    assert kinds.of_agent == MixedCounting.kind_of_agent
    assert [set(spaces.observation.spaces) for spaces in kinds.spaces] == [{"picture", "where"}, {"obs"}]
    assert [spaces.action for spaces in kinds.spaces] == MixedCounting.action_spaces[:2]


def test_random_actions_are_of_each_agents_own_space():
    drawn = RandomActions(make_info().kinds, 0)
    actions = drawn(types.SimpleNamespace(arrays_of=lambda agent: {}))
    assert actions.shape == (3, 2) and (actions[[0, 2], 1] == 0).all() and actions[1].all()


@pytest.mark.parametrize("mix", [True, False])
def test_a_policy_plays_agents_of_its_own_kind_only(mix):
    matchmaker = random_matchmaker(6, (0, 1, 2, 1), mix, np.random.default_rng(0))
    drawn = {agent: set() for agent in range(4)}
    for _ in range(400):
        policies = [player.policy_id for player in matchmaker.next_match()]
        for agent, policy in enumerate(policies):
            drawn[agent].add(policy)
        same_team = len({policy // 3 for policy in policies}) == 1
        assert mix or same_team, "policies 0, 1, 2 are one party, 3, 4, 5 the other"
    assert drawn == {0: {0, 3}, 1: {1, 4}, 2: {2, 5}, 3: {1, 4}}


def test_the_rows_of_every_kind_follow_from_the_rows_before():
    vector, buffers = make_vector()
    kinds_seen = set()
    for trajectory in play(vector, buffers, ROLLOUT + 1):
        (policy,) = trajectory.policy_ids
        kind, b = buffers.storage_of_policy(int(policy)), trajectory.buffer
        where = kind.obs["obs" if policy == WALKER else "where"][b]
        for t in range(ROLLOUT):
            ended = bool(buffers.terminated[b, t])
            action = where[t, STEP] + 10 * where[t, EPISODE]
            assert where[t + 1, STEP] == (0 if ended else where[t, STEP] + 1)
            assert where[t + 1, EPISODE] == where[t, EPISODE] + ended
            assert where[t + 1, LAST_ACTION] == (action - 1 if policy == WALKER else action)
            assert buffers.rewards[b, t] == where[t, STEP] + 1
        if policy != WALKER:
            assert (kind.obs["picture"][b] == where[:, STEP, None, None, None]).all()
        kinds_seen.add(int(policy))
    assert kinds_seen == {0, 1}


def test_a_rollout_begins_with_the_last_observation_of_the_one_before_for_every_kind():
    vector, buffers = make_vector()
    full = [trajectory.buffer for trajectory in play(vector, buffers, ROLLOUT + 1)]
    for agent, (old, new) in enumerate(zip(full, vector.memory.buffer_indices)):
        for array in buffers.kinds[MixedCounting.kind_of_agent[agent % 3]].obs.values():
            assert np.array_equal(array[old, ROLLOUT], array[new, 0])


@pytest.mark.parametrize("num_policies", [2, 4])
def test_each_policy_is_trained_on_all_steps_of_its_own_kind_and_on_no_other(num_policies):
    vector, buffers = make_vector(num_policies)
    num_own = np.zeros(num_policies, int)
    finished = [trajectory for _ in range(4) for trajectory in play(vector, buffers, ROLLOUT)]
    for policy in range(num_policies):
        tickets = [t.buffer for t in finished if policy in t.policy_ids]
        batch = Batcher(buffers, policy, torch.device("cpu")).next_batch(tickets)
        kind = buffers.storage_of_policy(policy)
        assert set(batch.obs) == set(kind.obs)
        where = batch.obs["obs" if policy % 2 == WALKER else "where"]
        chosen = (where[:-1, :, STEP] + 10 * where[:-1, :, EPISODE])[batch.own]
        assert torch.equal(batch.values[batch.own], chosen)
        assert (batch.log_probs[batch.own] == -policy).all()
        assert batch.actions.shape[2] == kind.rows.num_action_values
        assert batch.logits.shape[2] == kind.rows.num_logits
        num_own[policy] = int(batch.own.sum())
    steps = ROLLOUT * len(finished)
    assert num_own[0::2].sum() == steps * 2 // 3 and num_own[1::2].sum() == steps // 3
    assert counts(buffers)[2] == 0, "nothing is left at any learner"


def test_buffers_of_different_kinds_never_touch_each_other():
    buffers = make_buffers()
    num_buffers = buffers.topology.num_buffers
    rng = np.random.default_rng(0)
    written = {}
    for buffer in range(num_buffers):
        kind = buffers.kinds[buffer % 2]
        for key, array in kind.obs.items():
            written[buffer, key] = rng.integers(100, size=array.shape[1:]).astype(array.dtype)
            array[buffer] = written[buffer, key]
        kind.outputs[buffer] = buffer
    for (buffer, key), expected in written.items():
        assert np.array_equal(buffers.kinds[buffer % 2].obs[key][buffer], expected)
    for buffer in range(num_buffers):
        assert (buffers.kinds[buffer % 2].outputs[buffer] == buffer).all()
    picked = np.array([2, 0, 2]), np.array([2, 1, 0])
    for key, rows in read(buffers.kinds[0], *picked).items():
        assert np.array_equal(rows, [written[b, key][t] for b, t in zip(*picked)])


def test_agents_may_differ_in_one_of_their_two_spaces_only():
    env = MixedCounting()
    env.observation_spaces, env.observation_space = None, VECTOR
    assert adapt(env).kinds.of_agent == (0, 1, 0)
    env = MixedCounting()
    env.action_spaces, env.action_space = None, env.action_spaces[0]
    assert adapt(env).kinds.of_agent == (0, 1, 0)
    env.observation_spaces, env.observation_space = None, IMAGE
    assert adapt(env).kinds.of_agent == (0, 0, 0)
