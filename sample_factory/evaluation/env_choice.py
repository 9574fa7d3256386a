"""The env that is played: the env of the training, or another one, with the flags of evaluation."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym

from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import read_saved
from sample_factory.config.flags import ConfigError, shortened
from sample_factory.config.parsing import with_flags
from sample_factory.config.sections import OWN_FOLDER
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import make_adapted_env, probe_own_spaces
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.runtime.failures import Failure, one_line
from sample_factory.runtime.log import log

EVERY_FRAME = "rgb_array_list"  # Gymnasium's name for a render() that returns all pictures since the last one


def with_eval_frameskip(config: Config, family: EnvFamily) -> tuple[Config, EnvFamily]:
    """Applies --eval_env_frameskip to the flags and the family, and returns both: the env then skips fewer
    frames than in training, and each action is repeated, so that an action lasts as many frames as in
    training. Raises ConfigError unless the flag divides --env_frameskip."""
    own = config.evaluation.eval_env_frameskip
    trained = config.env.env_frameskip or 1
    if own is None or own == trained:
        return config, family
    if trained % own:
        raise ConfigError(
            f"--eval_env_frameskip={own} must divide --env_frameskip={trained}: each action is repeated a "
            "whole number of times"
        )
    env_flags = dataclasses.replace(config.env, env_frameskip=own)
    return dataclasses.replace(config, env=env_flags), dataclasses.replace(
        family, action_repeat=trained // own
    )


def with_other_envs(config: Config, family: EnvFamily) -> EnvFamily:
    """Returns `family`, extended so that it can also make the envs of other families that --levels names.
    Raises ConfigError for an unknown env, and if one of the families has flags of its own."""
    envs = [item for item in config.env.levels if "=" not in item and item not in family.levels]
    if all(family.prefix and env.startswith(family.prefix) for env in envs):
        return family
    families = {env: resolve_family(env) for env in envs}
    if any(other.flags is not None for other in (family, *families.values())):
        raise ConfigError(
            f"--levels: {', '.join(envs)} are of several families, with flags of their own; evaluate the "
            "envs of each family by themselves"
        )
    make_env = functools.partial(_make_one_of, {**families, "": family})
    levels = {**family.levels, **{env: {"other_env": env} for env in envs}}
    return dataclasses.replace(family, make_env=make_env, levels=levels)


def _make_one_of(
    families: Mapping[str, EnvFamily],
    cfg: Any,
    env_config: EnvConfig,
    render_mode: str | None = None,
    other_env: str = "",
) -> Any:
    return families[other_env].make(cfg, env_config, render_mode)


@contextlib.contextmanager
def explains_other_env(config: Config, warns: bool = True) -> Iterator[None]:
    """Wraps code that starts to play, for the case that --env is not the env of the training; does nothing if
    both are the same. Any exception of the wrapped code then becomes a ConfigError that names both envs.
    Without an exception, a warning names both, unless `warns` is False."""
    played = config.env_name
    folder = {name: vars(config.run)[name] for name in OWN_FOLDER}
    trained = read_saved(folder, trusts=config.run.trust_code).values.get("env", played)
    if trained == played:
        yield
        return
    known = f"experiment {config.run.experiment} was trained on {shortened(str(trained))}"
    advice = "leave --env out to play there"
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{error} ({known}; {advice})") from error
    except CheckpointError as error:
        reason = _differences(config, str(trained))
        raise ConfigError(f"{known}, and its policy does not fit {played}{reason}; {advice}") from error
    except Exception as error:  # e.g. the env cannot be made with the saved flags of another family
        reason = one_line(error)
        raise ConfigError(f"{known}, and {played} fails with its flags ({reason}); {advice}") from error
    if warns:
        log.warning("The %s, and plays in %s now", known, played)


def _differences(config: Config, trained: str) -> str:
    """Makes the played env and the `trained` one, and returns a text that names the spaces in which they
    differ; "" if they do not differ, or if an env cannot be made."""
    try:
        configs = config, with_flags(config, [f"--env={trained}"], resolve_family)
        here, there = (probe_own_spaces(resolve_family(own.env_name), own.namespace(), 0) for own in configs)
    except (ConfigError, Failure):
        return ""  # without its package or its flags, the env of the training has no known spaces
    texts = []
    for name, *spaces in zip(here._fields, here, there):
        own, other = (" ".join(str(space).split()) for space in spaces)
        if own != other:
            texts.append(f"its {name} space is {shortened(own)}, not {shortened(other)}")
    return f": {'; '.join(texts)}" if texts else ""


def make_env(config: Config, family: EnvFamily, draws: bool, env_config: EnvConfig) -> MultiAgentEnv:
    """Makes an adapted env for playing in this process. For a vector env with --vector_env_copies, unless the
    flag was typed, the number of copies is 1 if the env draws, else at most --max_num_episodes.
    draws: whether the env has to draw. Its render mode is then "rgb_array_list" if the env supports this
        mode, else "rgb_array"; if it cannot draw at all, a warning is logged."""
    cfg = config.namespace()
    if "vector_env_copies" in cfg and "vector_env_copies" not in config.typed:
        if draws:
            cfg.vector_env_copies = 1
        elif cfg.vector_env_copies is not None:
            cfg.vector_env_copies = min(cfg.vector_env_copies, config.evaluation.max_num_episodes)
    if not draws:
        return make_adapted_env(family, cfg, env_config)
    try:
        env = make_adapted_env(family, cfg, env_config, "rgb_array")
        if not draws_every_frame(env):
            return env
        env.close()
        return make_adapted_env(family, cfg, env_config, EVERY_FRAME)
    except Exception as error:  # no standard says what an env raises for an unknown render_mode
        env = make_adapted_env(family, cfg, env_config)  # raises again if the render mode was not the reason
        log.warning("%s cannot be drawn: %s", config.env_name, one_line(error))
        return env


def draws_every_frame(env: MultiAgentEnv) -> bool:
    """Returns whether the env can draw each frame that it skips, by the render mode "rgb_array_list"."""
    return isinstance(env.env, gym.Env) and EVERY_FRAME in env.env.metadata.get("render_modes", ())
