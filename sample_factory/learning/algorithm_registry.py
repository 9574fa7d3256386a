"""Algorithms by name, for --algo. Imports no torch: scripts and the main process use it."""

import difflib
import importlib
from collections.abc import Callable
from typing import Any

# factory(flags, policy, rng) -> Algorithm, see learning/algorithms/algorithm.py.
AlgorithmFactory = Callable[[Any, Any, Any], Any]

PPO = "sample_factory.learning.algorithms.ppo:PPO"
_REGISTERED: dict[str, AlgorithmFactory | str] = {"APPO": PPO}


def register_algorithm(name: str, factory: AlgorithmFactory | str) -> None:
    """Makes an algorithm known as --algo=name.

    `factory(flags, policy, rng)`, for example a class, returns an `Algorithm`; the arguments are described
    there, in learning/algorithms/algorithm.py. A "module:attribute" string is imported in the learner.
    """
    _REGISTERED[name] = factory


def registered_algorithm(name: str) -> AlgorithmFactory | str:
    """Returns what was registered under a name. Raises ValueError, with the known names, if nothing was."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    close = difflib.get_close_matches(name, _REGISTERED, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise ValueError(f"--algo={name}: {hint}registered are {', '.join(sorted(_REGISTERED))}")


def resolve_algorithm(factory: AlgorithmFactory | str) -> AlgorithmFactory:
    """In the learner: returns the factory itself, imported if it is a "module:attribute" string."""
    if not isinstance(factory, str):
        return factory
    module_name, _, attribute = factory.partition(":")
    module = importlib.import_module(module_name)
    if attribute not in vars(module):
        raise ValueError(f"{module_name} has no attribute {attribute}")
    resolved: AlgorithmFactory = vars(module)[attribute]
    return resolved
