"""Registry of encoders by name, for --encoder_custom. Registering an encoder imports nothing."""

from collections.abc import Callable
from typing import Any

from sample_factory.runtime.failures import PermanentFailure
from sample_factory.runtime.registry import Registry, resolve


class EncoderError(PermanentFailure):
    """A fault of an encoder of the user's, found before training starts."""


# A factory(flags, observation_space) -> torch module with an int attribute out_size.
EncoderFactory = Callable[[Any, Any], Any]

# Values of --encoder_custom whose networks follow --encoder_type and --encoder_subtype.
FOLLOW_PRESETS = (None, "vizdoom")

_BUILT_IN = {
    "vizdoom": "sample_factory.models.encoders:VizdoomEncoder",
    "minigrid": "sample_factory.models.minigrid_encoder:MinigridEncoder",
    "dmlab_instructions": "sample_factory.models.dmlab_encoder:DmlabEncoder",
    "map": "sample_factory.models.map_encoder:MapEncoder",
}
_REGISTRY = Registry("encoder_custom", _BUILT_IN)


def register_encoder(name: str, factory: EncoderFactory | str) -> None:
    """Registers an encoder for --encoder_custom=name.

    `factory(flags, observation_space)` returns a torch module with an int attribute `out_size`. Its forward
    maps a dict of normalised float observations [B, ...] to [B, out_size]; Discrete and MultiDiscrete ones
    are indices, int64 [B, K], and their spaces are `spaces.observations.Indices` with `sizes`. A
    "module:attribute" string is imported when the encoder is built.
    """
    _REGISTRY.register(name, factory)


def is_found_without_script(name: str | None) -> bool:
    """Returns whether a process that runs no script of a user's own finds the encoder of --encoder_custom."""
    return name is None or name in _BUILT_IN or ":" in name


def registered_encoder(name: str | None) -> EncoderFactory | str | None:
    """Returns the factory registered under a name, or None.

    In the parent: child processes receive it with their arguments, since their registry starts empty.
    """
    factory: EncoderFactory | str | None
    factory = _REGISTRY.find(name) if name is not None and name in _REGISTRY else None
    return factory


def check_encoder_name(name: str | None) -> None:
    """Raises ValueError, with the nearest name, unless the name is registered or a "module:attribute"."""
    if name is None or ":" in name:
        return
    try:
        _REGISTRY.find(name)
    except ValueError as error:
        raise ValueError(f"{error}; or use module:attribute") from None


def resolve_encoder(name: str) -> EncoderFactory:
    """Returns the factory of a registered name or a "module:attribute".

    Raises ValueError for an unknown name or attribute, ImportError for a module that cannot be imported.
    """
    check_encoder_name(name)
    factory: EncoderFactory = resolve(_REGISTRY.find(name) if name in _REGISTRY else name)
    return factory


def why_no_encoder(name: str) -> str | None:
    """Returns why `resolve_encoder` fails, or None if it does not. Imports the encoder's module."""
    try:
        resolve_encoder(name)
    except (ImportError, ValueError) as error:
        return str(error)
    return None
