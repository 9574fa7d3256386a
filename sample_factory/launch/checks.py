"""Checks of a configuration that need more than its flags: registered encoders, the machine, the env."""

import logging
from typing import Any, NamedTuple

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_info import EnvInfo, probe_env_info
from sample_factory.envs.env_registry import EnvFamily, UnknownEnvError
from sample_factory.envs.packages import is_installed, missing_package
from sample_factory.launch.arrangement import with_num_envs
from sample_factory.launch.evaluation_plan import EvaluationPlan, with_eval_flags
from sample_factory.mainloop.observing import check_observers
from sample_factory.launch.start_from import transfer_file
from sample_factory.learning.algorithm_registry import BUILT_IN, registered_algorithm
from sample_factory.models.encoder_choice import describe_encoders, describe_large_layers
from sample_factory.models.network_registry import (
    ACTOR_CRITIC,
    CORE,
    DECODER,
    FOLLOW_PRESETS,
    check_names,
    named_parts,
    users_parts,
)
from sample_factory.models.policy_spec import make_policy_spec, probe_state_size, state_size
from sample_factory.runtime.call_in_child import call_in_child
from sample_factory.runtime.child import ChildFailed
from sample_factory.runtime.gpu import why_no_gpu
from sample_factory.runtime.local_ray import find_cluster
from sample_factory.runtime.queue_transports import check_transport
from sample_factory.sampling.matchmaking.registry import chosen_matchmaking
from sample_factory.spaces.actions import action_layout
from sample_factory.spaces.images import is_image
from sample_factory.spaces.observations import Indices

log = logging.getLogger("sample_factory")

# Flags that describe a built-in part. A whole network may use those of all parts.
REPLACED_FLAGS = {
    CORE: ("use_rnn", "rnn_type", "rnn_num_layers", "gtrxl_memory", "gtrxl_heads"),
    DECODER: ("decoder_mlp_layers",),
}


class Probed(NamedTuple):
    """Results of the checks.

    state_size: floats in the recurrent state of an agent. evaluation: with --eval_every_env_steps.
    """

    info: EnvInfo
    state_size: int
    evaluation: EvaluationPlan | None = None


def check_and_probe(config: Config, family: EnvFamily) -> tuple[Config, Probed]:
    """Makes all checks. Returns the configuration, with the number of envs if it was left out, and what the
    checks have found out.

    Raises ConfigError with what is wrong and what would be right, ImportError for a missing package, and
    ChildFailed if the env or a user's own network cannot be made.
    """
    _check_names(config)
    check_observers(config)
    _check_matchmaking(config)
    _check_device(config)
    for policy_id in range(config.sampling.num_policies):
        transfer_file(config, policy_id)  # raises
    _check_nodes(config)
    check_transport(config.sampling.queue)
    info = probe(config, family)
    config = with_num_envs(config, info)
    check_observations(config, info)
    _check_actions(config, info)
    _check_population(config, info)
    _check_selfplay(config, info)
    check_encoders(config, info)
    state_size = _probe_users_parts(config, info)
    return config, Probed(info, state_size, plan_evaluation(config, family, info, state_size))


def _check_nodes(config: Config) -> None:
    """Raises MissingPackage unless the packages for --num_nodes are installed, and CommandFailed if the Ray
    cluster cannot be reached."""
    if config.cluster.num_nodes == 1:
        return
    for package in ("ray", "zstandard"):
        if not is_installed(package):
            raise missing_package(f"--num_nodes={config.cluster.num_nodes}", package, "ray")
    cluster = find_cluster(config.cluster.ray_address)
    if cluster is not None:
        cluster.check()


def plan_evaluation(
    config: Config, family: EnvFamily, info: EnvInfo, state_size: int
) -> EvaluationPlan | None:
    """Returns how policies are evaluated during training; None if they are not. Raises ConfigError."""
    monitoring = config.monitoring
    if not monitoring.eval_every_env_steps:
        return None
    if len(info.kinds.spaces) > 1:
        raise ConfigError(
            "--eval_every_env_steps: one policy plays all agents in an evaluation during training, but the "
            "agents of this env have different spaces; leave it out, and measure with sample_factory.eval"
        )
    plan = with_eval_flags(EvaluationPlan(config, family, info, state_size))
    if not monitoring.eval_flags:
        return plan
    probed = probe(plan.config, plan.family)
    if probed.kinds.spaces != info.kinds.spaces:
        raise ConfigError(
            f"--eval_flags={monitoring.eval_flags}: the env of the evaluations has other spaces than that of "
            f"the training, so that the policy cannot play it: {probed.kinds}, not {info.kinds}"
        )
    return plan._replace(info=probed)


def _check_matchmaking(config: Config) -> None:
    """A "module:attribute" is resolved in the rollout workers."""
    try:
        chosen_matchmaking(config.selfplay.matchmaking)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _check_names(config: Config) -> None:
    try:
        registered_algorithm(config.run.algo)
        check_names(config.model)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _probe_users_parts(config: Config, info: EnvInfo) -> int:
    """Returns the size of the recurrent state. A user's own network and algorithm are made and tried out in a
    child."""
    specs = [make_policy_spec(config, spaces.observation, spaces.action) for spaces in info.kinds.spaces]
    try:
        size: int = (
            call_in_child("network_probe", probe_state_size, (specs,))
            if users_parts(config.model)
            else state_size(config.model)
        )
        factory = registered_algorithm(config.run.algo)
        if factory not in BUILT_IN.values():
            call_in_child(
                "algorithm_probe", _probe_algorithm, (config.run.algo, factory, specs[0], config.learning)
            )
    except ChildFailed as failure:
        if failure.is_a(ConfigError):
            raise ConfigError(failure.message) from None
        raise
    return size


def _probe_algorithm(*args: Any) -> None:
    """In the child: imports torch, unlike this process."""
    from sample_factory.learning.algorithm_check import probe_algorithm

    probe_algorithm(*args)


def _check_device(config: Config) -> None:
    why = call_in_child("gpu_probe", why_no_gpu) if config.run.device == "gpu" else None
    if why is not None:
        raise ConfigError(f"--device=gpu, but {why}. Use --device=cpu or auto")


def probe(config: Config, family: EnvFamily) -> EnvInfo:
    """Returns the properties of the env, found out in a child. Raises ConfigError and ChildFailed."""
    try:
        return probe_env_info(family, config.namespace())
    except ChildFailed as failure:
        if failure.is_a(ConfigError) or failure.is_a(UnknownEnvError):
            raise ConfigError(failure.message) from None
        raise


def check_observations(config: Config, info: EnvInfo) -> None:
    """Raises ConfigError if --normalize_input_keys names no observation, or an index."""
    named = config.model.normalize_input_keys
    observed = {key: space for kind in info.kinds.spaces for key, space in kind.observation.spaces.items()}
    unknown = [key for key in named if key not in observed]
    if unknown:
        raise ConfigError(
            f"--normalize_input_keys: the env has no observation {', '.join(unknown)}; it has "
            f"{', '.join(observed)}"
        )
    indices = [key for key in named if isinstance(observed[key], Indices)]
    if indices:
        raise ConfigError(
            f"--normalize_input_keys: {', '.join(indices)} is Discrete or MultiDiscrete, and an index is "
            "never normalised; leave it out"
        )


def check_encoders(config: Config, info: EnvInfo) -> list[str]:
    """Returns lines that describe the network: for each kind of agents, what encodes each observation; and
    the parts that are the user's own.

    Raises ConfigError if the network that was typed on the command line cannot.
    """
    names = named_parts(config.model)
    if ACTOR_CRITIC in names:
        return [f"Network: {names[ACTOR_CRITIC]}"]
    own = [f"{part.capitalize()}: {name}" for part, name in names.items() if name not in FOLLOW_PRESETS]
    if config.model.encoder_custom not in FOLLOW_PRESETS:
        return own
    try:
        return own + [
            f"Encoder of {describe_encoders(config.model, spaces.observation, config.typed)}"
            for spaces in info.kinds.spaces
        ]
    except ValueError as error:
        raise ConfigError(f"{config.env_name}: {error}") from None


def warn_of_large_layers(config: Config, info: EnvInfo) -> None:
    """Logs which observations make a built-in encoder very large."""
    names = named_parts(config.model)
    if ACTOR_CRITIC in names or config.model.encoder_custom not in FOLLOW_PRESETS:
        return
    for spaces in info.kinds.spaces:
        for line in describe_large_layers(config.model, spaces.observation):
            log.warning("%s", line)


def warn_of_framestack(config: Config, info: EnvInfo) -> None:
    """Logs that --env_framestack has no effect, if the env has no images."""
    boxes = [box for kind in info.kinds.spaces for box in kind.observation.spaces.values()]
    num_frames = config.env.env_framestack
    if num_frames > 1 and not any(is_image(box) for box in boxes):
        log.warning(
            "--env_framestack=%d has no effect: %s has no images among its observations",
            num_frames,
            config.env_name,
        )


def warn_of_replaced_flags(config: Config) -> None:
    """Logs the flags on the command line that have no effect, because a user's own part replaces what they
    describe."""
    named = named_parts(config.model)
    for part, flags in REPLACED_FLAGS.items():
        typed = [f"--{name}" for name in flags if name in config.typed]
        if part in named and typed:
            log.warning(
                "%s: no effect beside --%s_custom=%s, whose factory makes that part",
                ", ".join(typed),
                part,
                named[part],
            )


def _check_actions(config: Config, info: EnvInfo) -> None:
    learning = config.learning
    has_box = any(action_layout(spaces.action).box_actions for spaces in info.kinds.spaces)
    if has_box and learning.exploration_loss == "symmetric_kl" and learning.exploration_loss_coeff:
        raise ConfigError(
            "--exploration_loss=symmetric_kl needs discrete actions, and this env has continuous ones: there "
            "is no uniform distribution over all numbers; use --exploration_loss=entropy"
        )


def _check_population(config: Config, info: EnvInfo) -> None:
    if config.population.with_pbt and len(info.kinds.spaces) > 1:
        raise ConfigError(
            "--with_pbt=True copies weights between policies, but the agents of this env have different "
            "spaces, so its policies have different networks; use --with_pbt=False"
        )


def _check_selfplay(config: Config, info: EnvInfo) -> None:
    share = config.selfplay.selfplay_past_share
    if share > 0 and info.num_agents < 2:
        raise ConfigError(
            f"--selfplay_past_share={share} needs an env with several agents, and {config.run.env} has one: "
            "past selves would have no agent to play; use --selfplay_past_share=0"
        )
