"""Classes, functions and objects among the arguments of `sample_factory.run` and its companions.

Each is registered under its name, which takes its place among the flags: so it is found by later calls of the
same program, and cfg.json has the name alone. A program that loads the experiment later gives it again.

Objects of several calls may have one name, such as lambda: later calls for an experiment get its own.
"""

import functools
import itertools
import json
import os
import re
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sample_factory.config.algorithms import register_algorithm
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import named_folder
from sample_factory.envs.env_registry import gym_name_of, register_env
from sample_factory.mainloop.observer import register_observer
from sample_factory.models.network_registry import ACTOR_CRITIC, CORE, DECODER, ENCODER, register
from sample_factory.sampling.matchmaking.matchmaking import register_matchmaking

# Flag -> the function that registers an object for it.
REGISTER: Mapping[str, Callable[[str, Any], None]] = {
    "env": register_env,
    **{
        f"{part}_custom": functools.partial(register, part) for part in (ENCODER, CORE, DECODER, ACTOR_CRITIC)
    },
    "algo": register_algorithm,
    "matchmaking": register_matchmaking,
    "observers": functools.partial(register_observer, always=False),
}
Objects = dict[tuple[str, str], Any]  # by flag and name

# By experiment folder. What an experiment was trained with comes before what other calls have given for it.
_OF_TRAININGS: dict[Path, Objects] = {}
_OF_OTHERS: dict[Path, Objects] = {}
_LAST_REGISTERED: Objects = {}


def keep_objects(folder: Path, keywords: Mapping[str, Any]) -> None:
    """Stores the classes, functions and observers among the keywords of a call that trains, so that later
    calls in this process for the same experiment folder can omit them."""
    _OF_TRAININGS.setdefault(folder, {}).update(_named(keywords)[1])


def with_names(keywords: Mapping[str, Any], argv: Sequence[str] = (), trains: bool = False) -> dict[str, Any]:
    """Returns the keyword arguments of a call such as `train` as flags for `parse_config`. Classes, functions
    and observers are registered, and replaced by their names. Keywords that are None are left out. Objects of
    earlier calls for the experiment are registered again.

    keywords: flag -> value or object. `env`: a class, a function that makes an env, an id of Gymnasium
        without `gym_`, or a list of names. `observers`: a list of observers, or of functions that make one;
        only for this run. `encoder_custom`, `algo`, `matchmaking` and the like: the factory.
    argv: flags of the call beside the keywords.
    trains: whether the call trains the experiment; once its flags are accepted, call `keep_objects`.

    Raises ConfigError for an env that is made already, and for flags that name no folder.
    """
    named, given = _named(keywords)
    named = {name: _plain(value) for name, value in named.items() if value is not None}
    if not (given or _OF_TRAININGS or _OF_OTHERS):
        return named
    folder = named_folder(argv, named)
    if given and not trains:
        _OF_OTHERS.setdefault(folder, {}).update(given)
    earlier = {**_OF_OTHERS.get(folder, {}), **_OF_TRAININGS.get(folder, {})}
    # What is registered already is left alone: register_env and the like may have replaced it since.
    recalled = {key: value for key, value in earlier.items() if _LAST_REGISTERED.get(key) is not value}
    for (flag, name), value in {**recalled, **given}.items():
        REGISTER[flag](name, value)
        _LAST_REGISTERED[flag, name] = value
    return named


def _named(keywords: Mapping[str, Any]) -> tuple[dict[str, Any], Objects]:
    """Replaces classes, functions and observers in keyword arguments by names, without registering them.
    Returns the new keywords, and (flag, name) -> object."""
    named = dict(keywords)
    given: Objects = {}
    env = keywords.get("env")
    has_names = isinstance(env, list | tuple) and bool(env) and all(isinstance(one, str) for one in env)
    for flag, value in keywords.items():
        is_one = flag != "observers" and not (flag == "env" and has_names)
        if flag in REGISTER and is_one and _is_object(value):
            named[flag] = name_of(value)
            given[flag, named[flag]] = value
    if isinstance(env, str):
        named["env"] = gym_name_of(env)
    elif env is not None and has_names:
        if "levels" in keywords:
            raise ConfigError(f"env={env}: several envs are levels; leave levels out")
        names = list(map(gym_name_of, env))
        named |= {"env": names[0], "levels": names if len(names) > 1 else None}
    elif env is not None and not callable(env):
        raise ConfigError(
            f"env is a {type(env).__name__} that is made already, and each process makes its own: give the "
            f"class, or a function, such as env=lambda: {type(env).__name__}(...)"
        )
    observers = named.get("observers")
    if _is_object(observers):
        one_by_one = observers if isinstance(observers, list | tuple) else [observers]
        named["observers"] = _names_of_observers(one_by_one)
        both = zip(named["observers"], one_by_one)
        given |= {("observers", name): value for name, value in both if _is_object(value)}
    return named, given


def _plain(value: Any) -> Any:
    """Converts a Python value to the value of a flag: paths become texts, and dicts become JSON, as in
    --env_kwargs."""
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, Mapping):
        return json.dumps(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _is_object(value: Any) -> bool:
    return value is not None and not isinstance(value, str)


def _names_of_observers(given: Sequence[Any]) -> list[str]:
    """Returns a unique name for each observer of a call, e.g. Recorder and Recorder_2 for two observers of
    one class."""
    taken = {one for one in given if not _is_object(one)}
    names: list[str] = []
    for observer in given:
        name = observer
        if _is_object(observer):
            first = name_of(observer)
            candidates = itertools.chain([first], (f"{first}_{number}" for number in itertools.count(2)))
            name = next(candidate for candidate in candidates if candidate not in taken)
            taken.add(name)
        names.append(name)
    return names


def name_of(given: Any) -> str:
    """Returns the name of a class or function, or of an object's class; "Maze" for class Maze."""
    while isinstance(given, functools.partial):
        given = given.func
    is_named = isinstance(given, type | types.FunctionType | types.MethodType)
    name: str = given.__name__ if is_named else type(given).__name__
    return re.sub(r"\W", "", name).strip("_")  # of "<lambda>", and no prefix of a family
