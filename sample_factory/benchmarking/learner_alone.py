"""The speed of a learner alone, on made-up trajectories: the most that a run can reach with it."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from sample_factory.benchmarking.stages import Stage
from sample_factory.exchange.run_plan import RunPlan
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers, kind_layouts
from sample_factory.launch.workers import CORES_PER_LEARNER_THREAD
from sample_factory.learning.batch import Batch, Batcher
from sample_factory.learning.learner import Learner
from sample_factory.learning.learner_args import LearnerArgs
from sample_factory.runtime import cpu
from sample_factory.runtime.gpu import GpuWatch


def learner_alone(plan: RunPlan, warmup_seconds: float, seconds: float) -> Stage:
    """In the child: trains on made-up trajectories, which another thread copies to the device meanwhile."""
    cpu.keep_freed_memory()  # as in a learner's process
    threads = max(1, cpu.num_usable_cores() // CORES_PER_LEARNER_THREAD)
    torch.set_num_threads(threads)
    frameskip = plan.info.frameskip
    learner = Learner(
        LearnerArgs(0, 0, plan.config, plan.policies[0], plan.algorithm, frameskip, plan.seed, threads)
    )
    next_batch = endless_batches(plan, learner)
    with ThreadPoolExecutor(1) as batching, GpuWatch() as gpu:
        pending = batching.submit(next_batch)

        def train(least_seconds: float) -> float:
            """Returns the frames/s of at least one iteration."""
            nonlocal pending
            began, frames = time.monotonic(), learner.env_frames
            while learner.env_frames == frames or time.monotonic() < began + least_seconds:
                batch = pending.result()
                pending = batching.submit(next_batch)
                learner.train(batch)
                learner.weights()  # copied to the host, as for policy workers
            return (learner.env_frames - frames) / (time.monotonic() - began)

        train(warmup_seconds)
        gpu.take_mean()
        fps = train(seconds)
        share = gpu.take_mean()
    ready = learner.describe()
    text = f"on {ready.device} in {ready.precision}"
    return Stage(fps, learner=text, device=ready.device, num_parameters=ready.num_parameters, gpu_busy=share)


def endless_batches(plan: RunPlan, learner: Learner) -> Callable[[], Batch]:
    """Returns a function that copies the next batch to the learner's device."""
    buffers = synthetic_buffers(plan)
    batcher = Batcher(buffers, 0, learner.device)
    tickets: list[int] = []

    def next_batch() -> Batch:
        if len(tickets) < learner.trajectories_per_batch:
            hand_over_free(buffers, tickets)
        taken = [tickets.pop() for _ in range(learner.trajectories_per_batch)]
        buffers.versions[taken] = learner.version
        return batcher.next_batch(taken)

    return next_batch


def synthetic_buffers(plan: RunPlan) -> TrajectoryBuffers:
    """Returns buffers full of random observations and rewards, in which policy 0 acted evenly at random."""
    rng = np.random.default_rng(0)
    layouts = kind_layouts(plan.info.kinds)
    buffers = TrajectoryBuffers(plan.topology, layouts, plan.state_size)
    for observations in buffers.obs.values():
        if observations.dtype == np.uint8:
            observations[...] = rng.integers(0, 256, observations.shape, np.uint8)
        else:
            observations[...] = rng.standard_normal(observations.shape)
    buffers.outputs[...] = 0.0
    buffers.outputs[..., layouts[0].log_prob] = -np.log(layouts[0].num_logits)
    buffers.rewards[...] = rng.standard_normal(buffers.rewards.shape)
    buffers.generations[...] = buffers.policy_ids[...] = 0
    buffers.chunk_rnn_states[...] = 0.0
    buffers.terminated[...] = buffers.truncated[...] = False
    buffers.active_at_end[...] = True
    return buffers


def hand_over_free(buffers: TrajectoryBuffers, tickets: list[int]) -> None:
    """Hands all free buffers over to policy 0, and appends them to the tickets."""
    agent = np.zeros(1, np.int64)
    acted = np.eye(1, buffers.topology.num_policies, dtype=bool)
    for worker in range(buffers.topology.num_workers):
        while (taken := buffers.acquire(worker, agent)) is not None:
            buffers.hand_over(worker, taken, agent, acted)
            tickets.append(int(taken[0]))
