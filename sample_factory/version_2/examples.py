"""Names of version 2's examples, the package `sf_examples`. Their envs and networks are built in."""

from typing import Any

from sample_factory.config.config import FlagNamespace
from sample_factory.envs.doom.doom_family import DOOM_SPECS, DoomSpec
from sample_factory.version_2.running import parse_full_cfg, parse_sf_args

DOOM_ENVS = tuple(DOOM_SPECS.values())


def make_doom_env_from_spec(
    spec: DoomSpec, full_env_name: str, cfg: Any, env_config: Any, render_mode: str | None = None
) -> Any:
    """Makes one env of a spec."""
    from sample_factory.envs.doom.make_doom_env import make_doom_env  # loads the engine

    return make_doom_env(full_env_name, cfg, env_config, render_mode, spec)


def is_built_in(*arguments: Any) -> None:
    """Does nothing: envs, networks, flags and defaults of a family are found by the name of the env."""


add_doom_env_args = add_doom_env_eval_args = doom_override_defaults = is_built_in
register_vizdoom_components = register_mujoco_components = register_atari_components = is_built_in


def parse_cfg(argv: list[str] | None = None, evaluation: bool = False) -> FlagNamespace:
    """Returns all flags."""
    return parse_full_cfg(parse_sf_args(argv, evaluation)[0], argv)


parse_vizdoom_cfg = parse_mujoco_cfg = parse_atari_args = parse_cfg
