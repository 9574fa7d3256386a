"""From the configuration to the arguments of each worker process.

Workers are named as "module:attribute" strings, which the child imports: the main process never loads torch.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sample_factory.config.cluster_flags import DIVERGENCE
from sample_factory.config.config import Config
from sample_factory.config.sampling_flags import POLICY_WORKER_NICENESS, ROLLOUT_WORKER_NICENESS
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.exchange.channels import Channels
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.launch.arrangement import num_inline_samplers
from sample_factory.launch.checks import Probed
from sample_factory.mainloop.observing import read_infos
from sample_factory.launch.parts import Parts, Registered
from sample_factory.launch.start_from import transfer_file
from sample_factory.learning.algorithm_registry import registered_algorithm
from sample_factory.learning.settings import LearnerSettings, LearnerWorkerArgs, LearnerWorkerSettings
from sample_factory.models.policy_spec import PolicySpec, make_policy_spec
from sample_factory.runtime import cpu
from sample_factory.runtime.child import Child, ChildOptions
from sample_factory.sampling.matchmaking.registry import chosen_matchmaking
from sample_factory.sampling.settings import (
    AS_IN_TRAINING,
    ActionChoice,
    InferenceSettings,
    InlineSamplerArgs,
    PolicyWorkerArgs,
    RewardRule,
    RolloutSettings,
    RolloutWorkerArgs,
)

MAX_MIN_REQUESTS = 8
MAX_RANDOM_SECONDS = 10.0
CORES_PER_LEARNER_THREAD = 4
NODES_GRACE_SECONDS = 40.0
LEARNER_GRACE_SECONDS = 120.0  # to finish an iteration of training and save after the request to stop
ROLLOUT_WORKER = "sample_factory.sampling.rollout.rollout_worker:RolloutWorker"
POLICY_WORKER = "sample_factory.sampling.inference.policy_worker:PolicyWorker"
INLINE_SAMPLER = "sample_factory.sampling.inline_sampler:InlineSampler"
LEARNER_WORKER = "sample_factory.learning.learner_worker:LearnerWorker"
INGEST = "sample_factory.cluster.ingest:Ingest"
OTHER_LEARNER = "sample_factory.learning.other_learner:OtherLearner"


class NodesArgs(NamedTuple):
    """A run, as other machines need to know it."""

    num_nodes: int
    config: Config
    family: EnvFamily
    probed: Probed
    seed: int
    registered: Registered


WorkerArgs = NodesArgs | RolloutWorkerArgs | PolicyWorkerArgs | InlineSamplerArgs | LearnerWorkerArgs


class WorkerId(NamedTuple):
    """Which worker of the run a process is.

    role: "learner", "policy_worker", "rollout_worker", "sampler" (--inline_samplers) or "ingest"
        (--num_nodes).
    worker_index: counts the workers of one role; policy workers and learners are counted for each policy.
    policy_id: of a learner or policy worker.
    """

    role: str
    worker_index: int
    policy_id: int | None = None

    @property
    def name(self) -> str:
        """Name of the process, in logs and for `ps`."""
        if self.policy_id is None:
            return f"{self.role}_{self.worker_index}"
        if self.role == "learner" and self.worker_index == 0:
            return f"learner_{self.policy_id}"
        return f"{self.role}_{self.policy_id}_{self.worker_index}"


class WorkerSpec(NamedTuple):
    """How the process of a worker is started.

    factory: "module:attribute" of a class or function with the parameters (args, buffers, channels, context).
        It is imported in the child.
    """

    worker_id: WorkerId
    factory: str
    args: WorkerArgs
    options: ChildOptions

    @property
    def rollout_workers(self) -> Sequence[int]:
        """Indices of the rollout workers in the process."""
        match self.args:
            case RolloutWorkerArgs():
                return [self.args.worker_index]
            case InlineSamplerArgs():
                return [worker.worker_index for worker in self.args.rollout_workers]
        return []

    def make_child(self, buffers: TrajectoryBuffers, channels: Channels) -> Child:
        """In the parent: returns the process, not yet started."""
        return Child(self.worker_id.name, self.factory, (self.args, buffers, channels), self.options)


class WorkerSpecs(NamedTuple):
    """All workers of a run. With --inline_samplers there are no separate rollout and policy workers."""

    learners: list[WorkerSpec]  # the first one of each policy
    other_learners: list[WorkerSpec]
    policy_workers: list[WorkerSpec]
    inline_samplers: list[WorkerSpec]
    rollout_workers: list[WorkerSpec]
    ingest: list[WorkerSpec]  # one, with --num_nodes

    @property
    def all(self) -> list[WorkerSpec]:
        return [spec for specs in self for spec in specs]


def worker_specs(parts: Parts) -> WorkerSpecs:
    """Returns the specifications of all workers of a run."""
    parts = parts._replace(registered=registered(parts))
    topology = parts.buffers.topology
    policies = range(topology.num_policies)
    ranks = range(topology.learners_per_policy if parts.has_learner else 0)
    all_learners = [learner_spec(parts, policy_id, rank) for policy_id in policies for rank in ranks]
    learners = [spec for spec in all_learners if spec.worker_id.worker_index == 0]
    other_learners = [spec for spec in all_learners if spec.worker_id.worker_index > 0]
    ingest = [ingest_spec(parts)] if topology.num_nodes else []
    num_inline = num_inline_samplers(parts.config)
    if num_inline:
        samplers = [inline_sampler_spec(parts, index) for index in range(num_inline)]
        return WorkerSpecs(learners, other_learners, [], samplers, [], ingest)
    policy_workers = [
        policy_worker_spec(parts, policy_id, index)
        for policy_id in policies
        for index in range(topology.policy_workers_per_policy)
    ]
    rollout_workers = [rollout_worker_spec(parts, index) for index in range(topology.num_workers)]
    return WorkerSpecs(learners, other_learners, policy_workers, [], rollout_workers, ingest)


def registered(parts: Parts) -> Registered:
    """Returns the parts that --encoder_custom, --matchmaking, --observers and the like name."""
    if parts.registered is not None:
        return parts.registered
    policies = [
        _make_policy_spec(parts, policy_id) for policy_id in range(parts.config.sampling.num_policies)
    ]
    matchmaking = chosen_matchmaking(parts.config.selfplay.matchmaking)
    return Registered(policies, matchmaking, read_infos(parts.observers))


def policy_spec(parts: Parts, policy_id: int) -> PolicySpec:
    """Returns the description of the network that all processes of a policy build."""
    return registered(parts).policies[policy_id]


def _make_policy_spec(parts: Parts, policy_id: int) -> PolicySpec:
    spaces = parts.info.kinds.spaces[parts.buffers.topology.kind_of_policy(policy_id)]
    return make_policy_spec(parts.config, spaces.observation, spaces.action)


def rollout_worker_spec(parts: Parts, index: int) -> WorkerSpec:
    """Returns the specification of a rollout worker.

    The worker is pinned to one core together with its simulators, because their round trips take much less
    time on one core.
    """
    sampling = parts.config.sampling
    num_workers = parts.buffers.topology.num_workers
    cores = cpu.worker_cores(index, num_workers) if sampling.set_workers_cpu_affinity else None
    gpus = sampling.actor_worker_gpus
    environment = {"CUDA_VISIBLE_DEVICES": str(gpus[index % len(gpus)]) if gpus else ""}
    niceness = sampling.default_niceness + ROLLOUT_WORKER_NICENESS
    options = ChildOptions(cores, niceness, environment | _thread_limits(parts), own_session=True)
    args = _rollout_worker_args(parts, index)
    return WorkerSpec(WorkerId("rollout_worker", index), ROLLOUT_WORKER, args, options)


def _thread_limits(parts: Parts) -> dict[str, str]:
    return cpu.ONE_THREAD if parts.config.sampling.force_envs_single_thread else {}


def _rollout_worker_args(parts: Parts, index: int) -> RolloutWorkerArgs:
    sampling = parts.config.sampling
    learning = parts.config.learning
    settings = RolloutSettings(
        RewardRule(learning.reward_scale, learning.reward_clip),
        parts.seed,
        decorrelate_envs=sampling.decorrelate_envs_on_one_worker and not sampling.benchmark,
        decorrelate_seconds=0.0 if sampling.benchmark else sampling.decorrelate_experience_max_seconds,
        mix_policies=sampling.pbt_mix_policies_in_one_env,
        past_share=parts.config.selfplay.selfplay_past_share,
        matchmaking=registered(parts).matchmaking,
        reports_infos=registered(parts).reports_infos,
        # A serial run must be repeatable, so that it depends on no time.
        max_random_seconds=math.inf if sampling.serial_mode else MAX_RANDOM_SECONDS,
    )
    return RolloutWorkerArgs(index, parts.family, parts.config.namespace(), settings)


def policy_worker_spec(parts: Parts, policy_id: int, index: int) -> WorkerSpec:
    """Returns the specification of a policy worker; index counts the workers of its policy."""
    args = _policy_worker_args(parts, policy_id, index)
    niceness = parts.config.sampling.default_niceness + POLICY_WORKER_NICENESS
    options = ChildOptions(niceness=niceness, environment=cpu.HUGE_PAGES)
    return WorkerSpec(WorkerId("policy_worker", index, policy_id), POLICY_WORKER, args, options)


def _policy_worker_args(parts: Parts, policy_id: int, index: int) -> PolicyWorkerArgs:
    topology = parts.buffers.topology
    # Half of the requests that the splits of all workers can have open: the other splits are being stepped.
    min_requests = topology.num_workers * topology.num_splits // (2 * topology.policy_workers_per_policy)
    settings = InferenceSettings(
        policy_spec(parts, policy_id),
        min_requests=max(1, min(MAX_MIN_REQUESTS, min_requests)),
        num_threads=1,
        seed=parts.seed + 1000 * (policy_id + 1) + index,
        experiment_dir=parts.config.experiment_dir,
        max_past_selves=parts.config.selfplay.selfplay_max_opponents,
        cuda_graphs=parts.config.run.cuda_graphs,
        action_choice=_action_choice(parts),
    )
    return PolicyWorkerArgs(policy_id, settings)


def _action_choice(parts: Parts) -> ActionChoice:
    flags = parts.config.evaluation
    if parts.buffers.topology.num_episodes is None:
        return AS_IN_TRAINING
    return ActionChoice(flags.eval_deterministic, flags.continuous_actions_sample)


def inline_sampler_spec(parts: Parts, index: int) -> WorkerSpec:
    """Returns the specification of an inline sampler.

    Of n samplers it holds the rollout workers index, index + n, ..., and one policy worker of every policy.
    """
    sampling = parts.config.sampling
    topology = parts.buffers.topology
    worker_indices = range(index, topology.num_workers, num_inline_samplers(parts.config))
    rollout_workers = [_rollout_worker_args(parts, worker_index) for worker_index in worker_indices]
    policy_workers = [
        _policy_worker_args(parts, policy_id, index) for policy_id in range(topology.num_policies)
    ]
    niceness = sampling.default_niceness + POLICY_WORKER_NICENESS
    options = ChildOptions(None, niceness, _thread_limits(parts), own_session=True)
    args = InlineSamplerArgs(index, rollout_workers, policy_workers)
    return WorkerSpec(WorkerId("sampler", index), INLINE_SAMPLER, args, options)


def ingest_spec(parts: Parts) -> WorkerSpec:
    """Returns the specification of the process that stores the trajectories of the nodes."""
    probed = Probed(parts.info, parts.buffers.rnn_state_size)
    num_nodes = parts.buffers.topology.num_nodes
    args = NodesArgs(num_nodes, parts.config, parts.family, probed, parts.seed, registered(parts))
    options = ChildOptions(
        niceness=parts.config.sampling.default_niceness,
        grace_seconds=NODES_GRACE_SECONDS,  # the nodes stop their workers first
        exit_hint="Ray ends this process when its head, or its part of this machine, has died or was stopped",
    )
    return WorkerSpec(WorkerId("ingest", 0), INGEST, args, options)


def learner_spec(parts: Parts, policy_id: int, rank: int = 0) -> WorkerSpec:
    """Returns the specification of a learner; rank counts those of its policy."""
    config = parts.config
    sampling = config.sampling
    monitoring = config.monitoring
    cluster = config.cluster
    num_learners = parts.buffers.topology.learners_per_policy
    cores = cpu.num_usable_cores() // num_learners
    evolved = {} if parts.population is None else parts.population.members[policy_id].hyperparameters
    learner = LearnerSettings(
        policy_spec(parts, policy_id),
        replace(config.learning, **evolved),
        sampling.max_policy_lag,
        train_for_env_frames=monitoring.train_for_env_steps,
        frameskip=parts.info.frameskip,
        seed=parts.seed + policy_id,
        compile=config.run.compile,
        algorithm=registered_algorithm(config.run.algo),
        divergence_threshold=cluster.threshold if cluster.weights_sync == DIVERGENCE else None,
        forced_policy_lag=sampling.forced_policy_lag,
    )
    settings = LearnerWorkerSettings(
        learner,
        num_threads=sampling.learner_main_loop_num_cores or max(1, cores // CORES_PER_LEARNER_THREAD),
        learn=not sampling.sampler_only,
        experiment_dir=config.experiment_dir,
        keep_checkpoints=monitoring.keep_checkpoints,
        save_every_sec=monitoring.save_every_sec,
        save_milestones_sec=monitoring.save_milestones_sec,
        load_checkpoint_kind=monitoring.load_checkpoint_kind,
        snapshot_env_frames=0 if parts.league is None else config.selfplay.selfplay_snapshot_env_steps,
        transfer_from=transfer_file(config, policy_id),
        lock=parts.lock,
        num_learners=num_learners,
    )
    options = ChildOptions(
        niceness=sampling.default_niceness,
        environment=cpu.HUGE_PAGES,
        grace_seconds=LEARNER_GRACE_SECONDS,
    )
    args = LearnerWorkerArgs(policy_id, settings, rank)
    factory = LEARNER_WORKER if rank == 0 else OTHER_LEARNER
    return WorkerSpec(WorkerId("learner", rank, policy_id), factory, args, options)
