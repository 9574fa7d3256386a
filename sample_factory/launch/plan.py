"""The plan of a run: every check and every choice, in one pass, before any worker starts."""

import random

from sample_factory.config.config import Config
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import EnvInfo
from sample_factory.exchange.run_plan import RunPlan
from sample_factory.exchange.topology import make_topology
from sample_factory.launch.arrangement import arrange
from sample_factory.launch.centralized_critic import with_centralized_critic
from sample_factory.launch.checks import (
    check_critic_only_keys,
    check_env,
    check_machine,
    check_names,
    describe_networks,
    probe_env,
    probe_networks,
)
from sample_factory.launch.observation_kinds import with_defaults_for
from sample_factory.launch.start_from import transfer_files
from sample_factory.mainloop.observing import follows_episodes, make_observers
from sample_factory.models.policy_spec import make_policy_spec


def plan_run(
    config: Config,
    family: EnvFamily,
    num_episodes: int | None = None,
    info: EnvInfo | None = None,
    state_size: int | None = None,
) -> RunPlan:
    """Returns the plan of a training, without its evaluations, or of an evaluation.

    num_episodes: of an evaluation. None: a training.
    info, state_size: the properties of the env and the size of a recurrent state, if the caller knows them.
        Otherwise an env, and a network of the user's own, are tried out in child processes.

    Raises ConfigError with what is wrong and what would be right, ImportError for a missing package,
    CommandFailed if the Ray cluster cannot be reached, and ChildFailed if the env, or a network or algorithm
    of the user's own, cannot be made.
    """
    trains = num_episodes is None
    algorithm, matchmaking = check_names(config)
    check_machine(config)
    transfer_from = transfer_files(config)
    observers = make_observers(config) if trains else {}
    if info is None:
        info = probe_env(config, family)
    config, notes = with_defaults_for(config, info.kinds)
    if trains:
        config, family, info = with_centralized_critic(config, family, info)
        check_critic_only_keys(config, info.kinds)
    check_env(config, info)
    config, num_inline_samplers, more_notes = arrange(config, info)
    topology = make_topology(config, info, num_episodes, num_inline_samplers)
    kinds = [topology.kind_of_policy(policy_id) for policy_id in range(topology.num_policies)]
    policies = tuple(make_policy_spec(config, *info.kinds.spaces[kind]) for kind in kinds)
    if not trains:
        policies = tuple(policy.to_act() for policy in policies)
    notes += [*more_notes, *describe_networks(config, info)]
    if state_size is None:
        state_size = probe_networks(config, policies, algorithm)
    return RunPlan(
        config=config,
        family=family,
        info=info,
        topology=topology,
        policies=policies,
        state_size=state_size,
        seed=random.SystemRandom().randrange(2**31) if config.run.seed is None else config.run.seed,
        algorithm=algorithm,
        matchmaking=matchmaking,
        transfer_from=transfer_from,
        observers=observers,
        reports_infos=follows_episodes(observers),
        notes=tuple(notes),
    )
