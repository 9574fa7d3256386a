"""Flags of env families that are registered as in version 1, by functions that edit an argparse parser."""

import argparse
import dataclasses
from typing import Any

from sample_factory.config.flags import flag


class ParserRecorder(argparse.ArgumentParser):
    """A parser that records defaults, and turns its arguments into the fields of a dataclass."""

    def __init__(self, **kwargs: Any):
        self.recorded_defaults: dict[str, Any] = {}
        super().__init__(**kwargs)

    def set_defaults(self, **kwargs: Any) -> None:
        self.recorded_defaults.update(kwargs)

    def flags_type(self) -> type | None:
        """Returns a frozen dataclass with a field per recorded argument, or None if there are none."""
        if not self._actions:  # those of its groups too
            return None
        fields = []
        for action in self._actions:
            default, annotation = _default_and_type(action)
            field = flag(default, action.help or "", tuple(action.choices or ()))
            fields.append((action.dest, annotation, field))
        return dataclasses.make_dataclass("RegisteredFlags", fields, frozen=True)


def _default_and_type(action: argparse.Action) -> tuple[Any, Any]:
    """Returns the default value and the annotation of a field for an argument of a parser."""
    default = action.default
    scalar: Any = action.type if action.type in (int, float, str) else None
    if isinstance(default, (list, tuple)) or action.nargs in ("*", "+"):
        default = tuple(default or ())
        scalar = scalar or (type(default[0]) if default else str)
        return default, tuple[scalar, ...]
    if default is None:
        return default, (scalar or str) | None
    return default, scalar or type(default)
