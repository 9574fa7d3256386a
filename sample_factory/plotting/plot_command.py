"""Flags and tables of the commands that draw a picture."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sample_factory.config.flags import ConfigError, flag
from sample_factory.runtime.log import escaped

OUT_SUFFIXES = (".png", ".svg", ".pdf")


def out_flag(default: str) -> Any:
    """Returns the flag --out, the picture that is written."""
    return flag(
        default, f"picture to write; its name ends in one of {', '.join(OUT_SUFFIXES)}", metavar="FILE"
    )


def check_out(path: str | Path, name: str = "--out") -> None:
    """Raises ConfigError unless the name ends in one of OUT_SUFFIXES."""
    if Path(path).suffix.lower() not in OUT_SUFFIXES:
        raise ConfigError(f"{name}={path} should end in one of {', '.join(OUT_SUFFIXES)}")


def named_number(flag_name: str, text: str, form: str) -> tuple[str, float]:
    """Returns the name and the number of NAME=NUMBER. form: describes the text, for the ConfigError."""
    name, _, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not name or not math.isfinite(value):
        raise ConfigError(f"{flag_name}={text}: should be {form}")
    return name, value


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Raises ConfigError for a file that cannot be used."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot use {error.filename}: {error.strerror}") from error


def report(rows: Sequence[str], out: str) -> None:
    """Prints the lines about a picture, and its name."""
    print(escaped("\n".join([*rows, f"written: {out}"])))


def aligned(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Returns the lines of a table.

    sides: alignment by column, "<" for words, ">" for numbers; the last one also holds for the columns after.
    """
    sides = sides.ljust(len(rows[0]), sides[-1])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths)).rstrip()
        for row in rows
    ]


def rounded(value: float) -> str:
    """Returns the value with three decimals, or three digits if it is small."""
    return f"{value:,.3f}" if value == 0 or abs(value) >= 0.1 else f"{value:.3g}"
