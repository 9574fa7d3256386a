"""Measures the speed of training with a few fixed configurations that show what a GPU does.

    python -m tests.gpu.suite --json=gpu.json

--seconds is the length of each measurement (15). All other flags are flags of training, for all rows. Without
a GPU the same configurations run on the CPU, except for those that only a GPU tells apart.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch

from sample_factory.benchmarking.benchmark import describe_hardware, guarded, plan_of, used_by_others
from sample_factory.benchmarking.benchmark_flags import BENCHMARK
from sample_factory.benchmarking.stages import Stage, StageFailed, run_stage
from sample_factory.config.flags import ConfigError
from sample_factory.config.versions import versions
from sample_factory.envs.packages import is_installed
from sample_factory.exchange.run_plan import RunPlan, SamplingPlan
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers, kind_layouts
from sample_factory.launch.command_line import parse
from sample_factory.launch.exit_codes import run_command
from sample_factory.launch.workers import CORES_PER_LEARNER_THREAD
from sample_factory.learning.batch import Batch, Batcher
from sample_factory.learning.learner import Learner
from sample_factory.learning.learner_args import LearnerArgs
from sample_factory.monitoring.bottleneck import PARTS, bottlenecks
from sample_factory.monitoring.console import aligned
from sample_factory.runtime import cpu
from sample_factory.runtime.child import call_in_child
from sample_factory.runtime.failures import CommandFailed, Failure
from sample_factory.runtime.gpu import gpu_busy, why_no_gpu

WORKERS = 64  # of Doom, with 8 envs each, on a machine with as many cores
WARMUP_SECONDS = 5.0
HEADINGS = ("", "frames/s", "GPU busy", "cores", "limit")


class Row(NamedTuple):
    """One configuration, and its measurement; or why it was `left_out`, or its `failure`.

    package: that must be installed. is_learner: only the learner runs, on synthetic batches.
    """

    name: str
    flags: tuple[str, ...]
    needs_gpu: bool = False
    package: str | None = None
    is_learner: bool = False
    stage: Stage | None = None
    left_out: str | None = None
    failure: str | None = None

    def text(self) -> str:
        """Returns one line for the progress."""
        if self.stage is None:
            return f"left out: {self.left_out}" if self.failure is None else f"failed: {self.failure}"
        return f"{self.stage.fps:,.0f} frames/s, learner {self.stage.learner}"

    def fields(self) -> dict[str, Any]:
        """Returns all of it for the --json file."""
        measured = {} if self.stage is None else self.stage._asdict()
        return {**measured, "flags": self.flags, "left_out": self.left_out, "failure": self.failure}


def doom_size(cores: int) -> tuple[int, int]:
    """Returns (workers, envs of each): 64 x 8, or one worker per core, with more envs where they are few."""
    workers = min(WORKERS, cores)
    return workers, 8 if workers >= WORKERS // 2 else 16


def make_rows(cores: int) -> list[Row]:
    """Returns the configurations for a machine with this number of cores."""
    workers, envs = doom_size(cores)
    sizes = (f"--num_workers={workers}", f"--num_envs_per_worker={envs}", "--batch_size=2048")
    doom = ("--env=doom_benchmark", *sizes)
    several = ("--num_envs_per_worker=2", "--worker_num_splits=2")
    once = ("--ppo_epochs=1", "--num_batches_per_iteration=1")
    pong = ("--env=envpool_Pong-v5", f"--num_workers={max(1, cores // 8)}", "--vector_env_copies=64")
    cartpole = ("--env=gym_CartPole-v1", "--num_workers=1", "--vector_env_copies=500", "--inline_samplers=1")
    return [
        Row("Doom", doom),
        Row("Doom, no CUDA graphs", (*doom, "--cuda_graphs=False"), needs_gpu=True),
        Row("Doom, 2 policy workers", (*doom, "--policy_workers_per_policy=2")),
        Row("Doom, fp32", (*doom, "--precision=fp32")),
        Row("Doom's learner alone", doom, is_learner=True),
        Row("the same in fp32", (*doom, "--precision=fp32"), is_learner=True),
        Row("Pong in EnvPool", (*pong, *several, *once, "--batch_size=2048"), package="envpool"),
        Row("CartPole, 1,000 copies", (*cartpole, *several, "--batch_size=16384")),
    ]


def run_suite(argv: Sequence[str]) -> None:
    """Measures all rows, and prints a table. Writes the --json file after each row.

    Raises ConfigError, and CommandFailed at the end if rows have failed.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, help="file for all figures")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each measurement")
    own, typed = parser.parse_known_args(argv)
    rows = make_rows(cpu.num_usable_cores())
    for row in rows:  # finds what is wrong with the flags before anything runs
        if row.package is None or is_installed(row.package):
            parse(BENCHMARK, [*row.flags, *typed])
    no_gpu = "of --device=cpu" if "--device=cpu" in typed else call_in_child("gpu_probe", why_no_gpu)
    hardware = describe_hardware()
    found = {"hardware": hardware, "seconds": own.seconds, "flags": typed, "versions": dict(versions())}
    results: list[Row] = []
    with guarded(), tempfile.TemporaryDirectory(prefix="sample_factory_benchmark_") as folder:
        for number, row in enumerate(rows, start=1):
            print(f"{number}/{len(rows)} {row.name} ... ", end="", flush=True)
            results.append(_with_result(row, typed, own.seconds, Path(folder, str(number)), no_gpu))
            print(results[-1].text(), flush=True)
            if own.json is not None:  # each time, so that a suite that is interrupted leaves results
                done = {result.name: result.fields() for result in results}
                own.json.write_text(json.dumps({**found, "rows": done}, indent=4) + "\n")
    print("\n".join(report(results, hardware, own.seconds)))
    failed = [result.name for result in results if result.failure is not None]
    if failed:
        raise CommandFailed(f"{len(failed)} of {len(rows)} rows failed: {', '.join(failed)}")


def report(results: Sequence[Row], hardware: Mapping[str, Any], seconds: float) -> list[str]:
    """Returns the lines that are printed at the end: the table and notes."""
    stages = [result.stage for result in results if result.stage is not None]
    lines = aligned([HEADINGS, *(cells(row, row.stage) for row in results if row.stage)], "<>>><")
    notes = []
    for result in results:
        faults = [result.text().splitlines()[0]] if result.stage is None else result.stage.warnings
        notes += [f"{result.name}: {fault}" for fault in faults]
    workers, envs = doom_size(hardware["cores"])
    if workers < WORKERS:
        size = f"{workers} workers x {envs} envs of Doom for {hardware['cores']} cores"
        notes.append(f"{size}, instead of {WORKERS} x 8 where there are as many cores")
    notes += filter(None, [used_by_others(stages)])
    gpus = ", ".join(hardware["gpus"]) or "no GPU"
    machine = f"{hardware['cpu']}, {hardware['cores']} cores, {gpus}; {seconds:g} s each"
    return ["", machine, "", *lines, "", *(f"note: {note}" for note in notes)]


def _with_result(row: Row, typed: Sequence[str], seconds: float, folder: Path, no_gpu: str | None) -> Row:
    """Measures a row. no_gpu: why there is no GPU; None if there is one."""
    if row.needs_gpu and no_gpu is not None:
        return row._replace(left_out=f"it needs a GPU, and there is none because {no_gpu}")
    if row.package is not None and not is_installed(row.package):
        return row._replace(left_out=f"the package {row.package} is not installed")
    try:
        return row._replace(stage=_measure(row, typed, seconds, folder))
    except (StageFailed, Failure, ConfigError, ImportError) as failure:
        return row._replace(failure=str(failure))


def _measure(row: Row, typed: Sequence[str], seconds: float, folder: Path) -> Stage:
    """Raises StageFailed and Failure."""
    plan = plan_of(parse(BENCHMARK, [*row.flags, *typed]))
    if row.is_learner:
        args = learner_args(plan), synthetic_buffers(plan.sampling), WARMUP_SECONDS, seconds
        limit = 120 + 3 * (WARMUP_SECONDS + seconds)
        stage: Stage = call_in_child("learner", learner_alone, args, limit)
        return stage
    folder.mkdir()
    return run_stage(plan.config, "training", (WARMUP_SECONDS, seconds), folder)


def cells(row: Row, stage: Stage) -> list[str]:
    """Returns the row of the table, see HEADINGS."""
    limits = bottlenecks(stage.waits)
    limit = " and ".join(PARTS[part][0] for part in limits) if 0 < len(limits) < len(PARTS) else "none"
    return [
        row.name,
        f"{stage.fps:,.0f}",
        "n/a" if stage.gpu_busy is None else f"{stage.gpu_busy:.0%}",
        "n/a" if stage.cores is None else f"{stage.cores['ours']:.1f}",
        "learner" if row.is_learner else limit if len(stage.waits) > 1 else "n/a",
    ]


def learner_args(plan: RunPlan) -> LearnerArgs:
    """Returns the arguments of the only learner; without the env's flags, whose modules it would import."""
    config = replace(plan.config, family=None, extra={})
    threads = max(1, cpu.num_usable_cores() // CORES_PER_LEARNER_THREAD)
    policy, info = plan.sampling.acting.policies[0], plan.sampling.info
    return LearnerArgs(0, 0, config, policy, plan.algorithm, info.frameskip, plan.sampling.seed, threads)


def learner_alone(
    args: LearnerArgs, buffers: TrajectoryBuffers, warmup_seconds: float, seconds: float
) -> Stage:
    """In the child: measures a learner without a run, the most that a run can reach with it.

    It trains on made-up trajectories, which another thread copies to the device meanwhile.
    """
    cpu.keep_freed_memory()  # as in a learner's process
    torch.set_num_threads(args.num_threads)
    learner = Learner(args)
    next_batch = endless_batches(buffers, learner)
    ended = threading.Event()
    with ThreadPoolExecutor(1) as batching, ThreadPoolExecutor(1) as watching:
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
        share = watching.submit(watch_gpu, ended)
        try:
            fps = train(seconds)
        finally:
            ended.set()
    ready = learner.describe()
    text = f"on {ready.device} in {ready.precision}"
    num_parameters = ready.num_parameters
    return Stage(
        fps, learner=text, device=ready.device, num_parameters=num_parameters, gpu_busy=share.result()
    )


def watch_gpu(ended: threading.Event) -> float | None:
    """In a thread: returns the mean of `gpu_busy`, asked for every second; None if it is not known."""
    shares = []
    while (share := gpu_busy()) is not None:
        shares.append(share)
        if ended.wait(1.0):
            break
    return fmean(shares) if shares else None


def endless_batches(buffers: TrajectoryBuffers, learner: Learner) -> Callable[[], Batch]:
    """Returns a function that copies the next batch to the learner's device."""
    batcher = Batcher(buffers, 0, learner.device)
    tickets: list[int] = []

    def next_batch() -> Batch:
        if len(tickets) < learner.trajectories_per_batch:
            hand_over_free(buffers, tickets)
        taken = [tickets.pop() for _ in range(learner.trajectories_per_batch)]
        buffers.versions[taken] = learner.version
        return batcher.next_batch(taken)

    return next_batch


def synthetic_buffers(plan: SamplingPlan) -> TrajectoryBuffers:
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


if __name__ == "__main__":
    sys.exit(run_command(run_suite))
