"""Registry of envs by name, and of env families by the beginning of their names.

Registering a family imports nothing: "module:attribute" strings are resolved when the family is used.
"""

import argparse
import copy
import dataclasses
import string
import sys
import textwrap
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sample_factory.config.command import ENV_FAMILIES
from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_family import (
    Defaults,
    EnvFamily,
    FamilyMetrics,
    FamilyParts,
    Levels,
    MakeEnv,
    UnknownEnvError,
)
from sample_factory.envs.family_flags import flags_of_parameters
from sample_factory.envs.name_suggestions import suggest_name
from sample_factory.envs.packages import MissingPackage, how_to_install, is_installed, missing_package
from sample_factory.envs.v1_registration import ParserRecorder, joined
from sample_factory.runtime.registry import WrongPath, did_you_mean, resolve

V1ParserFunction = Callable[[str, argparse.ArgumentParser], object]


@dataclasses.dataclass(frozen=True)
class FamilyEntry:
    """The registration of one env, or of a family of envs.

    name: name of the env, or, with is_prefix, what the names of the family begin with.
    parts: the parts of the family, or a "module:attribute" string of them.
    extra: the X in `pip install -e '.[X]'` that an error suggests when an import fails.
    packages: packages of which at least one has to be installed; empty: none is needed.
    """

    name: str
    parts: FamilyParts | str
    extra: str | None = None
    packages: Sequence[str] = ()
    is_built_in: bool = False
    is_prefix: bool = True

    def fits(self, env_name: str) -> bool:
        """Returns whether an env belongs to this registration, by its name."""
        return env_name.startswith(self.name) if self.is_prefix else env_name == self.name

    def find_parts(self) -> FamilyParts:
        """Returns the parts, after importing their module."""
        parts: FamilyParts = resolve(self.parts)
        return parts

    def names(self) -> Collection[str] | None:
        """Returns the names of all envs of the family; None if they cannot be listed."""
        names: Collection[str] | None = resolve(self.find_parts().names)
        return names


_FAMILIES: dict[str, FamilyEntry] = {}
_EXTENSIONS: dict[str, tuple[type | None, Mapping[str, Any]]] = {}


def register_env(
    name: str,
    make_env: MakeEnv | str,
    flags: type | str | None = None,
    defaults: Defaults | str | None = None,
    names: Collection[str] | str | None = None,
    extra: str | None = None,
    metrics: type[FamilyMetrics] | str | None = None,
    example: str | None = None,
    follows_observation: bool = True,
    levels: Levels | str = types.MappingProxyType({}),
) -> None:
    """Registers an env by its name, or a family of envs by the beginning of their names.

    For example:

        sample_factory.register_env("harvest", Harvest, defaults={"gamma": 0.995})
        sample_factory.register_env("maze_", lambda full_env_name: Maze(full_env_name.removeprefix("maze_")))

    Args:
        name: Whole name of one env; with an underscore or a star at its end, every name that begins with it.
            "harvest" is one env, "harvest_" and "harvest*" are families. The longest name that fits wins.
        make_env: A function make_env(full_env_name, cfg, env_config, render_mode), or a class. It returns a
            Gymnasium env, a Gymnasium VectorEnv, a PettingZoo ParallelEnv, a batched simulator, or a
            multi-agent env. It may have any of these parameters, by these names, so a class of envs or
            `lambda: MyEnv(3)` will do. With the parameter `num_envs`, the env has the flag
            --vector_env_copies, which sets it, and --env_device, which sets the parameter `device`. cfg has
            every flag as an attribute.
        flags: A frozen dataclass of `sample_factory.config.flags.flag` fields: the family's further flags.
        defaults: Flag -> value, in place of the flag's default; or a function that returns these for a name.
        names: Full names of the family's envs; with them, a mistyped name is an error at once.
        extra: The X in `pip install -e '.[X]'`, suggested when an import fails.
        metrics: A class like FamilyMetrics.
        example: Full name of an env, for an error message of a family without `names`.
        follows_observation: Whether other flags have defaults that suit the observation, see
            config/observation_defaults.py; False: the general defaults.
        levels: Name of a level -> the values of its flags of the family, or parameters of make_env, as in
            {"small": {"size": 5}, "large": {"size": 9}}; --levels chooses among them, by default all.

    What the env returns follows Gymnasium: `reset(seed=..., options=...)` returns (observation, info), and
    `step(action)` returns (observation, reward, terminated, truncated, info), where the observation has the
    shape and dtype of its space, the reward is a finite number, both ends are bool and the info is a dict.
    After an end, the env is reset by its caller; vector envs, simulators and multi-agent envs of lists reset
    themselves. `terminated` says that nothing follows; `truncated`, such as a time limit, that the episode
    would have gone on. An observation with the key `action_mask` forbids actions: one number for each choice
    of the action space; 0 forbids it. `check_env` plays an env, and reports what contradicts this.

    Each of make_env, flags, defaults, names, metrics and levels may be a "module:attribute" string, imported
    when the family is used. Registering a name again replaces the family. Nothing is checked before the env
    is used: a run then raises ConfigError for a wrong "module:attribute", and UnknownEnvError for an unknown
    name.
    """
    parts = FamilyParts(make_env, flags, defaults, names, metrics, example, follows_observation, levels)
    is_prefix = name.endswith(("_", "*"))
    name = name.removesuffix("*")
    _FAMILIES[name] = FamilyEntry(name, parts, extra, is_prefix=is_prefix)


def extend_family(env_name: str, flags: type | None, defaults: Mapping[str, Any]) -> None:
    """Adds flags and defaults to the family of an env. The env may be registered later, as in scripts that
    were written for v2. A second call for the same env replaces what the first one has added.

    flags: a dataclass of fields; a field with the name of one of the family's flags replaces this flag.
    """
    _EXTENSIONS[env_name] = flags, defaults


def extension_of(env_name: str) -> tuple[type | None, Mapping[str, Any]]:
    """Returns the flags and defaults that a script has added to the family of an env; (None, {}) if it added
    none."""
    return _EXTENSIONS.get(env_name, (None, {}))


def _find_entry(env_name: str) -> FamilyEntry | None:
    """Returns the registration for an env's name, the longest one that fits; None if none fits."""
    fitting = [entry for entry in _FAMILIES.values() if entry.fits(env_name)]
    return max(fitting, key=lambda entry: len(entry.name)) if fitting else None


def resolve_family(env_name: str) -> EnvFamily:
    """Returns the family of an env.

    Raises UnknownEnvError, with the nearest name, if no family has the env; ImportError, with the extra to
    install, if a package that the family needs is missing; and ConfigError for a registration with a wrong
    "module:attribute" string.
    """
    entry = _find_entry(env_name)
    if entry is None or _is_prefix_alone(env_name):
        raise UnknownEnvError(_unknown_env_message(env_name, ()))
    try:
        names = entry.names()
        if names is not None and env_name not in names:
            raise UnknownEnvError(_unknown_env_message(env_name, names))
        if entry.packages and not any(map(is_installed, entry.packages)):
            raise missing_package(f"env {env_name!r}", " or ".join(entry.packages), str(entry.extra))
        found = entry.find_parts()
        make_env, flags, defaults, metrics, levels = map(
            resolve, (found.make_env, found.flags, found.defaults, found.metrics, found.levels)
        )
    except MissingPackage:
        raise
    except ImportError as error:
        hint = f": {how_to_install(entry.extra)}" if entry.extra else ""
        why = "is not installed" if isinstance(error, ModuleNotFoundError) else "cannot be loaded"
        raise ImportError(f"env {env_name!r} needs a package that {why} ({error}){hint}") from error
    except WrongPath as error:
        raise ConfigError(f"the registration of env {env_name!r} is wrong: {error}") from None
    values = defaults(env_name) if callable(defaults) else defaults or {}
    follows = found.follows_observation
    follows = follows(env_name) if callable(follows) else follows
    family = EnvFamily(
        env_name,
        make_env,
        joined(flags, flags_of_parameters(make_env)),
        dict(values),
        metrics,
        follows,
        levels=dict(levels),
        prefix=entry.name if entry.is_prefix else "",
    )
    if env_name not in _EXTENSIONS:
        return family
    # A script for v2 that registers an env expects the defaults of v2.
    family = dataclasses.replace(family, follows_observation=entry.is_built_in and follows)
    return family.extended(*extension_of(env_name))


def flags_of_families() -> dict[str, type]:
    """Imports the families of this package, and returns their flags by the prefix of their envs; families
    without flags are left out. The packages that simulate the envs need not be installed."""
    found = {
        name: resolve(entry.find_parts().flags) for name, entry in _FAMILIES.items() if entry.is_built_in
    }
    return {name: flags for name, flags in found.items() if flags is not None}


def gym_name_of(env_name: str) -> str:
    """Returns `gym_<id>` for an id of Gymnasium that belongs to no family; any other name unchanged."""
    if _find_entry(env_name) is not None or _is_prefix_alone(env_name):
        return env_name
    import gymnasium

    return f"gym_{env_name}" if env_name in gymnasium.registry else env_name


def resolve_trained_family(env_name: str) -> EnvFamily:
    """Returns the family of an env in which a policy was trained. Raises the errors of `resolve_family`:
    UnknownEnvError, ImportError if a package that the family needs is missing, and ConfigError. The
    UnknownEnvError of a name without a family also says how to play envs that only a script registers."""
    try:
        return resolve_family(env_name)
    except UnknownEnvError as error:
        if _find_entry(env_name) is not None:
            raise
        raise UnknownEnvError(
            f"{error}. If only a script has this env, start that script, with a line such as "
            "sample_factory.enjoy.main(env=MyEnv) in place of the training (main(env=MyEnv) of "
            "sample_factory.__main__ is every command), or with register_env(...) and enjoy.main(), as "
            "examples/custom_env.py does"
        ) from None


def is_found_by_all_commands(env_name: str) -> bool:
    """Returns whether the env can be made in a process that runs no script of the user. False for a family
    that a script has registered, and for an id that a script has registered with Gymnasium."""
    entry = _find_entry(env_name)
    if entry is None or not entry.is_built_in:
        return False
    if not env_name.startswith("gym_"):
        return True
    gymnasium = sys.modules.get("gymnasium")
    spec = None if gymnasium is None else vars(gymnasium)["registry"].get(env_name.removeprefix("gym_"))
    return spec is not None and str(spec.entry_point).startswith("gymnasium.")


class V1Registry:
    """Registers envs by the interface of version 1, where functions edit an argparse parser to add a family's
    flags and defaults."""

    def register_env(
        self,
        env_name_prefix: str,
        make_env_func: MakeEnv,
        add_extra_params_func: V1ParserFunction | None = None,
        override_default_params_func: V1ParserFunction | None = None,
    ) -> None:
        """Registers a family with the parameters of version 1; both parser functions are called with (env
        name, parser)."""
        recorder = ParserRecorder(add_help=False)
        if add_extra_params_func is not None:
            add_extra_params_func(env_name_prefix, recorder)

        def defaults(env_name: str) -> Mapping[str, Any]:
            own = copy.deepcopy(recorder)
            if override_default_params_func is not None:
                override_default_params_func(env_name, own)
            return {**own.recorded_defaults, **own.argument_defaults()}

        name = f"{env_name_prefix}*"
        register_env(name, make_env_func, recorder.flags_type(), defaults, follows_observation=False)


def global_env_registry() -> V1Registry:
    """Returns the registry with the interface of v1, for scripts that were written for v1."""
    return V1Registry()


def _unknown_env_message(env_name: str, names: Collection[str]) -> str:
    """Returns the error for an unknown env. names: names of all envs of the family that `env_name` belongs
    to; empty if there is no such family, or it cannot list names."""
    if _is_prefix_alone(env_name):
        return f"--env={env_name} is the beginning of a name; complete it{_completions(env_name)}"
    if names:
        family = env_name.partition("_")[0]
        hint = did_you_mean(env_name, names, 0.5) or "."
        return f"unknown env {env_name!r}{hint} --env={family} lists all {len(names)}"
    listed = [known for entry in _FAMILIES.values() for known in entry.names() or ()]
    name = suggest_name(env_name, listed)
    hint = f"; did you mean {name}?" if name else "."
    shorter = [entry.name for entry in _FAMILIES.values() if env_name.startswith(entry.name)]
    if shorter:
        hint = f"; {shorter[0]!r} is registered as one name: register_env('{shorter[0]}*', ...) is for all "
        hint += "names that begin with it."
    prefixes = sorted(entry.name for entry in _FAMILIES.values() if entry.is_prefix)
    names_alone = sorted(_FAMILIES.keys() - {*prefixes})
    known = f" Names begin with one of: {', '.join(prefixes)}"
    return (
        f"unknown env {env_name!r}{hint}{known}{'; or are: ' if names_alone else ''}{', '.join(names_alone)}"
    )


def _is_prefix_alone(env_name: str) -> bool:
    """Returns whether a name is only the prefix of a family, with or without its separator, e.g. "doom_" or
    "doom", and not the name of an env."""
    separators = ("_", "-")
    if env_name in _FAMILIES and not env_name.endswith(separators):
        return False
    return any(
        env_name in (prefix, prefix.rstrip("_-")) and prefix.endswith(separators) for prefix in _FAMILIES
    )


def _completions(prefix: str) -> str:
    """Returns the end of the error message for a name that is only the prefix of a family: all names of the
    family, or an example."""
    entry = next(entry for entry in _FAMILIES.values() if entry.name.rstrip("_-") == prefix.rstrip("_-"))
    listed = entry.names()
    if listed:
        text = ", ".join(sorted(listed))
        lines = textwrap.wrap(text, 78, break_on_hyphens=False)
        return ":\n" + textwrap.indent("\n".join(lines), "  ")
    example = entry.find_parts().example
    return f", e.g. {example}" if example else " (--help has examples)"


def _built_in(name: str, module: str, about: str, extra: str = "", packages: Sequence[str] = ()) -> None:
    """Registers a family of this package.

    name: the names of its envs as the help shows them: the prefix, then capital letters for what follows.
    module: module below `sample_factory.families`; its FAMILY, a FamilyParts, is imported when the family is
        used.
    about: one phrase for the help; "" hides the family there.
    packages: packages of which one has to be installed; by default the ones that `extra` names.
    """
    prefix = name.rstrip(string.ascii_uppercase)
    needed = packages or [package for package in extra.split(",") if package]
    parts = f"sample_factory.families.{module}:FAMILY"
    _FAMILIES[prefix] = FamilyEntry(prefix, parts, extra, needed, is_built_in=True)
    if about:
        ENV_FAMILIES.insert(-1, (name, about))  # the last entry is a user's own family


_built_in("doom_NAME", "doom.doom_family", "Doom, e.g. doom_battle, doom_duel; --env=doom lists all of them")
_built_in(
    "atari_GAME",
    "atari.atari_family",
    "Atari, e.g. atari_pong; --env=atari lists all games",
    "envpool or atari",
    ("envpool", "ale_py"),
)
_built_in("mujoco_NAME", "mujoco_family", "MuJoCo, e.g. mujoco_ant, mujoco_halfcheetah", "envpool,mujoco")
_MINIGRID = "MiniGrid and BabyAI, e.g. minigrid_DoorKey-5x5-v0"
_built_in("minigrid_ID", "minigrid_family", _MINIGRID, "minigrid or envpool", ("minigrid", "envpool"))
_built_in("MiniGrid-ID", "minigrid_family", "", "minigrid or envpool", ("minigrid", "envpool"))
_built_in("procgen_GAME", "procgen_family", "Procgen, e.g. procgen_coinrun", "envpool")
_built_in("football_NAME", "football_family", "Google Research Football, e.g. football_5_vs_5", "envpool")
_built_in("generals_MAP", "generals.generals_family", "Generals, e.g. generals_8x8, generals_1v1", "generals")
_built_in("envpool_ID", "envpool_family", "any env of EnvPool, e.g. envpool_Pong-v5", "envpool")
_built_in("gym_ID", "gym_family", "a Gymnasium id, e.g. gym_CartPole-v1; gym_MODULE:ID imports MODULE")
_built_in(
    "dmlab_LEVEL", "dmlab.dmlab_family", "DeepMind Lab, built by yourself, e.g. dmlab_30, dmlab_watermaze"
)
_built_in(
    "pettingzoo_MODULE",
    "pettingzoo_family",
    "PettingZoo, e.g. pettingzoo_butterfly.pistonball_v6",
    "pettingzoo",
)
