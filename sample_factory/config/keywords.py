"""Flags as keyword arguments of Python functions: run(env="doom_basic", batch_size=512)."""

import json
import numbers
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sample_factory.config.flags import ConfigError

KEYWORDS = "keyword arguments"  # the source of their values in error messages
# A command, whose flags have their dashes also in Python; or a flag.
COMMAND_OR_FLAG = re.compile(r"(python -m [^;,()]*)|--(?!help)(?=[a-z])")


def plain_values(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Returns keyword arguments as a file of flags has them: numbers, bools, texts and lists.

    Paths become texts, numbers of NumPy those of Python, and dicts JSON, for flags such as --env_kwargs.
    """
    return {name: _plain(value) for name, value in keywords.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, str)) or value is None:
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def as_arguments(values: Mapping[str, Any]) -> Iterator[str]:
    """Yields the command-line arguments that mean the same as `plain_values`; None is left out."""
    for name, value in values.items():
        if isinstance(value, list):
            yield from (f"--{name}", *map(str, value))
        elif value is not None:
            yield f"--{name}={value}"


def in_words_of_python(error: Exception) -> ConfigError:
    """Returns a ConfigError with keywords in place of flags: "--gamma=2: ..." becomes "gamma=2: ..."."""
    return ConfigError(COMMAND_OR_FLAG.sub(lambda match: match[1] or "", str(error)))


def unknown_keyword(name: str, hint: str, known: Sequence[str]) -> ConfigError:
    """Returns the error for a keyword that is no flag. hint: see `suggestion`. known: all flags."""
    hint = hint or f"; there are {len(known)}, see python -m sample_factory.train --help=all"
    return ConfigError(f"unknown keyword {name}{hint}")
