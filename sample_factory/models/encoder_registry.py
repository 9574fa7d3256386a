"""Encoders by name, for --encoder_custom. Registering one imports nothing."""

import difflib
import importlib
from collections.abc import Callable
from typing import Any

# A factory(flags, observation_space) -> torch module with an int attribute out_size.
EncoderFactory = Callable[[Any, Any], Any]

_REGISTERED: dict[str, EncoderFactory | str] = {"vizdoom": "sample_factory.models.doom:VizdoomEncoder"}


def register_encoder(name: str, factory: EncoderFactory | str) -> None:
    """Makes an encoder known as --encoder_custom=name.

    `factory(flags, observation_space)` returns a torch module with an int attribute `out_size`, whose forward
    takes a dict of normalised float observations [B, ...] and returns [B, out_size]. A "module:attribute"
    string is imported when the encoder is built.
    """
    _REGISTERED[name] = factory


def registered_encoder(name: str | None) -> EncoderFactory | str | None:
    """What was registered under a name; child processes are given it, since their registry starts anew."""
    return _REGISTERED.get(name) if name is not None else None


def check_encoder_name(name: str | None) -> None:
    """Raises ValueError, with the nearest name, for one that is not registered and no "module:attribute"."""
    if name is None or name in _REGISTERED or ":" in name:
        return
    close = difflib.get_close_matches(name, _REGISTERED, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise ValueError(
        f"--encoder_custom={name}: {hint}registered are {', '.join(sorted(_REGISTERED))}; a "
        "module:attribute is accepted too"
    )


def resolve_encoder(name: str) -> EncoderFactory:
    """The factory of a name, or of a "module:attribute". Raises ValueError for an unknown one."""
    check_encoder_name(name)
    factory = _REGISTERED.get(name, name)
    if not isinstance(factory, str):
        return factory
    module_name, _, attribute = factory.partition(":")
    module = importlib.import_module(module_name)
    if attribute not in vars(module):
        raise ValueError(f"{module_name} has no attribute {attribute}")
    return vars(module)[attribute]


def why_no_encoder(name: str) -> str | None:
    """None if `resolve_encoder` finds it. Imports its module."""
    try:
        resolve_encoder(name)
    except (ImportError, ValueError) as error:
        return str(error)
    return None
