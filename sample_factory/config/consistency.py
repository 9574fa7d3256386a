"""Checks of what the flags alone decide: the choices and bounds of each flag, and the rules between flags,
each with its reason. launch/checks.py has what needs the env, the machine or registered parts."""

import dataclasses
import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sample_factory.config.algorithms import algorithm_info
from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import SAVED, experiment_folder
from sample_factory.config.flags import MAX_FLOAT, MAX_INT, ConfigError, default_of, shortened
from sample_factory.config.monitoring_flags import EVALUATED
from sample_factory.config.sections import FLAGS, ModelFlags

BOUNDS = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le}
# An encoder of a user's own may read other names than the choices of these flags.
READ_BY_ENCODERS = ("encoder_type", "encoder_subtype")
ENCODERS_WITH_CHOICES = (None, "vizdoom", "minigrid", "dmlab_instructions", "map")


def check_values(section: Any, sources: Mapping[str, str] | None = None) -> None:
    """Raises ConfigError for a flag outside its choices or bounds, or with a path that cannot be used.

    sources: flag -> name of the source of its value, for the message; empty for the command line.
    """
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        source = (sources or {}).get(field.name)
        name = f"{source}: --{field.name}" if source else f"--{field.name}"
        if value is None:
            continue
        if value == "" and default_of(field):
            raise ConfigError(f"{name} is empty; leave it out for {default_of(field)}")
        _check_choice(name, section, field)
        if field.metadata["is_output"]:
            _check_output(name, value)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, (int, float)) and not isinstance(item, bool):
                _check_bounds(name, item, field.metadata["bounds"], value == default_of(field))


def _check_choice(name: str, section: Any, field: "dataclasses.Field[Any]") -> None:
    value, choices = getattr(section, field.name), field.metadata["choices"]
    if isinstance(section, ModelFlags) and field.name in READ_BY_ENCODERS:
        choices = choices if section.encoder_custom in ENCODERS_WITH_CHOICES else ()
    if choices and value not in choices:
        raise ConfigError(f"{name}={shortened(str(value))}: choose one of {', '.join(map(str, choices))}")


def _check_output(name: str, value: str) -> None:
    path = Path(os.path.expanduser(value)).absolute()
    if path.is_dir():
        raise ConfigError(f"{name}={shortened(value)} is a folder; it should be the name of a file")
    if not path.parent.is_dir():
        raise ConfigError(f"{name}={shortened(value)}: its folder does not exist; create it first")


def _check_bounds(name: str, value: float, bounds: Mapping[str, float], may_be_infinite: bool) -> None:
    if value != value:
        raise ConfigError(f"{name}={value}: must be a number")
    if isinstance(value, int) and abs(value) > MAX_INT:
        raise ConfigError(f"{name}: has {len(str(value))} digits, and must be at most {MAX_INT}")
    for check, bound in bounds.items():
        if not BOUNDS[check](value, bound):
            raise ConfigError(f"{name}={value}: must be {check.replace('_', ' ')} {bound}")
    if isinstance(value, float) and abs(value) > MAX_FLOAT and not may_be_infinite:
        raise ConfigError(f"{name}={value}: must be finite, at most {MAX_FLOAT}")


def check_consistency(config: Config) -> None:
    """Checks the rules between flags that hold in every command. Raises ConfigError."""
    _check_algorithm(config)
    _check_sampling(config)
    _check_trajectories(config)
    _check_learning_rate(config)
    _check_population(config)
    _check_network(config)
    _check_evaluation(config)
    experiment_folder(config.run)  # raises ConfigError for names that lead elsewhere


def check_training(config: Config) -> None:
    """Checks the rules between the flags of a training, after the flags that follow the env have been chosen.
    Raises ConfigError."""
    sampling = config.sampling
    if (sampling.inline_samplers or 0) > sampling.num_workers:
        raise ConfigError(
            f"--inline_samplers={sampling.inline_samplers} share out the rollout workers, and there are only "
            f"--num_workers={sampling.num_workers}"
        )
    if not sampling.async_rl and sampling.num_policies > 1:
        raise ConfigError(
            "--async_rl=False works with --num_policies=1 only: with more, the number of trajectories that "
            "each policy gets in an iteration is random, and the learners would wait forever"
        )
    _check_learners(config)
    _check_nodes(config)


def check_resumed(config: Config) -> None:
    """Raises ConfigError if an experiment would be resumed with another env than it was trained on, or its
    curves would continue in another unit."""
    if config.resumed is None:
        return
    envs = {choice.layer.startswith(SAVED): choice for choice in config.choices["env"]}
    if len(envs) == 2 and envs[False].value != envs[True].value:
        layer, env = envs[False]
        source, mend = f"--env={env}", "Leave --env out, or choose"
        if layer == config.run.cfg:
            source, mend = f"env={env} in --cfg={layer}", "Choose"
        name, trained = config.run.experiment, shortened(str(envs[True].value))
        raise ConfigError(
            f"experiment {name} was trained on {trained}, and {source} was given: its curves would be mixed. "
            f"{mend} another --experiment; --transfer_from={name} starts that one with these weights"
        )
    units = {"summaries_use_frameskip", "env_frameskip"}
    if config.monitoring.summaries_use_frameskip:  # the curves are over env frames, and not over env steps
        units.remove("env_frameskip")
    for flag, saved, given in config.resumed.changed:
        if flag in units:
            raise ConfigError(
                f"--{flag}={given}: the curves of this experiment were begun with {saved}, and one curve "
                "cannot have two units; leave the flag out, or choose another --experiment"
            )


def _refuse(wanted: str, refused: Mapping[str, tuple[bool, str]]) -> None:
    """Raises ConfigError for the first flag that is set although it does not work with another flag.

    wanted: the other flag with its value. refused: flag -> (whether it is set, why it does not work).
    """
    for flag, (is_set, reason) in refused.items():
        if is_set:
            raise ConfigError(f"{wanted} does not work with {flag}: {reason}")


def _check_algorithm(config: Config) -> None:
    """Raises ConfigError for a flag that the declaration of the algorithm refuses, see AlgorithmInfo."""
    algo, values = config.run.algo, config.flat()
    for flag, reason in algorithm_info(algo).refuses.items():
        if values[flag] != FLAGS[flag].default:
            raise ConfigError(f"--{flag}={values[flag]} does not work with --algo={algo}: {reason}")


def _check_sampling(config: Config) -> None:
    sampling = config.sampling
    num_envs = sampling.num_envs_per_worker
    if num_envs is not None and num_envs % sampling.worker_num_splits:
        raise ConfigError(
            f"--num_envs_per_worker={num_envs} must be a multiple of --worker_num_splits="
            f"{sampling.worker_num_splits}: each split gets equally many envs. An odd number works with "
            "--worker_num_splits=1"
        )
    if sampling.sampler_only and not sampling.async_rl:
        raise ConfigError(
            "--sampler_only=True needs --async_rl=True: without learning there is nothing to alternate with"
        )
    if sampling.forced_policy_lag >= sampling.max_policy_lag:
        raise ConfigError(
            f"--forced_policy_lag={sampling.forced_policy_lag} must be less than --max_policy_lag="
            f"{sampling.max_policy_lag}: experience that old is not trained on"
        )


def _check_trajectories(config: Config) -> None:
    learning = config.learning
    if config.open_flags & {"rollout", "batch_size"}:
        return  # they are chosen when the env is known, and checked again
    recurrence = learning.rollout if learning.recurrence == -1 else learning.recurrence
    if recurrence < 1 or learning.rollout % recurrence:
        raise ConfigError(
            f"--recurrence={learning.recurrence} must divide --rollout={learning.rollout}: for "
            "backpropagation through time, a trajectory is cut into chunks of equal length"
        )
    if learning.use_cpc and learning.cpc_forward_steps > learning.rollout:
        raise ConfigError(
            f"--cpc_forward_steps={learning.cpc_forward_steps} must be at most --rollout={learning.rollout}: "
            "a trajectory holds no observation further ahead"
        )
    if learning.batch_size % learning.rollout:
        raise ConfigError(
            f"--batch_size={learning.batch_size} must be a multiple of --rollout={learning.rollout}: a "
            "minibatch consists of whole trajectories"
        )


def _check_learning_rate(config: Config) -> None:
    learning = config.learning
    has_one_step = learning.ppo_epochs * learning.num_batches_per_iteration == 1
    is_adaptive = learning.lr_schedule.startswith("kl_adaptive")
    if is_adaptive and has_one_step and not config.sampling.async_rl:
        raise ConfigError(
            f"--lr_schedule={learning.lr_schedule} needs several SGD steps per iteration (--ppo_epochs, "
            "--num_batches_per_iteration) or --async_rl=True: before the only step of an iteration, the "
            "policy is still the one that acted, so their KL divergence is 0"
        )
    if learning.lr_adaptive_min > learning.lr_adaptive_max:
        raise ConfigError(
            f"--lr_adaptive_min={learning.lr_adaptive_min} must be at most --lr_adaptive_max="
            f"{learning.lr_adaptive_max}"
        )


def _check_population(config: Config) -> None:
    population = config.population
    sampling = config.sampling
    if not population.with_pbt:
        return
    if sampling.num_policies < 2:
        raise ConfigError(
            f"--with_pbt=True needs --num_policies of at least 2, not {sampling.num_policies}: policies take "
            "over each other's weights"
        )
    if population.pbt_perturb_min > population.pbt_perturb_max:
        raise ConfigError(
            f"--pbt_perturb_min={population.pbt_perturb_min} must be at most --pbt_perturb_max="
            f"{population.pbt_perturb_max}"
        )


def _check_network(config: Config) -> None:
    model = config.model
    if model.use_rnn and model.rnn_type == "gtrxl" and model.hidden_size % model.gtrxl_heads:
        raise ConfigError(
            f"--gtrxl_heads={model.gtrxl_heads} must divide --hidden_size={model.hidden_size}: each head has "
            "an equal share of it"
        )
    custom = model.actor_critic_custom
    keys = " ".join(model.critic_only_keys)
    own = f"--actor_critic_custom={custom}"
    leaks = "what only the critic gets would reach the actor through the shared weights"
    refused = {
        own: (custom is not None, "it chooses itself what its critic gets"),
        "--actor_critic_share_weights=True": (bool(config.typed.get("actor_critic_share_weights")), leaks),
    }
    if model.centralized_critic:
        _refuse("--centralized_critic=True", refused)
    if keys:
        _refuse(f"--critic_only_keys {keys}", refused)
    if custom is not None:
        needs = "it needs the encoder and the core of the built-in network"
        compiles = "it compiles the encoders of the built-in network; call torch.compile in your own"
        refused = {
            "--use_cpc=True": (config.learning.use_cpc, needs),
            "--compile=True": (config.run.compile, compiles),
        }
        _refuse(own, refused)


def _check_evaluation(config: Config) -> None:
    monitoring = config.monitoring
    if monitoring.save_best_metric.startswith(EVALUATED) and not monitoring.eval_every_env_steps:
        raise ConfigError(
            f"--save_best_metric={monitoring.save_best_metric} is a mean in evaluations during training, and "
            "there are none; add --eval_every_env_steps=N"
        )


def _check_learners(config: Config) -> None:
    """Raises ConfigError if the learners of a policy cannot share a minibatch equally, or if another flag
    does not work with --learners_per_policy."""
    count = config.sampling.learners_per_policy
    if count == 1:
        return
    trajectories = config.learning.batch_size // config.learning.rollout
    if trajectories % count:
        raise ConfigError(
            f"--learners_per_policy={count} must divide the {trajectories} trajectories of a minibatch "
            "(--batch_size / --rollout): each learner gets as many"
        )
    refused = {
        "--serial_mode=True": (config.sampling.serial_mode, "everything is in one process"),
        "--sampler_only=True": (config.sampling.sampler_only, "nothing is learned"),
        "--use_cpc=True": (config.learning.use_cpc, "its loss compares all trajectories of a minibatch"),
        "--pbt_optimize_batch_size=True": (
            config.population.with_pbt and config.population.pbt_optimize_batch_size,
            "the trajectories of a minibatch could not always be divided",
        ),
    }
    _refuse(f"--learners_per_policy={count}", refused)


def _check_nodes(config: Config) -> None:
    """Raises ConfigError for flags that do not work with --num_nodes."""
    flags = config.cluster
    if flags.num_nodes == 1:
        return
    sampling = config.sampling
    has_past_selves = config.selfplay.selfplay_past_share > 0
    refused = {
        "--serial_mode=True": (sampling.serial_mode, "everything is in one process"),
        "--async_rl=False": (not sampling.async_rl, "nodes sample while the learner trains"),
        "--selfplay_past_share": (has_past_selves, "past selves are files on the learner's machine"),
        f"--node_envs_per_worker={flags.node_envs_per_worker}": (
            flags.node_envs_per_worker % sampling.worker_num_splits > 0,
            f"it must be a multiple of --worker_num_splits={sampling.worker_num_splits}",
        ),
    }
    _refuse(f"--num_nodes={flags.num_nodes}", refused)
