"""Everything that a run needs before its workers start: shared memory, queues, the population, the league."""

import logging
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sample_factory.config.config import Config
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.exchange.channels import Channels, make_progress
from sample_factory.exchange.kind_storage import kind_layouts
from sample_factory.exchange.policy_weights import PolicyWeights
from sample_factory.exchange.topology import Topology
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.launch.arrangement import num_inline_samplers
from sample_factory.launch.checks import Probed
from sample_factory.launch.evaluation_plan import EvaluationPlan
from sample_factory.mainloop.observer import Observer
from sample_factory.mainloop.observing import make_observers
from sample_factory.models.policy_spec import PolicySpec
from sample_factory.monitoring.summaries import SummaryWriter
from sample_factory.population.league import League
from sample_factory.population.mutation import MutationRule
from sample_factory.population.pbt import Member, Population, tuned_hyperparameters
from sample_factory.runtime.folder_lock import FolderLock
from sample_factory.runtime.queue_transports import make_queue
from sample_factory.runtime.queues import LocalQueue, Queue
from sample_factory.sampling.matchmaking.registry import MatchmakingChoice

log = logging.getLogger("sample_factory")


class Registered(NamedTuple):
    """The parts that a user's script has registered, as far as workers need them; nodes do not run it."""

    policies: Sequence[PolicySpec]  # the networks
    matchmaking: MatchmakingChoice
    reports_infos: bool  # whether an observer reads the infos of episodes


class Parts(NamedTuple):
    """Everything that exists before any worker starts."""

    config: Config
    family: EnvFamily
    info: EnvInfo
    buffers: TrajectoryBuffers
    channels: Channels
    seed: int
    lock: FolderLock | None = None  # of the experiment folder
    population: Population | None = None  # with population-based training
    league: League | None = None  # with self-play against past selves
    observers: Mapping[str, Observer] = {}  # by name
    evaluation: EvaluationPlan | None = None  # with --eval_every_env_steps
    writers: Sequence[SummaryWriter] = ()  # of summaries, beside those for files of the experiment
    has_learner: bool = True  # not in an evaluation, and not on a node
    registered: Registered | None = None  # on a node; elsewhere the registries of this process are read


def allocate(
    config: Config,
    family: EnvFamily,
    probed: Probed,
    topology: Topology,
    lock: FolderLock | None = None,
    has_learner: bool = True,
) -> Parts:
    """Allocates shared memory and queues, makes the observers, and loads the population and the league of an
    earlier run.

    has_learner: False for an evaluation, and on a node.
    Raises ConfigError if an observer cannot be made, or files in the experiment folder cannot be read.
    """
    info = probed.info
    buffers = TrajectoryBuffers(topology, kind_layouts(info.kinds), probed.state_size)
    channels = _make_channels(config, topology)
    seed = chosen_seed(config)
    log.info(
        "%d workers x %d envs x %d agents, %d inline samplers; %d trajectory buffers of %d steps, "
        "%.0f MB shared; seed %d",
        topology.num_workers,
        topology.envs_per_split * topology.num_splits,
        topology.agents_per_env,
        num_inline_samplers(config),
        topology.num_buffers,
        topology.rollout,
        buffers.nbytes / 2**20,
        seed,
        extra={"short": _starting_text(topology, seed)},
    )
    if not has_learner:  # what follows steers a training
        return Parts(config, family, info, buffers, channels, seed, has_learner=False)
    population = make_population(config, info, seed)
    league = make_league(config)
    observers = make_observers(config)
    plan = probed.evaluation
    return Parts(config, family, info, buffers, channels, seed, lock, population, league, observers, plan)


def chosen_seed(config: Config) -> int:
    """Returns --seed, or a random one."""
    return random.SystemRandom().randrange(2**31) if config.run.seed is None else config.run.seed


def _starting_text(topology: Topology, seed: int) -> str:
    """Returns what is about to start, e.g. "Starting 16 envs in 2 workers, a learner; seed 1 ..."."""
    num_envs = topology.envs_per_split * topology.num_splits * topology.num_workers
    agents = f" of {topology.agents_per_env} agents" if topology.agents_per_env > 1 else ""
    learners = ", and a learner" if topology.num_policies == 1 else f", and {topology.num_policies} learners"
    if topology.num_episodes is not None:
        learners = ""
    workers = "1 worker" if topology.num_workers == 1 else f"{topology.num_workers} workers"
    return f"Starting {num_envs} envs{agents} in {workers}{learners} (seed {seed}) ..."


def _make_channels(config: Config, topology: Topology) -> Channels:
    num_inline = num_inline_samplers(config)  # whose rollout and policy workers share queues of their own
    return Channels(
        inboxes=_make_queues(config, (num_inline or topology.num_workers) + topology.num_nodes),
        requests=_make_queues(config, 0 if num_inline else topology.num_policies),
        learners=_make_queues(config, topology.num_policies),
        reports=_make_queues(config, 1)[0],
        weights=[PolicyWeights() for _ in range(topology.num_policies)],
        progress=make_progress(topology),
        other_learners={
            policy_id: _make_queues(config, topology.learners_per_policy - 1)
            for policy_id in range(topology.num_policies)
        },
    )


def _make_queues(config: Config, count: int) -> Sequence[Queue]:
    if config.sampling.serial_mode:
        return [LocalQueue(waits=False) for _ in range(count)]
    return [make_queue(config.sampling.queue) for _ in range(count)]


def make_population(config: Config, info: EnvInfo, seed: int) -> Population | None:
    """Returns the settings of all policies, loaded from the experiment folder if they are stored there.

    None without --with_pbt, and with --sampler_only, where nothing is learned.
    """
    flags = config.population
    learning = config.learning
    if not flags.with_pbt or config.sampling.sampler_only:
        return None
    names = tuned_hyperparameters(flags, config.run.algo)
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
    """Returns the past selves and results in the experiment folder. None without --selfplay_past_share."""
    if config.selfplay.selfplay_past_share == 0:
        return None
    return League(config.selfplay, config.experiment_dir, config.sampling.num_policies)
