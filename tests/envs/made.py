"""Envs of a family as a run has them."""

from sample_factory.config.config import Config, FlagNamespace
from sample_factory.config.parsing import as_arguments, parse_config
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import EnvInfo, EnvProbe
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig
from sample_factory.runtime.child_side import ChildContext


def config_of(env_name, **flags) -> Config:
    """Returns these flags, and the defaults of the family for the rest."""
    argv = as_arguments({"env": env_name, "train_dir": "/nonexistent", **flags})
    return parse_config(argv, resolve_family)


def cfg_of(env_name, **flags) -> FlagNamespace:
    """Returns the same as the `cfg` of `make_env` functions."""
    return config_of(env_name, **flags).namespace()


def make_env(env_name, render_mode=None, **flags):
    """Returns the env as its family makes it, without an adapter."""
    return resolve_family(env_name).make(cfg_of(env_name, **flags), EnvConfig(0, 0, 0), render_mode)


def probe(family: EnvFamily, cfg) -> EnvInfo:
    """Tries out an env before a run, in this process."""
    context = ChildContext("env_probe")
    with context.cleanup:
        return EnvProbe(family, cfg, context).run()
