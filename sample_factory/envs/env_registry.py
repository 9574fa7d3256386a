"""Registry of env families by name prefix.

Registering a family imports nothing: "module:attribute" strings are resolved when the family is used.
"""

import dataclasses
import difflib
import inspect
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from sample_factory.config.flags import ConfigError
from sample_factory.envs.gym_registrations import GymRegistrations
from sample_factory.envs.headless import prepare_sdl
from sample_factory.envs.name_suggestions import suggest_name
from sample_factory.envs.packages import how_to_install
from sample_factory.envs.protocol import EnvConfig, EnvError
from sample_factory.envs.v1_registration import V1Registry
from sample_factory.runtime.failures import PermanentFailure
from sample_factory.runtime.registry import WrongPath, resolve

MakeEnv = Callable[..., Any]
Defaults = Mapping[str, Any] | Callable[[str], Mapping[str, Any]]


class FamilyMetrics(Protocol):
    """In the main process: computes metrics of a family from the episodes of one policy.

    Its class is registered with the family, and called with the name of the env. If a method raises, one line
    is logged, the metrics are computed no more, and training continues.
    """

    def __init__(self, env_name: str): ...

    def add(self, extra_stats: Mapping[str, float]) -> Mapping[str, float]:
        """Called with the `episode_extra_stats` of every episode; returns new values by metric, if any.

        They are written to TensorBoard, and can be the target of population-based training.
        """

    def clear(self) -> None:
        """Called when the policy has taken over other weights: discards what has been collected."""


class UnknownEnvError(EnvError, PermanentFailure):
    """The env's name begins with no registered prefix, or the family has no env of that name."""


@dataclasses.dataclass(frozen=True)
class FamilyEntry:
    """A registration. Each part is an object or a "module:attribute" string.

    names: all envs of the family, where they can be listed.
    example: one of them, where they cannot.
    extra: the X in `pip install -e '.[X]'` that an error suggests when an import fails.
    """

    prefix: str
    make_env: MakeEnv | str
    flags: type | str | None = None
    defaults: Defaults | str | None = None
    names: Collection[str] | str | None = None
    extra: str | None = None
    metrics: "type[FamilyMetrics] | str | None" = None
    example: str | None = None


@dataclasses.dataclass(frozen=True)
class EnvFamily:
    """A resolved family for one env: how to make it, its flags, its defaults. Sent to child processes.

    registrations: sends what the main process has registered with Gymnasium to the children.
    action_repeat: how often an env steps with each action; above 1 with --eval_env_frameskip only.
    """

    env_name: str
    make_env: MakeEnv
    flags: type | None
    defaults: Mapping[str, Any]
    metrics: type[FamilyMetrics] | None = None
    registrations: GymRegistrations = dataclasses.field(default_factory=GymRegistrations)
    action_repeat: int = 1

    def make(self, cfg: Any, env_config: EnvConfig, render_mode: str | None = None) -> Any:
        """Returns the env as its author wrote it; `adapters.adapt` turns it into a MultiAgentEnv."""
        prepare_sdl()
        accepted = inspect.signature(self.make_env).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values())
        kwargs = {"cfg": cfg, "env_config": env_config, "render_mode": render_mode}
        return self.make_env(
            self.env_name, **{key: value for key, value in kwargs.items() if takes_any or key in accepted}
        )


_FAMILIES: dict[str, FamilyEntry] = {}


def register_env(
    prefix: str,
    make_env: MakeEnv | str,
    flags: type | str | None = None,
    defaults: Defaults | str | None = None,
    names: Collection[str] | str | None = None,
    extra: str | None = None,
    metrics: type[FamilyMetrics] | str | None = None,
    example: str | None = None,
) -> None:
    """Registers every env whose name starts with `prefix` (the longest matching prefix wins).

    make_env(full_env_name, cfg, env_config, render_mode): returns a Gymnasium env, a Gymnasium VectorEnv, a
        PettingZoo ParallelEnv, or a multi-agent env; it may leave out any of the last three parameters. cfg
        has every flag as an attribute. An observation with the key `action_mask` forbids actions: one number
        for each choice of the action space, of which 0 forbids it.
    flags: frozen dataclass of `sample_factory.config.flags.flag` fields, the family's own flags.
    defaults: flag overrides, or a function of the env's name that returns them.
    names: the full names of the family's envs; with them, a mistyped name is an error at once.
    extra: the X in `pip install -e '.[X]'`, suggested when an import fails.
    metrics: a class like FamilyMetrics.
    example: the full name of an env, for an error message of a family without `names`.

    Each of make_env, flags, defaults, names and metrics may be a "module:attribute" string, imported when the
    family is used. Registering a prefix again replaces the family.
    """
    _FAMILIES[prefix] = FamilyEntry(prefix, make_env, flags, defaults, names, extra, metrics, example)


def extend_family(env_name: str, flags: type | None, defaults: Mapping[str, Any]) -> None:
    """Adds flags and defaults to the family of an env, for scripts that were written for v2.

    flags: a dataclass of `flag` fields; one with the name of a flag of the family replaces it. Does nothing
    for an unknown env.
    """
    matching = [prefix for prefix in _FAMILIES if env_name.startswith(prefix)]
    if not matching:
        return
    entry = _FAMILIES[max(matching, key=len)]
    own = resolve(entry.flags)
    if flags is not None and own is not None:
        fields = [(field.name, field.type, field) for field in dataclasses.fields(flags)]
        flags = dataclasses.make_dataclass(flags.__name__, fields, bases=(own,), frozen=True)

    def all_defaults(name: str) -> Mapping[str, Any]:
        values = resolve(entry.defaults)
        return {**((values(name) if callable(values) else values) or {}), **defaults}

    extended = dataclasses.replace(entry, flags=flags or own, defaults=all_defaults)
    _FAMILIES[entry.prefix] = extended


def resolve_family(env_name: str) -> EnvFamily:
    """Returns the family of an env.

    Raises UnknownEnvError with the nearest name, ImportError with the extra to install, and ConfigError for a
    registration with a wrong "module:attribute" string.
    """
    matching = [prefix for prefix in _FAMILIES if env_name.startswith(prefix)]
    if not matching or _is_prefix_alone(env_name):
        raise UnknownEnvError(_unknown_env_message(env_name, ()))
    entry = _FAMILIES[max(matching, key=len)]
    try:
        names = resolve(entry.names)
        if names is not None and env_name not in names:
            raise UnknownEnvError(_unknown_env_message(env_name, names))
        parts = (entry.make_env, entry.flags, entry.defaults, entry.metrics)
        make_env, flags, defaults, metrics = (resolve(part) for part in parts)
    except ImportError as error:
        hint = f": {how_to_install(entry.extra)}" if entry.extra else ""
        why = "is not installed" if isinstance(error, ModuleNotFoundError) else "cannot be loaded"
        raise ImportError(f"env {env_name!r} needs a package that {why} ({error}){hint}") from error
    except WrongPath as error:
        raise ConfigError(f"the registration of env {env_name!r} is wrong: {error}") from None
    values = defaults(env_name) if callable(defaults) else defaults or {}
    return EnvFamily(env_name, make_env, flags, dict(values), metrics)


def resolve_trained_family(env_name: str) -> EnvFamily:
    """Returns the family of an env in which a policy was trained. Raises as `resolve_family`."""
    try:
        return resolve_family(env_name)
    except UnknownEnvError as error:
        if any(env_name.startswith(prefix) for prefix in _FAMILIES):
            raise
        raise UnknownEnvError(
            f"{error}. If a script registers this env, its policies are watched from that script: call "
            "sample_factory.enjoy.main() there, as examples/custom_env.py does"
        ) from None


def is_found_by_all_commands(env_name: str) -> bool:
    """Returns whether a process that runs no script of a user's own finds the env.

    Not so for a family that a script has registered, or an id that it has registered with Gymnasium.
    """
    matching = [prefix for prefix in _FAMILIES if env_name.startswith(prefix)]
    make_env = _FAMILIES[max(matching, key=len)].make_env if matching else None
    if not isinstance(make_env, str) or not make_env.startswith("sample_factory."):
        return False
    if not env_name.startswith("gym_"):
        return True
    gymnasium = sys.modules.get("gymnasium")
    spec = None if gymnasium is None else vars(gymnasium)["registry"].get(env_name.removeprefix("gym_"))
    return spec is not None and str(spec.entry_point).startswith("gymnasium.")


def global_env_registry() -> V1Registry:
    """Returns the registry with the interface of v1, for scripts that were written for v1."""
    return V1Registry(register_env)


def _unknown_env_message(env_name: str, names: Collection[str]) -> str:
    """names: those of the family that the prefix selects; empty: no prefix fits, or no names are listed."""
    if _is_prefix_alone(env_name):
        return f"--env={env_name} is the beginning of a name; complete it{_completions(env_name)}"
    if names:
        close = difflib.get_close_matches(env_name, names, n=1, cutoff=0.5)
        family, _, _ = env_name.partition("_")
        hint = f"; did you mean {close[0]}?" if close else "."
        return f"unknown env {env_name!r}{hint} --env={family} lists all {len(names)}"
    name = suggest_name(env_name, _listed_names(_FAMILIES.values()))
    hint = f"; did you mean {name}?" if name else "."
    return f"unknown env {env_name!r}{hint} Names begin with one of: {', '.join(sorted(_FAMILIES))}"


def _is_prefix_alone(env_name: str) -> bool:
    """Returns whether a name is the prefix of a family, such as "doom_" or "doom", and of several envs.

    A name that is registered itself is not.
    """
    separators = ("_", "-")
    if env_name in _FAMILIES and not env_name.endswith(separators):
        return False
    return any(
        env_name in (prefix, prefix.rstrip("_-")) and prefix.endswith(separators) for prefix in _FAMILIES
    )


def _completions(prefix: str) -> str:
    """Returns the end of a sentence: all names of the family, or an example."""
    entry = next(entry for entry in _FAMILIES.values() if entry.prefix.rstrip("_-") == prefix.rstrip("_-"))
    listed = _listed_names([entry])
    if listed:
        return f":\n{_wrapped(listed)}"
    return f", e.g. {entry.example}" if entry.example else " (--help has examples)"


def _wrapped(names: Iterable[str]) -> str:
    """Returns the names in alphabetical order, on indented lines of at most 80 columns."""
    text = ", ".join(sorted(names))
    return textwrap.fill(text, 80, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _listed_names(entries: Iterable[FamilyEntry]) -> list[str]:
    """Returns the names of the envs in all families that list theirs."""
    return [name for entry in entries for name in resolve(entry.names) or ()]


register_env(
    "doom_",
    "sample_factory.envs.doom.make_doom_env:make_doom_env",
    "sample_factory.envs.doom.doom_family:DoomFlags",
    "sample_factory.envs.doom.doom_family:doom_defaults",
    names="sample_factory.envs.doom.doom_family:DOOM_SPECS",
)
register_env(
    "gym_",
    "sample_factory.envs.gym_family:make_gym_env",
    "sample_factory.envs.gym_family:GymFlags",
    defaults="sample_factory.envs.gym_family:checked_defaults",
    example="gym_CartPole-v1",
)
register_env(
    "envpool_",
    "sample_factory.envs.envpool_family:make_envpool_env",
    "sample_factory.envs.envpool_family:EnvPoolIdFlags",
    defaults="sample_factory.envs.envpool_defaults:envpool_defaults",
    extra="envpool",
    example="envpool_Pong-v5",
)
register_env(
    "pettingzoo_",
    "sample_factory.envs.pettingzoo_family:make_pettingzoo_env",
    "sample_factory.envs.pettingzoo_family:PettingZooFlags",
    defaults="sample_factory.envs.pettingzoo_family:checked_defaults",
    extra="pettingzoo",
    example="pettingzoo_butterfly.pistonball_v6",
)
for _prefix in ("minigrid_", "MiniGrid-"):  # the second: names of version 1
    register_env(
        _prefix,
        "sample_factory.envs.minigrid_family:make_minigrid_env",
        "sample_factory.envs.minigrid_family:MinigridFlags",
        defaults="sample_factory.envs.minigrid_family:minigrid_defaults",
        extra="minigrid",
        example=f"{_prefix}Empty-5x5-v0",
    )
register_env(
    "mujoco_",
    "sample_factory.envs.mujoco_family:make_mujoco_env",
    "sample_factory.envs.mujoco_family:MujocoFlags",
    "sample_factory.envs.mujoco_family:mujoco_defaults",
    names="sample_factory.envs.mujoco_family:IDS",
    extra="mujoco",
)
register_env(
    "atari_",
    "sample_factory.envs.atari.atari_family:make_atari_env",
    "sample_factory.envs.atari.atari_family:AtariFlags",
    defaults="sample_factory.envs.atari.atari_family:atari_defaults",
    names="sample_factory.envs.atari.games:GAME_OF_ENV",
)
register_env(
    "dmlab_",
    "sample_factory.envs.dmlab.make_dmlab_env:make_dmlab_env",
    "sample_factory.envs.dmlab.dmlab_family:DmlabFlags",
    defaults="sample_factory.envs.dmlab.dmlab_family:dmlab_defaults",
    metrics="sample_factory.envs.dmlab.human_scores:HumanScores",
    example="dmlab_30 or dmlab_rooms_watermaze",
)
register_env(
    "generals_",
    "sample_factory.envs.generals.generals_family:make_generals_env",
    "sample_factory.envs.generals.generals_family:GeneralsFlags",
    defaults="sample_factory.envs.generals.generals_family:generals_defaults",
    names="sample_factory.envs.generals.generals_family:MAPS",
    extra="generals",
)
register_env(
    "football_",
    "sample_factory.envs.football_family:make_football_env",
    "sample_factory.envs.football_family:FootballFlags",
    "sample_factory.envs.football_family:football_defaults",
    names="sample_factory.envs.football_family:FOOTBALL_ENVS",
    extra="envpool",
)
register_env(
    "procgen_",
    "sample_factory.envs.procgen_family:make_procgen_env",
    "sample_factory.envs.procgen_family:ProcgenFlags",
    "sample_factory.envs.procgen_family:procgen_defaults",
    names="sample_factory.envs.procgen_family:PROCGEN_ENVS",
    extra="procgen",
)
