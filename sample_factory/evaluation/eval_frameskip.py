"""--eval_env_frameskip: another frameskip of the env than in training, with as many frames per action."""

from dataclasses import replace

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_registry import EnvFamily


def with_eval_frameskip(config: Config, family: EnvFamily) -> tuple[Config, EnvFamily]:
    """Returns both with the frameskip of the evaluation. Raises ConfigError if it is no divisor."""
    own = config.evaluation.eval_env_frameskip
    trained = config.env.env_frameskip or 1
    if own is None or own == trained:
        return config, family
    if trained % own:
        raise ConfigError(
            f"--eval_env_frameskip={own} must divide --env_frameskip={trained}: each action is repeated a "
            "whole number of times"
        )
    env_flags = replace(config.env, env_frameskip=own)
    return replace(config, env=env_flags), replace(family, action_repeat=trained // own)
