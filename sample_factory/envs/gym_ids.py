"""Ids of Gymnasium envs: which package registers one, and what is wrong with an unknown one."""

import contextlib
import difflib
import functools
import importlib
import importlib.metadata
import logging
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, find_highest_version, get_env_id, parse_env_id

from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_registry import UnknownEnvError
from sample_factory.envs.packages import is_installed, missing_package

log = logging.getLogger("sample_factory")

PREFIX = "gym_"
RULE = f"for an env of another package, name the module that registers it: {PREFIX}<module>:<id>"
# Packages that Gymnasium's own envs need: the module that defines them -> (package, our extra).
EXTRAS = {"gymnasium.envs.mujoco": ("mujoco", "mujoco"), "gymnasium.envs.box2d": ("Box2D", "box2d")}


class Package(NamedTuple):
    """A package that registers ids when its first module is imported.

    modules: what has to be installed. install: the argument of `pip install`.
    """

    modules: tuple[str, ...]
    install: str


# Start of an id (a regular expression) -> the package that registers it.
PACKAGES: Mapping[str, Package] = {
    r"ALE/|\w+NoFrameskip-v4": Package(("ale_py",), "ale-py"),
    r"(MiniGrid|BabyAI)-": Package(("minigrid",), "minigrid"),
    r"(highway|merge|roundabout|parking|intersection|racetrack|exit|lane-keeping|two-way|u-turn)-": Package(
        ("highway_env",), "highway-env"
    ),
    r"popgym-": Package(("popgym",), "popgym"),
    r"(Fetch|Hand(Manipulate|Reach)|Adroit|AntMaze|PointMaze|FrankaKitchen)": Package(
        ("gymnasium_robotics",), "gymnasium-robotics"
    ),
    r"Vizdoom": Package(("vizdoom.gymnasium_wrapper",), "vizdoom"),
    r"dm_control/": Package(("shimmy", "dm_control"), "'shimmy[dm-control]'"),
}

LAST_MUJOCO = (3, 11)  # with which gymnasium-robotics 1.4.2 makes all of its envs


class GymId(NamedTuple):
    """An id, and the module to import before it can be made; None if it is registered already."""

    module: str | None
    env_id: str


def parse_name(full_env_name: str) -> GymId:
    """Returns the id in `gym_<id>` or `gym_<module>:<id>`, with the module that registers it.

    Raises UnknownEnvError for a malformed id, and ImportError with the package to install if the module is
    missing.
    """
    module, _, env_id = full_env_name.removeprefix(PREFIX).rpartition(":")
    try:
        parse_env_id(env_id)
    except gym.error.Error:
        raise UnknownEnvError(
            f"unknown env {full_env_name!r}: after {PREFIX} comes an id such as CartPole-v1, or "
            f"<module>:<id>, not {env_id!r}"
        ) from None
    if not module and env_id not in gym.registry:
        for start, package in PACKAGES.items():
            if re.match(start, env_id):
                _check_installed(full_env_name, package)
                return GymId(package.modules[0], env_id)
    if module and not is_installed(module.partition(".")[0]):
        raise ImportError(
            f"env {full_env_name!r} needs the module {module}, which is not installed and not beside the "
            "script"
        )
    return GymId(module or None, env_id)


def find_spec(full_env_name: str) -> EnvSpec:
    """Returns what is registered for the env, after an import of its module.

    Raises UnknownEnvError, with the nearest id, and ImportError.
    """
    module, env_id = parse_name(full_env_name)
    if module is not None:
        importlib.import_module(module)
    return registered(full_env_name, GymId(module, env_id))


def registered(full_env_name: str, gym_id: GymId) -> EnvSpec:
    """Returns what is registered for an id whose module is imported. Raises as `find_spec`."""
    spec = gym.registry.get(gym_id.env_id)
    if spec is None:
        raise UnknownEnvError(_why_unknown(full_env_name, gym_id))
    _check_extra(full_env_name, spec)
    return spec


@contextlib.contextmanager
def explained_faults(full_env_name: str, spec: EnvSpec) -> Iterator[None]:
    """Raises ConfigError for an assertion of an env that fails because of the version of another package."""
    try:
        yield
    except AssertionError:
        if str(spec.entry_point).startswith("gymnasium_robotics"):
            mujoco = importlib.metadata.version("mujoco")
            if tuple(map(int, mujoco.split(".")[:2])) > LAST_MUJOCO:
                raise ConfigError(
                    f"env {full_env_name!r} cannot be made with mujoco {mujoco}, which is too new for "
                    "gymnasium-robotics: pip install 'mujoco<3.12'"
                ) from None
        raise


def check(full_env_name: str) -> None:
    """Checks a name without importing the module that is to register it. Raises as `find_spec`.

    Logs when there is a newer version of the env.
    """
    gym_id = parse_name(full_env_name)
    if gym_id.module is None:
        spec = registered(full_env_name, gym_id)
        newest = find_highest_version(spec.namespace, spec.name)
        if newest is not None and spec.version is not None and newest > spec.version:
            _warn_of_newer(full_env_name, get_env_id(spec.namespace, spec.name, newest))


@functools.cache  # once for a name, although names are checked several times
def _warn_of_newer(full_env_name: str, newest: str) -> None:
    log.warning("%s is out of date: the newest version is %s%s", full_env_name, PREFIX, newest)


def _why_unknown(full_env_name: str, gym_id: GymId) -> str:
    """Returns an error message for an unknown id: what is probably meant, or what to do."""
    module, env_id = gym_id
    prefix = f"{PREFIX}{module}:" if module is not None and not _is_known(env_id) else PREFIX
    namespace, name, version = parse_env_id(env_id)
    newest = find_highest_version(namespace, name)
    if newest is not None:
        wrong = "the id has no version" if version is None else f"there is no version {version}"
        if version is not None and version < newest:
            wrong = "this version is out of date"
        return f"env {full_env_name!r}: {wrong}; the newest is {prefix}{get_env_id(namespace, name, newest)}"
    ids = {known.lower(): known for known in gym.registry}
    close = difflib.get_close_matches(env_id.lower(), ids, n=1, cutoff=0.75)
    if close:
        return f"unknown env {full_env_name!r}; did you mean {prefix}{ids[close[0]]}?"
    if module is not None:
        return f"unknown env {full_env_name!r}: {module} registers no such id with Gymnasium"
    return f"unknown env {full_env_name!r}: Gymnasium has no such id; {RULE}"


def _is_known(env_id: str) -> bool:
    return any(re.match(start, env_id) for start in PACKAGES)


def _check_installed(full_env_name: str, package: Package) -> None:
    missing = [m for m in package.modules if not is_installed(m.partition(".")[0])]
    if missing:
        raise ImportError(
            f"env {full_env_name!r} needs the package {missing[0]}, which is not installed: "
            f"pip install {package.install}"
        )


def _check_extra(full_env_name: str, spec: EnvSpec) -> None:
    for place, (package, extra) in EXTRAS.items():
        if str(spec.entry_point).startswith(place) and not is_installed(package):
            raise missing_package(f"env {full_env_name!r}", package, extra)
