"""Registration of env families as in version 1, for scripts that were written for it."""

import argparse
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from sample_factory.config.flags import flag

V1ParserFunction = Callable[[str, argparse.ArgumentParser], object]


class V1Registry:
    """v1's interface: a family's flags and defaults come from functions that edit an argparse parser."""

    def __init__(self, register: Callable[..., None]):
        """register: `register_env`."""
        self._register = register

    def register_env(
        self,
        env_name_prefix: str,
        make_env_func: Callable[..., Any],
        add_extra_params_func: V1ParserFunction | None = None,
        override_default_params_func: V1ParserFunction | None = None,
    ) -> None:
        """Registers a family with the parameters of v1; parser functions are called with (env, parser)."""
        recorder = ParserRecorder(add_help=False)
        if add_extra_params_func is not None:
            add_extra_params_func(env_name_prefix, recorder)
        flags = recorder.flags_type()

        def defaults(env_name: str) -> Mapping[str, Any]:
            overrides = ParserRecorder(add_help=False)
            if override_default_params_func is not None:
                override_default_params_func(env_name, overrides)
            return {**recorder.recorded_defaults, **overrides.recorded_defaults}

        self._register(env_name_prefix, make_env_func, flags, defaults)


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
