"""Tests of the plan that a node makes for its own workers."""

from types import SimpleNamespace

import numpy as np
import pytest

from sample_factory.cluster.node import plan_of_node
from sample_factory.exchange.trajectory_buffers import FIRST_INCARNATION
from sample_factory.sampling.matchmaking.matchmaking import PastSelves
from sample_factory.sampling.rollout.env_setup import EnvSetup
from tests.counting import CountingEnv, make_config, make_plan


def envs_of(plan):
    """Returns the EnvConfig and the seed of each env of a machine, in order."""
    topology = plan.topology
    buffers = SimpleNamespace(
        topology=topology, incarnations=np.full(topology.num_workers, FIRST_INCARNATION)
    )
    found = []
    for worker in range(topology.num_workers):
        setup = EnvSetup(plan.envs, worker, buffers, PastSelves(), np.zeros(1, int), print, lambda: None)
        for split in range(topology.num_splits):
            configs = setup._env_configs(split)
            found += [(config, setup._env_seed(config)) for config in configs]
    return found


@pytest.mark.parametrize("node_envs_per_worker", [0, 2, 6])
def test_workers_and_envs_are_numbered_through_the_run_and_no_two_envs_have_a_seed_in_common(
    node_envs_per_worker,
):
    node = {"node_workers": 2, "node_envs_per_worker": node_envs_per_worker}
    config = make_config(num_nodes=4, num_workers=3, num_envs_per_worker=4, worker_num_splits=2, **node)
    learner = make_plan(config, CountingEnv()).sampling
    nodes = [plan_of_node(number, learner, config.cluster) for number in (1, 2, 3)]
    configs, seeds = zip(*(env for plan in (learner, *nodes) for env in envs_of(plan)))
    num_envs = 3 * 4 + 3 * 2 * (node_envs_per_worker or 4)
    assert [config.env_id for config in configs] == [*range(num_envs)]
    assert list(dict.fromkeys(config.worker_index for config in configs)) == [*range(3 + 3 * 2)]
    assert len({(config.worker_index, config.vector_index) for config in configs}) == num_envs
    assert len(set(seeds)) == num_envs


def test_the_envs_of_the_learners_machine_have_the_same_seeds_with_and_without_nodes():
    alone, beside_nodes = (
        envs_of(make_plan(make_config(num_nodes=num_nodes), CountingEnv()).sampling) for num_nodes in (1, 4)
    )
    assert alone == beside_nodes
    assert [seed for _, seed in alone] == [
        int(np.random.SeedSequence([1, env_id, 0]).generate_state(1)[0] >> 1) for env_id in range(len(alone))
    ]
