"""All counts of a run that are derived from the flags, computed once."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sample_factory.config.algorithms import algorithm_info
from sample_factory.config.config import Config
from sample_factory.config.population_flags import MAX_BATCH_GROWTH
from sample_factory.runtime.gpu import may_have_gpu

if TYPE_CHECKING:  # importing it would load gymnasium, also for --help
    from sample_factory.envs.env_info import EnvInfo


TRAJECTORIES_IN_A_PART = 16  # at most, all of one policy: other machines send such parts


@dataclass(frozen=True)
class Topology:
    """Counts of processes, envs, agents and trajectory buffers.

    Buffers are partitioned: only worker w fills buffers w * buffers_per_worker to (w + 1) *
    buffers_per_worker - 1. So acquiring a buffer needs no lock, and the buffers of a dead worker are known.
    The last partition, with buffers_for_nodes buffers, is for trajectories from other machines.

    rollouts_per_iteration: rollouts of each split in an iteration of training; None unless --async_rl=False.
    samples_ahead: whether splits sample for the next iteration while the learner trains (--sample_ahead).
    num_episodes: number of episodes that all agents together play in an evaluation; None in a training.
    """

    num_workers: int
    num_splits: int
    envs_per_split: int
    agents_per_env: int
    num_policies: int
    policy_workers_per_policy: int
    rollout: int
    chunk_length: int  # steps between stored recurrent states: the length of backpropagation through time
    frameskip: int
    trajectories_per_batch: int  # the maximum if PBT changes the batch size
    max_ready_batches: int  # copied from trajectory buffers before the learner asks for them
    buffers_per_worker: int
    rollouts_per_iteration: int | None
    kind_of_agent: tuple[int, ...]  # one entry per agent of an env
    samples_ahead: bool = False
    num_nodes: int = 0  # other machines with rollout workers
    buffers_for_nodes: int = 0  # size of the partition for their trajectories
    learners_per_policy: int = 1  # each trains on a share of every batch; 0: nothing is learned here
    num_inline_samplers: int = 0  # processes with rollout and policy workers; 0: separate processes for them
    has_costs: bool = False  # whether trajectories have the costs of their steps
    num_episodes: int | None = None

    @property
    def num_kinds(self) -> int:
        """Number of kinds of agents; kinds differ in their spaces."""
        return max(self.kind_of_agent) + 1

    def kind_of_policy(self, policy_id: int) -> int:
        """Returns the kind of agents that a policy plays."""
        return policy_id % self.num_kinds

    @property
    def envs_per_worker(self) -> int:
        return self.envs_per_split * self.num_splits

    @property
    def agents_per_split(self) -> int:
        return self.envs_per_split * self.agents_per_env

    @property
    def agents_per_worker(self) -> int:
        return self.agents_per_split * self.num_splits

    @property
    def num_agents(self) -> int:
        return self.agents_per_worker * self.num_workers

    @property
    def num_buffers(self) -> int:
        return self.buffers_per_worker * self.num_workers + self.buffers_for_nodes

    @property
    def chunks_per_trajectory(self) -> int:
        return self.rollout // self.chunk_length

    def workers_of_sampler(self, sampler_index: int) -> range:
        """Returns the indices of the rollout workers in an inline sampler."""
        return range(sampler_index, self.num_workers, self.num_inline_samplers)

    def buffers_of(self, worker_index: int) -> range:
        """Returns the indices of the buffers that a worker fills; for worker_index == num_workers, of the
        buffers for trajectories from other machines."""
        begin = worker_index * self.buffers_per_worker
        size = self.buffers_for_nodes if worker_index == self.num_workers else self.buffers_per_worker
        return range(begin, begin + size)

    def agent_id(self, worker_index: int, split: int, agent: int) -> int:
        """Returns a number that identifies an agent of a split among all agents of the run."""
        return worker_index * self.agents_per_worker + split * self.agents_per_split + agent


def episode_shares(num_episodes: int, num_agents: int) -> np.ndarray:
    """Returns how many of the episodes of an evaluation each agent plays, int64 [num_agents].

    The shares are fixed in advance: counting the episodes that end first would favour short episodes.
    """
    shares = np.full(num_agents, num_episodes // num_agents, np.int64)
    shares[: num_episodes % num_agents] += 1
    return shares


class Size(NamedTuple):
    """Numbers of workers and envs of an evaluation or of a series of matches.

    num_envs: envs of each worker, a multiple of num_splits.
    """

    num_workers: int
    num_envs: int
    num_splits: int = 1
    num_inline_samplers: int = 0


def playing_topology(
    info: "EnvInfo", config: Config, num_policies: int, size: Size, num_episodes: int
) -> Topology:
    """Returns the topology of an evaluation or of matches: no learner, and full buffers become free at once.
    num_episodes: number of episodes that all agents together play."""
    sampling = config.sampling
    envs_per_split = size.num_envs // size.num_splits
    agents_per_split = envs_per_split * info.num_agents
    return Topology(
        num_workers=size.num_workers,
        num_splits=size.num_splits,
        envs_per_split=envs_per_split,
        agents_per_env=info.num_agents,
        num_policies=num_policies,
        policy_workers_per_policy=1 if sampling.serial_mode else sampling.policy_workers_per_policy,
        rollout=config.learning.rollout,
        chunk_length=config.chunk_length,
        frameskip=info.frameskip,
        trajectories_per_batch=1,
        max_ready_batches=1,
        buffers_per_worker=agents_per_split * (size.num_splits + 1),
        rollouts_per_iteration=None,
        kind_of_agent=info.kinds.of_agent,
        learners_per_policy=0,
        num_inline_samplers=size.num_inline_samplers,
        num_episodes=num_episodes,
    )


def make_topology(config: Config, info: "EnvInfo", num_inline_samplers: int = 0) -> Topology:
    """Returns the topology of a training, derived from the flags and the number of agents of an env."""
    sampling = config.sampling
    learning = config.learning
    trajectories = learning.batch_size * learning.num_batches_per_iteration // learning.rollout
    if config.population.with_pbt and config.population.pbt_optimize_batch_size:
        trajectories = math.ceil(trajectories * MAX_BATCH_GROWTH)  # the most that PBT allows
    num_nodes = config.cluster.num_nodes - 1
    # If more buffers than these wait at the learners, one of the learners has a full batch.
    at_learners = sampling.num_policies * trajectories
    num_workers = 1 if sampling.serial_mode else sampling.num_workers
    envs_per_worker = sampling.envs_per_worker * (sampling.num_workers if sampling.serial_mode else 1)
    agents_per_worker = envs_per_worker * info.num_agents
    agents_per_split = agents_per_worker // sampling.worker_num_splits
    return Topology(
        num_workers=num_workers,
        num_splits=sampling.worker_num_splits,
        envs_per_split=envs_per_worker // sampling.worker_num_splits,
        agents_per_env=info.num_agents,
        num_policies=sampling.num_policies,
        policy_workers_per_policy=1 if sampling.serial_mode else sampling.policy_workers_per_policy,
        rollout=learning.rollout,
        chunk_length=config.chunk_length,
        frameskip=info.frameskip,
        trajectories_per_batch=trajectories,
        max_ready_batches=_max_ready_batches(config),
        buffers_per_worker=_buffers_per_worker(
            config, num_workers, agents_per_worker, agents_per_split, trajectories
        ),
        rollouts_per_iteration=(
            None if sampling.async_rl else trajectories // (num_workers * agents_per_worker)
        ),
        kind_of_agent=info.kinds.of_agent,
        samples_ahead=sampling.sample_ahead,
        num_nodes=num_nodes,
        buffers_for_nodes=at_learners + max(at_learners, TRAJECTORIES_IN_A_PART) if num_nodes else 0,
        learners_per_policy=sampling.learners_per_policy,
        num_inline_samplers=num_inline_samplers,
        has_costs=algorithm_info(config.run.algo).needs_costs,
    )


def _max_ready_batches(config: Config) -> int:
    """Returns how many batches are copied from trajectory buffers before the learner asks for them.

    Of the batches that may wait for the learner, one waits in trajectory buffers. A GPU trains while the next
    batch is copied to it. A CPU gains little from that: the copy takes the same time later, samples are older
    by an SGD step, and a batch of pictures is large. Measured without it, on two cores: where the learner is
    the bottleneck (doom_benchmark), a lag of 1.9 instead of 2.3 SGD steps, and 15 instead of 30 % of the
    samples outside of PPO's clip range, at the same speed; where the learner now and then waits (recipe
    doom_basic), a lag of 1.9 instead of 2.4 at 0.94 of the speed.
    """
    sampling = config.sampling
    if sampling.serial_mode or not sampling.async_rl:
        return 1
    num_waiting = sampling.num_batches_to_accumulate or (2 if may_have_gpu(config.run.device) else 1)
    return num_waiting - 1


def _buffers_per_worker(
    config: Config,
    num_workers: int,
    agents_per_worker: int,
    agents_per_split: int,
    trajectories_per_batch: int,
) -> int:
    """Returns a number of buffers with which the run cannot deadlock.

    A worker waits when a split finds fewer than agents_per_split free buffers. If all workers wait, each of
    them has at least buffers_per_worker - agents_per_worker - agents_per_split + 1 buffers at the learners.
    With P learners and P * (batch - 1) + 1 such buffers in total, at least one learner has a full batch, and
    releases it. --traj_buffers_excess_ratio adds buffers, so that sampling goes on while a batch waits.
    """
    at_learners = config.sampling.num_policies * (trajectories_per_batch - 1) + 1
    needed = math.ceil(at_learners / num_workers) + agents_per_split - 1
    return agents_per_worker + math.ceil(needed * config.sampling.traj_buffers_excess_ratio)
