"""Gymnasium envs by their id, without registration: `gym_<id>`, e.g. gym_CartPole-v1."""

import functools
import importlib
import importlib.metadata
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import (
    EnvSpec,
    find_highest_version,
    get_env_id,
    load_env_creator,
    parse_env_id,
)

from sample_factory.config.flags import ConfigError
from sample_factory.envs import family_flags
from sample_factory.envs.conventions import convention_of
from sample_factory.envs.env_family import FamilyParts, UnknownEnvError
from sample_factory.envs.packages import is_installed, missing_package
from sample_factory.envs.protocol import EnvConfig
from sample_factory.envs.wrappers.frame_stack import FrameSkip
from sample_factory.runtime.log import log
from sample_factory.runtime.registry import did_you_mean

PREFIX = "gym_"
RULE = f"for an env of another package, name the module that registers it: {PREFIX}<module>:<id>"
# Packages that Gymnasium's own envs need: the module that defines them -> (package, our extra).
EXTRAS = {"gymnasium.envs.mujoco": ("mujoco", "mujoco"), "gymnasium.envs.box2d": ("Box2D", "box2d")}


# Start of an id (a regular expression) -> the modules that have to be installed, and the argument of
# `pip install`. Importing the first module registers the id.
_ROADS = "highway|merge|roundabout|parking|intersection|racetrack|exit|lane-keeping|two-way|u-turn"
PACKAGES: Mapping[str, tuple[Sequence[str], str]] = {
    r"ALE/|\w+NoFrameskip-v4": (["ale_py"], "ale-py"),
    r"(MiniGrid|BabyAI)-": (["minigrid"], "minigrid"),
    f"({_ROADS})-": (["highway_env"], "highway-env"),
    r"popgym-": (["popgym"], "popgym"),
    r"(Fetch|Hand(Manipulate|Reach)|Adroit|AntMaze|PointMaze|FrankaKitchen)": (
        ["gymnasium_robotics"],
        "gymnasium-robotics",
    ),
    r"Vizdoom": (["vizdoom.gymnasium_wrapper"], "vizdoom"),
    r"dm_control/": (["shimmy", "dm_control"], "'shimmy[dm-control]'"),
}

LIMIT = "max_episode_steps"
NO_LIMIT = -1  # as in gymnasium.make
LAST_MUJOCO = (3, 11)  # with which gymnasium-robotics 1.4.2 makes all of its envs

# Flags that suit suites of envs with common traits, for the families `gym_` and `envpool_`.
_ALL_SUITES: Mapping[str, Any] = {
    "nonlinearity": "tanh",
    "with_vtrace": False,
    "gae_lambda": 0.95,
    "learning_rate": 1e-3,
    "adam_eps": 1e-6,
    "ppo_clip_ratio": 0.1,
    "adaptive_stddev": True,
}
# Cards, bandits and carts whose velocity is hidden: one observation is not the whole state.
# RepeatPreviousEasy reaches 0.99 of 1 after 300k steps.
MEMORY: Mapping[str, Any] = {
    **_ALL_SUITES,
    "vector_env_copies": 16,
    "use_rnn": True,
    "hidden_size": 128,
    "encoder_mlp_layers": (64,),
    "rollout": 64,
    "recurrence": 64,
    "batch_size": 1024,
    "num_batches_per_iteration": 2,
    "ppo_epochs": 4,
    "max_grad_norm": 1.0,
    "exploration_loss_coeff": 0.001,
}
# Arms, hands and bodies with a few hundred steps per second: each sample is used many times.
# FetchReachDense-v4 goes from -15 to -3.5 within 24k steps.
ROBOTS: Mapping[str, Any] = {
    **_ALL_SUITES,
    "vector_env_copies": 8,
    "use_rnn": False,
    "encoder_mlp_layers": (64, 64),
    "rollout": 32,
    "recurrence": 32,
    "batch_size": 256,
    "num_batches_per_iteration": 4,
    "ppo_epochs": 10,
    "ppo_clip_ratio": 0.2,
    "max_grad_norm": 0.5,
    "exploration_loss_coeff": 0.0,
    "adaptive_stddev": False,
}
# Longer episodes of cheaper steps.
CONTROL_SUITE: Mapping[str, Any] = {
    **ROBOTS,
    "vector_env_copies": 16,
    "rollout": 64,
    "recurrence": 64,
    "batch_size": 512,
    "num_batches_per_iteration": 8,
    "ppo_epochs": 5,
}
# Cars on roads, seen as a table with a row for each of them; an episode has at most a few dozen decisions.
# highway-fast-v0 goes from 8.7 to 21 within 50k steps.
ROADS: Mapping[str, Any] = {
    **_ALL_SUITES,
    "vector_env_copies": 16,
    "use_rnn": False,
    "encoder_mlp_layers": (128, 128),
    "rollout": 32,
    "recurrence": 32,
    "batch_size": 512,
    "num_batches_per_iteration": 4,
    "ppo_epochs": 4,
    "gamma": 0.95,
    "ppo_clip_ratio": 0.2,
    "max_grad_norm": 0.5,
    "exploration_loss_coeff": 0.01,
}

# Start of an id, without module and family (a regular expression) -> flags.
SUITES: Mapping[str, Mapping[str, Any]] = {
    r"popgym-": MEMORY,
    r"(Fetch|Hand(Manipulate|Reach)|Adroit|PointMaze|AntMaze|FrankaKitchen|MetaWorld/|"
    r"(parking|racetrack|lane-keeping)-)": ROBOTS,
    # dm_control: by Shimmy's ids, and by EnvPool's, a domain and a task in one word.
    r"dm_control/|(Acrobot|BallInCup|Cartpole|Cheetah|Finger|Fish|Hopper|Humanoid|HumanoidCMU|Manipulator|"
    r"Pendulum|PointMass|Reacher|Swimmer|Walker)[A-Z]\w*-v1$": CONTROL_SUITE,
    r"(highway|merge|roundabout|intersection|exit|two-way|u-turn)-": ROADS,
}


def suite_defaults(env_id: str) -> Mapping[str, Any]:
    """Returns flag -> default for the suite, such as dm_control, that an id of Gymnasium belongs to; empty
    for an id of no known suite."""
    return next((flags for start, flags in SUITES.items() if re.match(start, env_id)), {})


@dataclass(frozen=True)
class GymFlags(family_flags.EnvKwargsFlags):
    """Flags of Gymnasium envs."""

    vector_env_copies: int = family_flags.vector_env_copies_flag(
        1, "much faster for envs that have a vectorised implementation, such as CartPole-v1"
    )


def make_gym_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> gym.Env | gym.vector.VectorEnv:
    """Makes the env with the id after `gym_`; for "module:id", imports the module, which registers it."""
    spec = find_spec(full_env_name)
    kwargs = family_flags.parse_env_kwargs(cfg.env_kwargs)
    spec = _with_limit(spec, kwargs)
    has_own = _has_own_copies(spec, cfg.vector_env_copies, kwargs)
    creator = _creator(spec.vector_entry_point if has_own else spec.entry_point)
    # A parameter of gymnasium.make itself; a vector env has it if its creator does.
    others = [*spec.kwargs] if has_own else [LIMIT, *spec.kwargs]
    family_flags.check_env_kwargs(full_env_name, kwargs, creator, others)
    if has_own or cfg.vector_env_copies > 1:
        instead = "" if spec.entry_point is None else "; use --vector_env_copies=1 with it"
        family_flags.refuse_frameskip(cfg, f"only single envs skip frames{instead}")
    # With the argument None, envs that have no such parameter could not be made.
    kwargs |= {} if render_mode is None else {"render_mode": render_mode}
    if has_own:
        mode = gym.VectorizeMode.VECTOR_ENTRY_POINT
        return gym.make_vec(spec, cfg.vector_env_copies, vectorization_mode=mode, **kwargs)
    # Gymnasium's checker inspects every step of every env; the adapter and buffers check what matters.
    make_one = functools.partial(gym.make, spec, disable_env_checker=True, **kwargs)
    try:
        if cfg.vector_env_copies > 1:
            return family_flags.copies_in_turn(make_one, cfg.vector_env_copies)
        env = make_one()
    except AssertionError:
        _check_mujoco(full_env_name, spec)
        raise
    return FrameSkip(env, cfg.env_frameskip) if cfg.env_frameskip and cfg.env_frameskip > 1 else env


def _with_limit(spec: EnvSpec, kwargs: dict[str, Any]) -> EnvSpec:
    """Returns a copy of the spec with the time limit of --env_kwargs, `kwargs`, as its maximum number of
    steps. A limit of None leaves the spec as it is, and is removed from `kwargs`.

    Raises ConfigError for a limit that Gymnasium or a vector env would misunderstand.
    """
    limit = kwargs.get(LIMIT)
    if limit is None:
        kwargs.pop(LIMIT, None)
        return spec
    or_none = "" if spec.entry_point is None else f", or {NO_LIMIT} for no limit"
    if type(limit) is not int or not (limit > 0 or (limit == NO_LIMIT and or_none)):
        right = f"it should be a positive number of steps{or_none}"
        raise ConfigError(f"--env_kwargs: {LIMIT} is {limit!r}; {right}")
    return replace(spec, max_episode_steps=None if limit == NO_LIMIT else limit)


def _has_own_copies(spec: EnvSpec, copies: int, kwargs: Mapping[str, Any]) -> bool:
    """Returns whether to use the env's vectorised implementation: always if there is no single env; for
    several copies, if the implementation behaves like single envs."""
    if spec.entry_point is None:
        return True
    if copies == 1 or spec.vector_entry_point is None or kwargs.get(LIMIT) == NO_LIMIT:
        return False
    # The vector env of ale-py is another task: it clips rewards, and stacks small grey pictures.
    return spec.namespace != "ALE" and not convention_of(_creator(spec.vector_entry_point)).stands_still


def _creator(entry_point: Any) -> Any:
    """Resolves the entry point of an EnvSpec; returns the class or function that makes the env."""
    return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point


def parse_name(full_env_name: str) -> tuple[str | None, str]:
    """Returns (module to import, id); the module is None if the id is registered already.

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
        for start, (modules, install) in PACKAGES.items():
            if re.match(start, env_id, re.IGNORECASE):
                missing = [m for m in modules if not is_installed(m.partition(".")[0])]
                if missing:
                    raise ImportError(
                        f"env {full_env_name!r} needs the package {missing[0]}, which is not installed: pip "
                        f"install {install}"
                    )
                return modules[0], env_id
    if module and not is_installed(module.partition(".")[0]):
        raise ImportError(
            f"env {full_env_name!r} needs the module {module}, which is not installed and not beside the "
            "script"
        )
    return module or None, env_id


def find_spec(full_env_name: str) -> EnvSpec:
    """Imports the env's module and returns the EnvSpec that the module has registered. Raises
    UnknownEnvError, with the nearest id, and ImportError if the env needs a package that is not installed."""
    module, env_id = parse_name(full_env_name)
    if module is not None:
        importlib.import_module(module)
    spec = gym.registry.get(env_id)
    if spec is None:
        raise UnknownEnvError(_why_unknown(full_env_name, module, env_id))
    for place, (package, extra) in EXTRAS.items():
        if str(spec.entry_point).startswith(place) and not is_installed(package):
            raise missing_package(f"env {full_env_name!r}", package, extra)
    return spec


def _check_mujoco(full_env_name: str, spec: EnvSpec) -> None:
    """Raises ConfigError if an env of gymnasium-robotics has raised AssertionError and the installed MuJoCo
    is too new for this package. spec: of the env."""
    if str(spec.entry_point).startswith("gymnasium_robotics"):
        mujoco = importlib.metadata.version("mujoco")
        if tuple(map(int, mujoco.split(".")[:2])) > LAST_MUJOCO:
            raise ConfigError(
                f"env {full_env_name!r} cannot be made with mujoco {mujoco}, which is too new for "
                "gymnasium-robotics: pip install 'mujoco<3.12'"
            ) from None


def checked_defaults(full_env_name: str) -> Mapping[str, Any]:
    """Returns the flag defaults of an env's suite; empty for an env of no known suite, whose defaults depend
    on the observation.

    If no module has to be imported first, checks the id, and logs if there is a newer version of the env.
    Raises UnknownEnvError for an unknown id, and ImportError if the env needs a package that is not
    installed.
    """
    if parse_name(full_env_name)[0] is None:
        spec = find_spec(full_env_name)
        newest = find_highest_version(spec.namespace, spec.name)
        if newest is not None and spec.version is not None and newest > spec.version:
            _warn_of_newer(full_env_name, get_env_id(spec.namespace, spec.name, newest))
    return suite_defaults(full_env_name.removeprefix(PREFIX).rpartition(":")[2])


@functools.cache  # once for a name, although names are checked several times
def _warn_of_newer(full_env_name: str, newest: str) -> None:
    log.warning("%s is out of date: the newest version is %s%s", full_env_name, PREFIX, newest)


def _why_unknown(full_env_name: str, module: str | None, env_id: str) -> str:
    """Returns the error message for an unknown id: the id that is probably meant, or what to do."""
    is_known = any(re.match(start, env_id, re.IGNORECASE) for start in PACKAGES)
    prefix = PREFIX if module is None or is_known else f"{PREFIX}{module}:"
    namespace, name, version = parse_env_id(env_id)
    newest = find_highest_version(namespace, name)
    if newest is not None:
        fault = "the id has no version" if version is None else f"there is no version {version}"
        if version is not None and version < newest:
            fault = "this version is out of date"
        suggested = prefix + get_env_id(namespace, name, newest)
        return f"env {full_env_name!r}: {fault}; the newest is {suggested}"
    hint = did_you_mean(env_id, gym.registry, 0.75, prefix)
    if hint:
        return f"unknown env {full_env_name!r}{hint}"
    if module is not None:
        return f"unknown env {full_env_name!r}: {module} registers no such id with Gymnasium"
    return f"unknown env {full_env_name!r}: Gymnasium has no such id; {RULE}"


FAMILY = FamilyParts(
    make_gym_env, GymFlags, checked_defaults, example="gym_CartPole-v1", follows_observation=True
)
