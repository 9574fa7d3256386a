import functools
import itertools
import pickle
import threading

import numpy as np
import pytest

from sample_factory.checkpoints.milestones import Milestone
from sample_factory.envs.env_info import EnvInfo
from sample_factory.exchange.messages import (
    EpisodeReport,
    PolicyRequest,
    Trajectories,
    reports_in,
    rows_of_messages,
)
from sample_factory.exchange.policy_weights import PolicyWeights, Stamp
from sample_factory.exchange.topology import TRAJECTORIES_IN_A_PART, make_topology
from sample_factory.exchange.trajectory_buffers import NotOwned
from sample_factory.runtime.queues import MAX_MESSAGE_BYTES
from sample_factory.spaces.agent_kinds import AgentKinds
from tests.counting import CountingEnv, counts, make_config, make_shared


def topology(num_agents=1, **flags):
    env = CountingEnv(0, num_agents)
    kinds = AgentKinds.one(env.observation_space, env.action_space, num_agents)
    return make_topology(make_config(**flags), EnvInfo(kinds, frameskip=1))


def test_buffers_are_for_larger_batches_only_if_the_population_may_choose_them():
    flags = {"batch_size": 64, "num_policies": 2, "pbt_optimize_batch_size": True}
    assert topology(**flags).trajectories_per_batch == 8
    assert topology(with_pbt=True, **flags).trajectories_per_batch == 12


@pytest.mark.parametrize(
    "workers, envs, splits, agents, policies, batch",
    list(
        itertools.product(
            (1, 3, 8),
            (2, 4),
            (1, 2),
            (1, 3),
            (1, 2, 5),
            (8, 64, 1024),
        )
    ),
)
def test_a_run_cannot_deadlock(workers, envs, splits, agents, policies, batch):
    """When every worker lacks free buffers for a split, at least one learner has a full batch, however the
    buffers are distributed."""
    t = topology(
        agents,
        num_workers=workers,
        num_envs_per_worker=envs,
        worker_num_splits=splits,
        num_policies=policies,
        batch_size=batch,
        traj_buffers_excess_ratio=1.0,
    )
    at_learners = workers * (t.buffers_per_worker - t.agents_per_worker - (t.agents_per_split - 1))
    assert at_learners > policies * (t.trajectories_per_batch - 1)


def test_other_machines_share_a_partition_of_the_buffers_after_those_of_the_workers():
    alone = topology(num_workers=3)
    t = topology(num_workers=3, num_nodes=4)
    assert t.num_buffers == alone.num_buffers + t.buffers_for_nodes
    partitions = [t.buffers_of(worker) for worker in range(4)]
    assert [b for partition in partitions for b in partition] == list(range(t.num_buffers))
    assert len(partitions[3]) >= 2 * t.trajectories_per_batch
    t = topology(num_nodes=2, num_policies=2, batch_size=64)
    at_learners = 2 * (t.trajectories_per_batch - 1)
    assert t.buffers_for_nodes - at_learners >= TRAJECTORIES_IN_A_PART, "there is always room for a part"


def test_serial_mode_has_all_envs_in_one_worker():
    t = topology(num_workers=4, num_envs_per_worker=2, serial_mode=True)
    assert (t.num_workers, t.agents_per_worker) == (1, 8)


def test_the_largest_messages_about_buffers_fit_into_a_queue():
    everything = np.arange(2**31, 2**31 + 100_000)
    split = rows_of_messages(everything)
    assert np.array_equal(np.concatenate(split), everything)
    past_self = Milestone(1000, 2**31, 2**40)
    for indices in split:
        for message in (
            PolicyRequest(10_000, 100, 2**31, indices, 2**31, past_self),
            Trajectories(indices.tolist()),
        ):
            assert len(pickle.dumps(message)) < MAX_MESSAGE_BYTES


def test_reports_of_a_step_are_the_same_as_single_ones():
    episode = EpisodeReport(1000, 1.5, 2**40, 2.5, {"kills": 1.5})
    reports = [episode._replace(reward=float(i)) for i in range(3)]
    assert list(reports_in([reports, episode])) == [*reports, episode]


class TestBuffers:
    def setup_method(self):
        self.buffers, _ = make_shared(make_config(num_workers=2, num_policies=2), CountingEnv())
        self.total = self.buffers.topology.num_buffers

    def hand_over(self, buffer_indices, agent_id, *policies):
        acted = np.isin(np.arange(2), policies)[None]
        worker_index = int(buffer_indices[0]) // self.buffers.topology.buffers_per_worker
        self.buffers.hand_over(worker_index, buffer_indices, np.array([agent_id]), acted)

    def test_a_buffer_is_free_or_owned_or_pending(self):
        taken = self.buffers.acquire(1, np.array([5, 6]))
        assert set(taken) <= set(self.buffers.topology.buffers_of(1))
        assert counts(self.buffers) == (self.total - 2, 2, 0)
        self.hand_over(taken[:1], 5, 0, 1)
        assert counts(self.buffers) == (self.total - 2, 1, 1)
        self.buffers.release(taken[:1], 0)
        assert counts(self.buffers) == (self.total - 2, 1, 1), "the other learner still needs it"
        self.buffers.release(taken[:1], 1)
        assert counts(self.buffers) == (self.total - 1, 1, 0)

    def test_a_buffer_without_a_policy_is_free_at_once(self):
        taken = self.buffers.acquire(0, np.array([0]))
        self.hand_over(taken, 0)
        assert counts(self.buffers) == (self.total, 0, 0)

    def test_too_few_free_buffers_give_none_and_take_none(self):
        per_worker = self.buffers.topology.buffers_per_worker
        assert self.buffers.acquire(0, np.arange(per_worker + 1)) is None
        assert counts(self.buffers) == (self.total, 0, 0)

    def test_only_the_owner_hands_over_and_only_a_holder_releases(self):
        taken = self.buffers.acquire(0, np.array([0]))
        with pytest.raises(NotOwned, match="does an env fork"):
            self.hand_over(taken, 1, 0)
        with pytest.raises(NotOwned, match="does an env fork"):
            self.buffers.release(taken, 0)
        self.hand_over(taken, 0, 0)
        with pytest.raises(NotOwned, match="does an env fork"):  # handed over twice
            self.hand_over(taken, 0, 0)

    def test_reclaiming_frees_what_a_dead_worker_owned_and_nothing_else(self):
        mine, other = self.buffers.acquire(0, np.array([0, 1])), self.buffers.acquire(1, np.array([2]))
        self.hand_over(mine[:1], 0, 1)
        assert self.buffers.reclaim(0) == 1
        assert counts(self.buffers) == (self.total - 2, 1, 1)
        self.hand_over(other, 2, 0)


def test_a_fetch_is_never_a_mixture_of_two_versions():
    weights, stop = PolicyWeights(), threading.Event()
    weights.publish({"w": np.zeros(100_000, np.float32)}, Stamp(0))

    def publish():
        version = 0
        while not stop.is_set():
            version += 1
            weights.publish({"w": np.full(100_000, version, np.float32)}, Stamp(version, 2 * version))

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        into = np.empty(weights.slot_bytes, np.uint8)
        seen = set()
        for _ in range(500):
            stamp = weights.fetch(functools.partial(np.copyto, into))
            assert set(np.unique(into.view(np.float32)[:100_000])) == {stamp.version}
            assert stamp.generation == 2 * stamp.version
            seen.add(stamp)
    finally:
        stop.set()
        publisher.join()
    assert len(seen) > 3


def test_nothing_is_published_before_the_first_publication():
    weights = PolicyWeights()
    assert not weights.wait_published(lambda: False)
    weights.publish({"w": np.ones(3, np.float32), "count": np.array(5.0)}, Stamp(17, 3))
    assert weights.wait_published(lambda: False) and weights.newest == Stamp(17, 3)


def test_what_a_dead_worker_handed_over_without_a_ticket_is_freed():
    buffers, _ = make_shared(make_config(num_workers=2), CountingEnv())
    agents, acted = np.array([4, 5, 6]), np.ones((3, 1), bool)
    taken = buffers.acquire(1, agents)
    buffers.hand_over(1, taken, agents, acted)
    assert buffers.release_lost(0, buffers.incarnations.copy(), tickets=[]).size == 0, "the worker lives"
    buffers.reclaim(1)
    lost = buffers.release_lost(0, buffers.incarnations.copy(), tickets=[int(taken[1])])
    assert list(lost) == [taken[0], taken[2]]
    assert counts(buffers)[2] == 1
    buffers.release(taken[1:2], 0)


def test_what_a_successor_handed_over_is_not_lost_before_its_tickets_arrive():
    buffers, _ = make_shared(make_config(num_workers=2), CountingEnv())
    agents, acted = np.array([4, 5]), np.ones((2, 1), bool)
    before_its_death = buffers.incarnations.copy()
    lost = buffers.acquire(1, agents)
    buffers.hand_over(1, lost, agents, acted)
    buffers.reclaim(1)
    of_successor = buffers.acquire(1, agents)
    buffers.hand_over(1, of_successor, agents, acted)
    assert buffers.release_lost(0, before_its_death, tickets=[]).size == 0, (
        "its tickets may not have been read"
    )
    assert buffers.release_lost(0, buffers.incarnations.copy(), tickets=[]).size == 2
    buffers.release(of_successor, 0)
    assert counts(buffers) == (buffers.topology.num_buffers, 0, 0)
