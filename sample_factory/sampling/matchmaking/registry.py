"""Registry of matchmakings by name, for --matchmaking. Registering one imports nothing."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from sample_factory.runtime.registry import Registry

if TYPE_CHECKING:
    from sample_factory.sampling.matchmaking.matchmaking import Matchmaking, MatchSetup

RANDOM = "random"
MatchmakingFactory = Callable[["MatchSetup"], "Matchmaking"]

_REGISTRY = Registry("matchmaking", {RANDOM: "sample_factory.sampling.matchmaking.matchmaker:Matchmaker"})


class MatchmakingChoice(NamedTuple):
    """The value of --matchmaking with its factory; sent to rollout workers, whose registry starts empty.

    name: the value. factory: a "module:attribute" string is imported in the rollout workers.
    """

    name: str
    factory: MatchmakingFactory | str


def register_matchmaking(name: str, factory: MatchmakingFactory | str) -> None:
    """Makes a rule for who plays whom known as --matchmaking=name.

    factory(setup), for example a class, is called in a rollout worker for each of its envs, and returns an
    object like `Matchmaking`; the arguments of both are described there, in
    sampling/matchmaking/matchmaking.py. A "module:attribute" string is imported in the rollout workers.
    """
    _REGISTRY.register(name, factory)


def chosen_matchmaking(name: str) -> MatchmakingChoice:
    """Returns what was registered under a name; a "module:attribute" is returned as it is.

    Raises ValueError, with the known names, if nothing was registered.
    """
    if ":" in name:
        return MatchmakingChoice(name, name)
    try:
        return MatchmakingChoice(name, _REGISTRY.find(name))
    except ValueError as error:
        raise ValueError(f"{error}; or use module:attribute") from None
