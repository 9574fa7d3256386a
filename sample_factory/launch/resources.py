"""Allocates what the main process of a run owns: shared memory, queues, the population, the league."""

from collections.abc import Sequence

from sample_factory.exchange.channels import Channels, make_progress
from sample_factory.exchange.policy_weights import PolicyWeights
from sample_factory.exchange.run_plan import RunPlan, SamplingPlan
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers, kind_layouts
from sample_factory.mainloop.main_loop import Resources
from sample_factory.population.league import League
from sample_factory.population.pbt import Member, Population, numbers_of, tuned_hyperparameters
from sample_factory.runtime.log import details, log
from sample_factory.runtime.queues import LocalQueue, Queue, make_queue


def allocate(plan: SamplingPlan) -> Resources:
    """Allocates the shared memory (trajectory buffers, weights, counters) and the queues of a run."""
    buffers = TrajectoryBuffers(plan.topology, kind_layouts(plan.info.kinds), plan.state_size)
    return Resources(buffers, _make_channels(plan))


def log_start(plan: SamplingPlan, num_bytes: int) -> None:
    """Logs the numbers of envs, workers and learners. num_bytes: size of the shared memory."""
    topology = plan.topology
    num_envs = topology.num_agents // topology.agents_per_env
    agents = f" of {topology.agents_per_env} agents" if topology.agents_per_env > 1 else ""
    workers = "1 worker" if topology.num_workers == 1 else f"{topology.num_workers} workers"
    learners = "a learner" if topology.num_policies == 1 else f"{topology.num_policies} learners"
    learning = f", and {learners}" if topology.learners_per_policy else ""
    memory = details(
        f"{topology.num_inline_samplers} inline samplers; {topology.num_buffers} trajectory buffers of "
        f"{topology.rollout} steps, {num_bytes / 2**20:.0f} MB shared"
    )
    text = "Starting %d envs%s in %s%s (seed %d) ..."
    log.info(text, num_envs, agents, workers, learning, plan.seed, extra=memory)


def allocate_training(plan: RunPlan) -> Resources:
    """Allocates the resources of a training: shared memory and queues, and also the population and the
    league, which continue from files of an earlier run. Raises ConfigError if files in the experiment folder
    cannot be read."""
    resources = allocate(plan.sampling)
    log_start(plan.sampling, resources.buffers.nbytes)
    return resources._replace(population=make_population(plan), league=make_league(plan))


def _make_channels(plan: SamplingPlan) -> Channels:
    topology = plan.topology
    num_inline = topology.num_inline_samplers  # each has queues for the rollout and policy workers in it
    return Channels(
        inboxes=_make_queues(plan, (num_inline or topology.num_workers) + topology.num_nodes),
        requests=_make_queues(plan, 0 if num_inline else topology.num_policies),
        learners=_make_queues(plan, topology.num_policies),
        reports=_make_queues(plan, 1)[0],
        weights=[PolicyWeights() for _ in range(topology.num_policies)],
        progress=make_progress(topology),
        other_learners={
            policy_id: _make_queues(plan, topology.learners_per_policy - 1)
            for policy_id in range(topology.num_policies)
        },
    )


def _make_queues(plan: SamplingPlan, count: int) -> Sequence[Queue]:
    if plan.flags.serial_mode:
        return [LocalQueue() for _ in range(count)]
    return [make_queue(plan.flags.queue) for _ in range(count)]


def make_population(plan: RunPlan) -> Population | None:
    """Returns the population, with the settings that are stored in the experiment folder; None without
    --with_pbt, and with --sampler_only, where nothing is learned. Logs typed flags that have no effect."""
    config = plan.config
    flags = config.population
    learning = config.learning
    if not flags.with_pbt or config.sampling.sampler_only:
        return None
    names = tuned_hyperparameters(flags, config.run.algo)
    shaping = numbers_of(plan.sampling.info.reward_shaping)
    default = Member({name: getattr(learning, name) for name in names}, shaping)
    population = Population(
        flags, default, learning, config.experiment_dir, config.sampling.num_policies, plan.sampling.seed
    )
    kept = population.members[0].hyperparameters  # policy 0 is never mutated
    for flag, _, given in () if config.resumed is None else config.resumed.changed:
        if flag in kept and kept[flag] != given:
            log.warning(
                "--%s=%s has no effect: the population continues with the settings in policy_*_cfg.json, and "
                "this flag evolves; edit or delete these files",
                flag,
                given,
            )
    return population


def make_league(plan: RunPlan) -> League | None:
    """Returns the league, with the results that are stored in the experiment folder; None without
    --selfplay_past_share."""
    config = plan.config
    if config.selfplay.selfplay_past_share == 0:
        return None
    return League(config.selfplay, config.experiment_dir, config.sampling.num_policies)
