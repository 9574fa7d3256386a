"""Algorithms by name, for --algo. Imports no torch: scripts and the main process use it."""

from collections.abc import Callable, Mapping
from typing import Any

from sample_factory.config.algorithm_defaults import set_defaults
from sample_factory.runtime.registry import Registry

# factory(flags, policy, rng) -> Algorithm, see learning/algorithms/algorithm.py.
AlgorithmFactory = Callable[[Any, Any, Any], Any]

PPO = "sample_factory.learning.algorithms.ppo:PPO"
BUILT_IN: Mapping[str, str] = {
    "APPO": PPO,
    "IMPALA": "sample_factory.learning.algorithms.impala:IMPALA",
    "IMPACT": "sample_factory.learning.algorithms.impact:IMPACT",
    "VMPO": "sample_factory.learning.algorithms.vmpo:VMPO",
}
_REGISTRY = Registry("algo", BUILT_IN)


def register_algorithm(
    name: str, factory: AlgorithmFactory | str, defaults: Mapping[str, Any] | None = None
) -> None:
    """Makes an algorithm known as --algo=name.

    `factory(flags, policy, rng)`, for example a class, returns an `Algorithm`; the arguments are described
    there, in learning/algorithms/algorithm.py. A "module:attribute" string is imported in child processes.
    defaults: flag -> value, instead of the defaults of the flags and of the env family.
    """
    _REGISTRY.register(name, factory)
    set_defaults(name, defaults or {})


def registered_algorithm(name: str) -> AlgorithmFactory | str:
    """Returns what was registered under a name; a "module:attribute" is returned as it is.

    Raises ValueError, with the known names, if nothing was registered.
    """
    if ":" in name:
        return name
    try:
        factory: AlgorithmFactory | str = _REGISTRY.find(name)
    except ValueError as error:
        raise ValueError(f"{error}; or use module:attribute") from None
    return factory
