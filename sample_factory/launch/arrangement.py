"""Chooses --inline_samplers and --num_envs_per_worker, if they are left out, by the machine and the env."""

import math
from dataclasses import replace

import psutil

from sample_factory.config.config import Config
from sample_factory.config.sampling_flags import SamplingFlags
from sample_factory.envs.env_info import EnvInfo
from sample_factory.exchange.run_plan import Note
from sample_factory.runtime.cpu import memory_limit_mb, num_usable_cores
from sample_factory.runtime.gpu import may_have_gpu

BY_MACHINE = "the machine and the env"  # the layer in `Config.choices`
USUAL_AGENTS = 16  # of a rollout worker
SERIAL_AGENTS = 2  # of the rollout worker in serial mode
MOST_AGENTS = 64  # of a rollout worker, if a step of the env takes at most FAST_SECONDS
FAST_SECONDS = 1e-4
MOST_BATCHES = 8  # batches that one rollout of all agents may fill
FEW_BATCHES = 2  # the same, if workers have more than USUAL_AGENTS
SIMULATOR_MB = 100.0  # memory of a simulator's process; a match of Doom has one for each agent
SAMPLER_MB = 300.0  # memory of an inline sampler, with torch and a network
MEMORY_SHARE = 0.5  # of the machine's memory for samplers, and of the free memory for simulators


def num_inline_samplers(flags: SamplingFlags, device: str, are_separate: bool) -> int:
    """Returns the number of inline samplers: --inline_samplers, or 0 in serial mode. If the flag is left out:
    one per core if the rollout workers occupy all cores, the network runs on the CPU too, and the memory
    suffices; otherwise 0.

    With fewer switches between processes, doom_benchmark is sampled 32 % faster on two cores without bf16,
    and trained 7 to 16 % faster. With a GPU, batches of all workers together are faster; with cores to spare,
    simulation overlaps with inference in another process.

    device: value of --device. are_separate: whether a flag needs rollout and policy workers in separate
        processes.
    """
    if flags.serial_mode:
        return 0
    if flags.inline_samplers is not None:
        return flags.inline_samplers
    cores = num_usable_cores()
    needs_separate_processes = (
        are_separate
        or flags.num_policies > 1
        or flags.policy_workers_per_policy > 1
        or bool(flags.actor_worker_gpus)
    )
    # Of the total memory: the free memory changes while a run starts.
    has_memory = cores * SAMPLER_MB <= MEMORY_SHARE * memory_limit_mb(psutil.virtual_memory().total)
    if needs_separate_processes or flags.num_workers < cores or may_have_gpu(device):
        return 0
    return cores if has_memory else 0


def arrange(config: Config, info: EnvInfo) -> tuple[Config, int, list[Note]]:
    """Returns the configuration with a number for --num_envs_per_worker, the number of inline samplers, and
    lines for the log about the choice of --num_envs_per_worker."""
    evolves = config.population.with_pbt or config.selfplay.selfplay_past_share > 0
    num_inline = num_inline_samplers(config.sampling, config.run.device, evolves)
    left_out = replace(config.sampling, inline_samplers=None)
    config = config.could_choose(
        BY_MACHINE, {"inline_samplers": num_inline_samplers(left_out, config.run.device, evolves)}
    )
    num_envs = _choose_num_envs(config, info)
    if config.sampling.num_envs_per_worker is not None:
        return config.could_choose(BY_MACHINE, {"num_envs_per_worker": num_envs}), num_inline, []
    config = config.choose(BY_MACHINE, {"num_envs_per_worker": num_envs})
    reason = _reason(config, info)
    note = Note(f"{num_envs} envs per worker{reason}; --num_envs_per_worker sets another number")
    return config, num_inline, [note]


def _reason(config: Config, info: EnvInfo) -> str:
    if info.step_seconds is None:
        return ""
    reason = f": a step of one takes {1e6 * info.step_seconds:,.0f} us"
    splits = config.sampling.worker_num_splits
    copies = config.sampling.envs_per_worker // splits
    is_fast = info.step_seconds <= FAST_SECONDS
    if is_fast and copies > 1 and config.flat().get("vector_env_copies") == 1:
        reason += (
            f"; --num_envs_per_worker={splits} --vector_env_copies={copies} would step as many in fewer "
            "calls, if the env can be copied"
        )
    return reason


def _choose_num_envs(config: Config, info: EnvInfo) -> int:
    """Chooses the number of envs per rollout worker, a multiple of --worker_num_splits. It follows from the
    number of agents of a worker:

    - USUAL_AGENTS usually. Fewer if a rollout of all agents would fill more than MOST_BATCHES batches:
      samples that wait for the learner get old.
    - Up to MOST_AGENTS if the env steps within FAST_SECONDS, as long as a rollout fills at most FEW_BATCHES.
    - With --async_rl=False, a rollout fills at most one batch, and the agents have equal shares in an
      iteration.
    - Fewer if the simulators would need more than MEMORY_SHARE of the free memory.
    - SERIAL_AGENTS in serial mode, where the number must not depend on a measured time.
    """
    sampling = config.sampling
    learning = config.learning
    trajectories = learning.batch_size * learning.num_batches_per_iteration // learning.rollout
    of_batch = trajectories / sampling.num_workers
    most, few = (MOST_BATCHES, FEW_BATCHES) if sampling.async_rl else (1, 1)
    agents = min(USUAL_AGENTS, most * of_batch)
    if info.step_seconds is not None and info.step_seconds <= FAST_SECONDS:
        agents = max(agents, min(MOST_AGENTS, few * of_batch))
    if sampling.serial_mode:
        agents = SERIAL_AGENTS
    envs = agents / info.num_agents
    if info.num_simulators:
        free_mb = memory_limit_mb(psutil.virtual_memory().available)
        of_env = SIMULATOR_MB * info.num_simulators
        envs = min(envs, MEMORY_SHARE * free_mb / of_env / sampling.num_workers)
    splits = sampling.worker_num_splits
    num_envs = splits * max(1, math.floor(envs / splits))
    if not sampling.async_rl:
        while num_envs > splits and trajectories % (sampling.num_workers * num_envs * info.num_agents):
            num_envs -= splits
    return num_envs
