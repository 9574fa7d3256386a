"""Registry of encoders by name, for --encoder_custom. Registering an encoder imports nothing."""

import difflib
import importlib
from collections.abc import Callable
from typing import Any

# A factory(flags, observation_space) -> torch module with an int attribute out_size.
EncoderFactory = Callable[[Any, Any], Any]

_REGISTERED: dict[str, EncoderFactory | str] = {"vizdoom": "sample_factory.models.encoders:VizdoomEncoder"}


def register_encoder(name: str, factory: EncoderFactory | str) -> None:
    """Registers an encoder for --encoder_custom=name.

    `factory(flags, observation_space)` returns a torch module with an int attribute `out_size`. Its forward
    maps a dict of normalised float observations [B, ...] to [B, out_size]. A "module:attribute" string is
    imported when the encoder is built.
    """
    _REGISTERED[name] = factory


def registered_encoder(name: str | None) -> EncoderFactory | str | None:
    """Returns the factory registered under a name, or None.

    In the parent: child processes receive it with their arguments, since their registry starts empty.
    """
    return _REGISTERED.get(name) if name is not None else None


def check_encoder_name(name: str | None) -> None:
    """Raises ValueError, with the nearest name, unless the name is registered or a "module:attribute"."""
    if name is None or name in _REGISTERED or ":" in name:
        return
    close = difflib.get_close_matches(name, _REGISTERED, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise ValueError(
        f"--encoder_custom={name} is not registered: {hint}use one of {', '.join(sorted(_REGISTERED))}, or "
        "module:attribute"
    )


def resolve_encoder(name: str) -> EncoderFactory:
    """Returns the factory of a registered name or a "module:attribute".

    Raises ValueError for an unknown name or attribute, ImportError for a module that cannot be imported.
    """
    check_encoder_name(name)
    factory = _REGISTERED.get(name, name)
    if not isinstance(factory, str):
        return factory
    module_name, _, attribute = factory.partition(":")
    module = importlib.import_module(module_name)
    if attribute not in vars(module):
        raise ValueError(f"{module_name} has no attribute {attribute}")
    resolved: EncoderFactory = vars(module)[attribute]
    return resolved


def why_no_encoder(name: str) -> str | None:
    """Returns why `resolve_encoder` fails, or None if it does not. Imports the encoder's module."""
    try:
        resolve_encoder(name)
    except (ImportError, ValueError) as error:
        return str(error)
    return None
