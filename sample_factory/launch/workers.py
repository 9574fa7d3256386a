"""Lists the worker processes of a run, and how each is started.

Their classes are named as "module:attribute", which the child imports: the main process never loads torch.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sample_factory.config.sampling_flags import POLICY_WORKER_NICENESS, ROLLOUT_WORKER_NICENESS
from sample_factory.exchange.run_plan import RunPlan, SamplingPlan
from sample_factory.learning.learner_args import LearnerArgs
from sample_factory.mainloop.main_loop import Resources
from sample_factory.runtime import cpu
from sample_factory.runtime.child import Child, ChildOptions
from sample_factory.runtime.gpu import name_of_gpu, those_visible
from sample_factory.runtime.launch import Factory

CORES_PER_LEARNER_THREAD = 4
NODES_GRACE_SECONDS = 40.0
LEARNER_GRACE_SECONDS = 120.0  # after the request to stop: to finish an iteration of training and save
LEARNER = "learner"
OTHER_LEARNER = "other_learner"
POLICY_WORKER = "policy_worker"
ROLLOUT_WORKER = "rollout_worker"
INLINE_SAMPLER = "sampler"
INGEST = "ingest"
FACTORIES = {
    LEARNER: "sample_factory.learning.learner_worker:LearnerWorker",
    OTHER_LEARNER: "sample_factory.learning.learner_worker:OtherLearner",
    POLICY_WORKER: "sample_factory.sampling.inference.policy_worker:PolicyWorker",
    ROLLOUT_WORKER: "sample_factory.sampling.rollout.rollout_worker:RolloutWorker",
    INLINE_SAMPLER: "sample_factory.sampling.inline_sampler:InlineSampler",
}


class WorkerSpec(NamedTuple):
    """Describes how to start a worker of a run.

    role: one of the constants of this module, such as LEARNER.
    worker_index: index among the workers of the role; for learners and policy workers, among those of the
        policy.
    factory: class of the worker, or a function that makes it.
    args: first arguments of the factory; the buffers, the channels and the ChildContext follow.
    policy_id: policy of a learner or policy worker; None for other workers.
    rollout_workers: indices of the rollout workers in the process.
    """

    role: str
    worker_index: int
    factory: Factory
    args: tuple[Any, ...]
    options: ChildOptions
    policy_id: int | None = None
    rollout_workers: Sequence[int] = ()

    @property
    def shown_role(self) -> str:
        """Returns the role for logs and process names: an "other learner" is called a learner."""
        return LEARNER if self.role == OTHER_LEARNER else self.role

    @property
    def name(self) -> str:
        """Returns the name of the process, for logs and `ps`."""
        if self.policy_id is None:
            return f"{self.role}_{self.worker_index}"
        if self.role == LEARNER:
            return f"learner_{self.policy_id}"
        return f"{self.shown_role}_{self.policy_id}_{self.worker_index}"

    def make_child(self, resources: Resources) -> Child:
        """In the parent: makes the process, but does not start it."""
        args = (*self.args, resources.buffers, resources.channels)
        return Child(self.name, self.factory, args, self.options)


def training_specs(plan: RunPlan, resources: Resources, ingest: str) -> list[WorkerSpec]:
    """Lists the learners of a training, in the order of their start, and with --num_nodes the process that
    stores the trajectories of other machines.

    ingest: class of the process that stores trajectories, as "module:attribute".
    """
    topology = plan.sampling.topology
    learners = [
        _learner(plan, resources, policy_id, rank)
        for rank in range(topology.learners_per_policy)
        for policy_id in range(topology.num_policies)
    ]
    return [*learners, _ingest(plan, ingest)] if topology.num_nodes else learners


def sampling_specs(plan: SamplingPlan) -> list[WorkerSpec]:
    """Lists the workers that sample, in the order of their start."""
    topology = plan.topology
    if topology.num_inline_samplers:
        return [_inline_sampler(plan, index) for index in range(topology.num_inline_samplers)]
    policy_workers = [
        _policy_worker(plan, policy_id, index)
        for policy_id in plan.acting.policies
        for index in range(topology.policy_workers_per_policy)
    ]
    return [*policy_workers, *(_rollout_worker(plan, index) for index in range(topology.num_workers))]


def _rollout_worker(plan: SamplingPlan, index: int) -> WorkerSpec:
    """Returns the spec of a rollout worker. It is pinned to one core together with its simulators, which
    makes their round trips much faster."""
    flags = plan.flags
    cores = cpu.worker_cores(index, plan.topology.num_workers) if flags.set_workers_cpu_affinity else None
    gpus = those_visible(flags.actor_worker_gpus)  # a node, or a machine that evaluates, may have fewer
    environment = {"CUDA_VISIBLE_DEVICES": name_of_gpu(gpus[index % len(gpus)]) if gpus else ""}
    niceness = plan.niceness + ROLLOUT_WORKER_NICENESS
    options = ChildOptions(cores, niceness, environment | _thread_limits(plan), own_session=True)
    return WorkerSpec(
        ROLLOUT_WORKER, index, FACTORIES[ROLLOUT_WORKER], (plan.envs, index), options, rollout_workers=[index]
    )


def _thread_limits(plan: SamplingPlan) -> dict[str, str]:
    return cpu.ONE_THREAD if plan.flags.force_envs_single_thread else {}


def _policy_worker(plan: SamplingPlan, policy_id: int, index: int) -> WorkerSpec:
    niceness = plan.niceness + POLICY_WORKER_NICENESS
    options = ChildOptions(niceness=niceness, environment=cpu.HUGE_PAGES, from_template=True)
    args = (plan.acting, policy_id, index)
    return WorkerSpec(POLICY_WORKER, index, FACTORIES[POLICY_WORKER], args, options, policy_id)


def _inline_sampler(plan: SamplingPlan, index: int) -> WorkerSpec:
    niceness = plan.niceness + POLICY_WORKER_NICENESS
    limits = _thread_limits(plan)
    # The template's libraries are limited to one thread.
    options = ChildOptions(None, niceness, limits, own_session=True, from_template=bool(limits))
    args = (plan.envs, plan.acting, index)
    workers = plan.topology.workers_of_sampler(index)
    return WorkerSpec(
        INLINE_SAMPLER, index, FACTORIES[INLINE_SAMPLER], args, options, rollout_workers=workers
    )


def _ingest(plan: RunPlan, factory: str) -> WorkerSpec:
    options = ChildOptions(
        niceness=plan.sampling.niceness,
        grace_seconds=NODES_GRACE_SECONDS,  # the nodes stop their workers first
        exit_hint="Ray ends this process when its head, or its part of this machine, has died or was stopped",
    )
    args = (plan.sampling, plan.config.cluster, plan.config.experiment_dir)
    return WorkerSpec(INGEST, 0, factory, args, options)


def _learner(plan: RunPlan, resources: Resources, policy_id: int, rank: int) -> WorkerSpec:
    """Returns a learner's spec. rank: index among the learners of the policy; rank 0 saves and publishes."""
    config = plan.config
    flags = config.sampling
    cores = cpu.num_usable_cores() // plan.sampling.topology.learners_per_policy
    population = resources.population
    evolved = {} if population is None else population.members[policy_id].hyperparameters
    args = LearnerArgs(
        policy_id,
        rank,
        # Without the flags of the env, whose modules the learner would have to import.
        replace(config, learning=replace(config.learning, **evolved), family=None, extra={}),
        plan.sampling.acting.policies[policy_id],
        plan.algorithm,
        plan.sampling.info.frameskip,
        seed=plan.sampling.seed + policy_id,
        num_threads=flags.learner_main_loop_num_cores or max(1, cores // CORES_PER_LEARNER_THREAD),
        transfer_from=plan.transfer_from[policy_id],
        lock=resources.lock,
    )
    options = ChildOptions(
        niceness=plan.sampling.niceness,
        environment=cpu.HUGE_PAGES,
        grace_seconds=LEARNER_GRACE_SECONDS,
        from_template=True,
    )
    role = LEARNER if rank == 0 else OTHER_LEARNER
    return WorkerSpec(role, rank, FACTORIES[role], (args,), options, policy_id)
