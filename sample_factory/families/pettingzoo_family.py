"""PettingZoo's envs by their module, without registration: `pettingzoo_<module>`."""

import contextlib
import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from typing import Any

from sample_factory.config.flags import ConfigError
from sample_factory.config.trust import PETTINGZOO_GROUPS
from sample_factory.envs import family_flags
from sample_factory.envs.env_family import FamilyParts, UnknownEnvError
from sample_factory.envs.protocol import EnvConfig
from sample_factory.runtime.registry import did_you_mean

PREFIX = "pettingzoo_"
FUNCTION = "parallel_env"  # the name in PettingZoo's own modules
TURN_BASED = "env"  # where there is no parallel_env
RULE = (
    f"After {PREFIX} comes a module with a function {FUNCTION} or {TURN_BASED}, of pettingzoo "
    "(butterfly.pistonball_v6) or by its full name (mpe2.simple_spread_v3), or module:function"
)


def make_pettingzoo_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> Any:
    """Imports the module after `pettingzoo_` and makes the env by its function: the one after a colon in the
    name, else `parallel_env`, else `env`, which makes a turn-based game."""
    family_flags.refuse_frameskip(
        cfg,
        "PettingZoo envs skip no frames; use a function of your own that wraps the env "
        f"({PREFIX}module:function)",
    )
    module_name, function = find_function(full_env_name)
    try:
        contents = vars(importlib.import_module(module_name))
    except ImportError as error:
        extra = module_name.split(".")[1] if module_name.startswith("pettingzoo.") else ""
        hint = f": pip install 'pettingzoo[{extra}]'" if extra else ""
        raise ConfigError(
            f"env {full_env_name!r} needs a package that is not installed ({error}){hint}"
        ) from error
    if function == FUNCTION and function not in contents and TURN_BASED in contents:
        function = TURN_BASED
    if function not in contents:
        raise ConfigError(f"env {full_env_name!r}: {module_name} has no {function}. {RULE}")
    if not callable(contents[function]):
        raise ConfigError(f"env {full_env_name!r}: {function} of {module_name} cannot be called. {RULE}")
    kwargs = family_flags.parse_env_kwargs(cfg.env_kwargs)
    family_flags.check_env_kwargs(full_env_name, kwargs, contents[function])
    # With the argument None, envs that have no such parameter could not be made.
    return contents[function](**kwargs, **({} if render_mode is None else {"render_mode": render_mode}))


def find_function(full_env_name: str) -> tuple[str, str]:
    """Returns the names of the module and of the function that make an env.

    Raises UnknownEnvError with the nearest name if there is no such module.
    """
    name, _, function = full_env_name.removeprefix(PREFIX).replace("/", ".").partition(":")
    if all(part.isidentifier() for part in name.split(".")):
        is_own = name.partition(".")[0] in PETTINGZOO_GROUPS
        for module in (f"pettingzoo.{name}",) if is_own else (f"pettingzoo.{name}", name):
            # The package that would contain it may be missing.
            with contextlib.suppress(ModuleNotFoundError):
                if importlib.util.find_spec(module) is not None:
                    return module, function or FUNCTION
    import pettingzoo

    folder = name.rpartition(".")[0]
    games = pkgutil.iter_modules([f"{path}/{folder}" for path in pettingzoo.__path__])
    hint = did_you_mean(name, [f"{folder}.{game.name}" for game in games], 0.5, PREFIX) or "."
    raise UnknownEnvError(f"unknown env {full_env_name!r}{hint} {RULE}")


def checked_defaults(full_env_name: str) -> Mapping[str, Any]:
    """Checks that the env's module exists, before anything starts; returns {}, since the family has no
    defaults. Raises UnknownEnvError if there is no such module."""
    find_function(full_env_name)
    return {}


FAMILY = FamilyParts(
    make_pettingzoo_env,
    family_flags.EnvKwargsFlags,
    checked_defaults,
    example="pettingzoo_butterfly.pistonball_v6",
    follows_observation=True,
)
