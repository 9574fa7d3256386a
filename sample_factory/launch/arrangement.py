"""How a run is divided among processes and envs where the flags leave it open: by the machine and the env."""

import math
from dataclasses import replace

import psutil

from sample_factory.config.config import Config
from sample_factory.envs.env_info import EnvInfo
from sample_factory.exchange.run_plan import Note
from sample_factory.runtime.cpu import memory_limit_mb, num_usable_cores
from sample_factory.runtime.gpu import may_have_gpu

USUAL_AGENTS = 16  # of a rollout worker
SERIAL_AGENTS = 2
MOST_AGENTS = 64  # where a step takes FAST_SECONDS at most
MOST_BATCHES = 8  # that all agents together fill in a rollout
FEW_BATCHES = 2  # the same, for more than USUAL_AGENTS
FAST_SECONDS = 1e-4
SIMULATOR_MB = 100.0  # of an env with a process of its own
SAMPLER_MB = 300.0  # of an inline sampler, with torch and a network
MEMORY_SHARE = 0.5  # of the machine, for samplers, and of what is free, for simulators


def num_inline_samplers(config: Config) -> int:
    """Returns --inline_samplers; where it is left out, one per core if the rollout workers occupy all cores
    and the network runs on them too, otherwise 0.

    On two cores without bf16, doom_benchmark is trained 7 to 16 % faster than by separate processes, and
    sampled 32 % faster: there are fewer switches between processes. With a GPU, batches of all workers
    together are faster; with cores to spare, simulation overlaps with inference in another process. In serial
    mode all workers are in one process anyway.
    """
    sampling = config.sampling
    if sampling.serial_mode:
        return 0
    if sampling.inline_samplers is not None:
        return sampling.inline_samplers
    cores = num_usable_cores()
    needs_separate_processes = (
        config.population.with_pbt
        or config.selfplay.selfplay_past_share > 0
        or sampling.num_policies > 1
        or sampling.policy_workers_per_policy > 1
        or bool(sampling.actor_worker_gpus)
    )
    # Not the free memory, which changes while a run starts.
    has_memory = cores * SAMPLER_MB <= MEMORY_SHARE * memory_limit_mb(psutil.virtual_memory().total)
    if needs_separate_processes or sampling.num_workers < cores or may_have_gpu(config.run.device):
        return 0
    return cores if has_memory else 0


def arrange(config: Config, info: EnvInfo) -> tuple[Config, int, list[Note]]:
    """Returns the configuration with a number for --num_envs_per_worker, the number of inline samplers, and
    a line for the log if the former was left out."""
    num_inline = num_inline_samplers(config)
    if config.sampling.num_envs_per_worker is not None:
        return config, num_inline, []
    num_envs = chosen_num_envs(config, info)
    config = replace(config, sampling=replace(config.sampling, num_envs_per_worker=num_envs))
    short = f"{num_envs} envs per worker; --num_envs_per_worker sets another number"
    return config, num_inline, [Note(f"{num_envs} envs per worker{_reason(config, info)}", short)]


def _reason(config: Config, info: EnvInfo) -> str:
    if info.step_seconds is None:
        return "; --num_envs_per_worker sets another number"
    reason = f": a step of one takes {1e6 * info.step_seconds:,.0f} us"
    splits = config.sampling.worker_num_splits
    if info.step_seconds <= FAST_SECONDS and config.flat().get("vector_env_copies") == 1:
        copies = config.sampling.envs_per_worker // splits
        reason += (
            f"; --num_envs_per_worker={splits} --vector_env_copies={copies} would step as many in fewer "
            "calls, if the env can be copied"
        )
    return reason


def chosen_num_envs(config: Config, info: EnvInfo) -> int:
    """Returns the number of envs that gives a rollout worker USUAL_AGENTS.

    Fewer where all agents together would fill more than MOST_BATCHES in a rollout, since experience that
    waits for the learner gets old; up to MOST_AGENTS if an env steps in FAST_SECONDS, as long as they fill
    FEW_BATCHES at most. Fewer where simulators would need more memory than MEMORY_SHARE of what is free.
    SERIAL_AGENTS in serial mode, which depends on no time. A multiple of --worker_num_splits.
    """
    sampling = config.sampling
    learning = config.learning
    trajectories = learning.batch_size * learning.num_batches_per_iteration // learning.rollout
    of_batch = trajectories / sampling.num_workers
    agents = min(USUAL_AGENTS, MOST_BATCHES * of_batch)
    if info.step_seconds is not None and info.step_seconds <= FAST_SECONDS:
        agents = max(agents, min(MOST_AGENTS, FEW_BATCHES * of_batch))
    if sampling.serial_mode:
        agents = SERIAL_AGENTS
    envs = agents / info.num_agents
    if info.has_simulator:
        free_mb = memory_limit_mb(psutil.virtual_memory().available)
        envs = min(envs, MEMORY_SHARE * free_mb / SIMULATOR_MB / sampling.num_workers)
    splits = sampling.worker_num_splits
    return splits * max(1, math.floor(envs / splits))
