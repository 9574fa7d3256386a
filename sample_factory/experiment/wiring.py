"""From the configuration to the recipe of each worker.

The factories import lazily: the main process has no torch.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from sample_factory.config.config import Config
from sample_factory.config.sections import POLICY_WORKER_NICENESS, ROLLOUT_WORKER_NICENESS
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.exchange.channels import Channels
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.learning.algorithm_registry import registered_algorithm
from sample_factory.learning.settings import LearnerSettings, LearnerWorkerSettings
from sample_factory.models.encoder_registry import registered_encoder
from sample_factory.models.policy_spec import PolicySpec
from sample_factory.population.league import League
from sample_factory.population.mutation import MutationRule
from sample_factory.population.pbt import Member, Population, tuned_hyperparameters
from sample_factory.runtime import cpu
from sample_factory.runtime.child import ChildOptions
from sample_factory.runtime.folder_lock import FolderLock
from sample_factory.sampling.settings import (
    InferenceSettings,
    PolicyWorkerArgs,
    RewardRule,
    RolloutSettings,
    RolloutWorkerArgs,
)

MAX_MIN_REQUESTS = 8
CORES_PER_LEARNER_THREAD = 4
LEARNER_GRACE_SECONDS = 120.0  # to finish an iteration of training and save, when it is to stop


class Parts(NamedTuple):
    """Everything that is there before any worker starts."""

    config: Config
    family: EnvFamily
    info: EnvInfo
    buffers: TrajectoryBuffers
    channels: Channels
    seed: int
    lock: FolderLock | None = None  # of the experiment folder
    population: Population | None = None  # with population-based training
    league: League | None = None  # with self-play against past selves


class Recipe(NamedTuple):
    """What a Child is made of."""

    name: str
    factory: Callable
    args: tuple
    options: ChildOptions


def make_population(config: Config, info: EnvInfo, seed: int) -> Population | None:
    """The policies' settings, from the experiment folder if they are there. None without --with_pbt, or
    where nothing is learned.
    """
    flags, learning = config.population, config.learning
    if not flags.with_pbt or config.sampling.sampler_only:
        return None
    names = tuned_hyperparameters(flags)
    default = Member({name: getattr(learning, name) for name in names}, info.reward_shaping)
    rule = MutationRule(
        flags.pbt_mutation_rate,
        flags.pbt_perturb_min,
        flags.pbt_perturb_max,
        learning.rollout,
        learning.batch_size,
    )
    return Population(flags, default, rule, config.experiment_dir, config.sampling.num_policies, seed)


def make_league(config: Config) -> League | None:
    """The past selves and results that are in the experiment folder. None without --selfplay_past_share."""
    if config.selfplay.selfplay_past_share == 0:
        return None
    return League(config.selfplay, config.experiment_dir, config.sampling.num_policies)


def policy_spec(parts: Parts, policy: int) -> PolicySpec:
    """The network that all processes of a policy build."""
    config = parts.config
    spaces = parts.info.kinds.spaces[parts.buffers.topology.kind_of_policy(policy)]
    return PolicySpec(
        config.model,
        *spaces,
        config.learning.normalize_returns,
        config.run.device,
        config.run.precision,
        registered_encoder(config.model.encoder_custom),
    )


def rollout_worker_recipe(parts: Parts, index: int) -> Recipe:
    """Pinned to a core with its simulators: their round trips are much shorter on one core."""
    sampling = parts.config.sampling
    num_workers = parts.buffers.topology.num_workers
    cores = cpu.worker_cores(index, num_workers) if sampling.set_workers_cpu_affinity else None
    gpus = sampling.actor_worker_gpus
    environment = {"CUDA_VISIBLE_DEVICES": str(gpus[index % len(gpus)]) if gpus else ""}
    niceness = sampling.default_niceness + ROLLOUT_WORKER_NICENESS
    options = ChildOptions(cores, niceness, environment | _maths_threads(parts), own_session=True)
    args = (_rollout_worker_args(parts, index), parts.buffers, parts.channels)
    return Recipe(f"rollout_worker_{index}", build_rollout_worker, args, options)


def _maths_threads(parts: Parts) -> dict[str, str]:
    if not parts.config.sampling.force_envs_single_thread:
        return {}
    return {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def _rollout_worker_args(parts: Parts, index: int) -> RolloutWorkerArgs:
    sampling, learning = parts.config.sampling, parts.config.learning
    settings = RolloutSettings(
        RewardRule(learning.reward_scale, learning.reward_clip),
        parts.seed,
        decorrelate_envs=sampling.decorrelate_envs_on_one_worker and not sampling.benchmark,
        decorrelate_seconds=0.0 if sampling.benchmark else sampling.decorrelate_experience_max_seconds,
        mix_policies=sampling.pbt_mix_policies_in_one_env,
        past_share=parts.config.selfplay.selfplay_past_share,
    )
    return RolloutWorkerArgs(index, parts.family, parts.config.namespace(), settings)


def policy_worker_recipe(parts: Parts, policy: int, index: int) -> Recipe:
    """index: which of the policy's workers."""
    args = (_policy_worker_args(parts, policy, index), parts.buffers, parts.channels)
    niceness = parts.config.sampling.default_niceness + POLICY_WORKER_NICENESS
    options = ChildOptions(niceness=niceness, environment=cpu.HUGE_PAGES)
    return Recipe(f"policy_worker_{policy}_{index}", build_policy_worker, args, options)


def _policy_worker_args(parts: Parts, policy: int, index: int) -> PolicyWorkerArgs:
    topology = parts.buffers.topology
    # Half of what the splits of all workers can ask for at once: the other half is being stepped meanwhile.
    min_requests = topology.num_workers * topology.num_splits // (2 * topology.policy_workers_per_policy)
    settings = InferenceSettings(
        policy_spec(parts, policy),
        min_requests=max(1, min(MAX_MIN_REQUESTS, min_requests)),
        num_threads=1,
        seed=parts.seed + 1000 * (policy + 1) + index,
        experiment_dir=parts.config.experiment_dir,
        max_past_selves=parts.config.selfplay.selfplay_max_opponents,
        cuda_graphs=parts.config.run.cuda_graphs,
    )
    return PolicyWorkerArgs(policy, settings)


def inline_sampler_recipe(parts: Parts, index: int) -> Recipe:
    """The rollout workers index, index + n, ... of n --inline_samplers, and a worker for every policy."""
    sampling, topology = parts.config.sampling, parts.buffers.topology
    mine = range(index, topology.num_workers, sampling.inline_samplers)
    rollout = [_rollout_worker_args(parts, worker) for worker in mine]
    policy = [_policy_worker_args(parts, policy, index) for policy in range(topology.num_policies)]
    niceness = sampling.default_niceness + POLICY_WORKER_NICENESS
    options = ChildOptions(None, niceness, _maths_threads(parts), own_session=True)
    args = (rollout, policy, parts.buffers, parts.channels)
    return Recipe(f"sampler_{index}", build_inline_sampler, args, options)


def learner_recipe(parts: Parts, policy: int) -> Recipe:
    """One for each policy."""
    config, sampling, monitoring = parts.config, parts.config.sampling, parts.config.monitoring
    num_threads = sampling.learner_main_loop_num_cores
    evolved = {} if parts.population is None else parts.population.members[policy].hyperparameters
    learner = LearnerSettings(
        policy_spec(parts, policy),
        replace(config.learning, **evolved),
        sampling.max_policy_lag,
        train_for_env_frames=monitoring.train_for_env_steps,
        frameskip=parts.info.frameskip,
        seed=parts.seed + policy,
        compile=config.run.compile,
        algorithm=registered_algorithm(config.run.algo),
    )
    settings = LearnerWorkerSettings(
        learner,
        num_threads=num_threads or max(1, len(cpu.available_cores()) // CORES_PER_LEARNER_THREAD),
        learn=not sampling.sampler_only,
        experiment_dir=config.experiment_dir,
        keep_checkpoints=monitoring.keep_checkpoints,
        save_every_sec=monitoring.save_every_sec,
        save_milestones_sec=monitoring.save_milestones_sec,
        load_checkpoint_kind=monitoring.load_checkpoint_kind,
        snapshot_env_frames=0 if parts.league is None else config.selfplay.selfplay_snapshot_env_steps,
        lock=parts.lock,
    )
    options = ChildOptions(
        niceness=sampling.default_niceness,
        environment=cpu.HUGE_PAGES,
        grace_seconds=LEARNER_GRACE_SECONDS,
    )
    args = (policy, settings, parts.buffers, parts.channels)
    return Recipe(f"learner_{policy}", build_learner_worker, args, options)


def build_rollout_worker(*args: Any) -> Any:
    """In the child."""
    from sample_factory.sampling.rollout.rollout_worker import RolloutWorker

    return RolloutWorker(*args)


def build_policy_worker(*args: Any) -> Any:
    """In the child."""
    from sample_factory.sampling.inference.policy_worker import PolicyWorker

    return PolicyWorker(*args)


def build_inline_sampler(*args: Any) -> Any:
    """In the child."""
    from sample_factory.sampling.inline_sampler import InlineSampler

    return InlineSampler(*args)


def build_learner_worker(*args: Any) -> Any:
    """In the child."""
    from sample_factory.learning.learner_worker import LearnerWorker

    return LearnerWorker(*args)
