"""Classes, functions and objects among the arguments of `sample_factory.run` and its companions.

Each is registered under its name, which takes its place among the flags: so it is found by later calls of the
same program, and cfg.json has the name alone. A program that loads the experiment later gives it again.
"""

import functools
import itertools
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any

from sample_factory.config.algorithms import register_algorithm
from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_registry import gym_name_of, register_env
from sample_factory.mainloop.observer import register_observer
from sample_factory.models.network_registry import ACTOR_CRITIC, CORE, DECODER, ENCODER, register
from sample_factory.sampling.matchmaking.matchmaking import register_matchmaking

PARTS = {f"{part}_custom": part for part in (ENCODER, CORE, DECODER, ACTOR_CRITIC)}


def with_names(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keyword arguments of a call, with names in place of what they name.

    env: a class of envs or a function that makes one, as `register_env` has it, or an id of Gymnasium
        without `gym_`.
    encoder_custom and the like, algo, matchmaking: the factory.
    observers: a list of observers, or of functions that make one. They follow this run only.

    Raises ConfigError for an env that is made already.
    """
    named = dict(keywords)
    env = named.get("env")
    if isinstance(env, str):
        named["env"] = gym_name_of(env)
    elif env is not None:
        if not callable(env):
            raise ConfigError(
                f"env is a {type(env).__name__} that is made already, and each process makes its own: give "
                f"the class, or a function, such as env=lambda: {type(env).__name__}(...)"
            )
        named["env"] = name_of(env)
        register_env(named["env"], env)
    for flag, part in PARTS.items():
        if _is_object(named.get(flag)):
            named[flag], factory = name_of(named[flag]), named[flag]
            register(part, named[flag], factory)
    for flag, register_it in (("algo", register_algorithm), ("matchmaking", register_matchmaking)):
        if _is_object(named.get(flag)):
            named[flag], factory = name_of(named[flag]), named[flag]
            register_it(named[flag], factory)
    observers = named.get("observers")
    if _is_object(observers):
        given = observers if isinstance(observers, list | tuple) else [observers]
        named["observers"] = _names_of_observers(given)
    return named


def _is_object(value: Any) -> bool:
    return value is not None and not isinstance(value, str)


def _names_of_observers(given: Sequence[Any]) -> list[str]:
    """Registers the objects among the observers of a call, each under a name of its own, such as Recorder and
    Recorder_2 for two of a class; returns the names of all of them."""
    taken = {one for one in given if not _is_object(one)}
    names: list[str] = []
    for observer in given:
        name = observer
        if _is_object(observer):
            first = name_of(observer)
            candidates = itertools.chain([first], (f"{first}_{number}" for number in itertools.count(2)))
            name = next(candidate for candidate in candidates if candidate not in taken)
            register_observer(name, observer, always=False)
            taken.add(name)
        names.append(name)
    return names


def name_of(given: Any) -> str:
    """Returns the name of a class or function, or of the class of an object; "Maze" for class Maze."""
    while isinstance(given, functools.partial):
        given = given.func
    is_named = isinstance(given, type | types.FunctionType | types.MethodType)
    name: str = given.__name__ if is_named else type(given).__name__
    return re.sub(r"\W", "", name).strip("_")  # of "<lambda>", and no prefix of a family
