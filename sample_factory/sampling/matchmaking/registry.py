"""Registry of matchmakings by name, for --matchmaking. Registering one imports nothing."""

from collections.abc import Callable
from typing import Any

from sample_factory.runtime.registry import Registry

RANDOM = "random"
MatchmakingFactory = Callable[[Any], Any]  # MatchSetup -> Matchmaking, see matchmaking.py

_REGISTRY = Registry("matchmaking", {RANDOM: "sample_factory.sampling.matchmaking.matchmaker:Matchmaker"})


def register_matchmaking(name: str, factory: MatchmakingFactory | str) -> None:
    """Makes a rule for who plays whom known as --matchmaking=name.

    factory(setup), for example a class, is called in a rollout worker for each of its envs, and returns an
    object like `Matchmaking`; the arguments of both are described there, in
    sampling/matchmaking/matchmaking.py. A "module:attribute" string is imported in the rollout workers.
    """
    _REGISTRY.register(name, factory)


def registered_matchmaking(name: str) -> MatchmakingFactory | str:
    """Returns what was registered under a name; a "module:attribute" is returned as it is.

    Raises ValueError, with the known names, if nothing was registered.
    """
    if ":" in name:
        return name
    try:
        factory: MatchmakingFactory | str = _REGISTRY.find(name)
    except ValueError as error:
        raise ValueError(f"{error}; or use module:attribute") from None
    return factory
