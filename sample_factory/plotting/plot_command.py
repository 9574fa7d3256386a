"""Flags and tables of the commands that draw a picture."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sample_factory.config.flags import ConfigError, flag
from sample_factory.runtime.log import escaped

OUT_SUFFIXES = (".png", ".svg", ".pdf")


def out_flag(default: str) -> Any:
    """Returns the field of a flag section for --out, the picture to write, with this default."""
    return flag(
        default, f"picture to write; its name ends in one of {', '.join(OUT_SUFFIXES)}", metavar="FILE"
    )


def check_out(path: str | Path) -> None:
    """Raises ConfigError unless the file name ends in one of OUT_SUFFIXES."""
    if Path(path).suffix.lower() not in OUT_SUFFIXES:
        raise ConfigError(f"--out={path} should end in one of {', '.join(OUT_SUFFIXES)}")


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Converts an OSError of the wrapped code into a ConfigError that names the file."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot use {error.filename}: {error.strerror}") from error


def report(rows: Sequence[str], out: str) -> None:
    """Prints lines of text about a picture, and the name of the picture's file."""
    print(escaped("\n".join([*rows, f"written: {out}"])))


def rounded(value: float) -> str:
    """Returns the value as text: with three decimals, or with three digits if its size is below 0.1."""
    return f"{value:,.3f}" if value == 0 or abs(value) >= 0.1 else f"{value:.3g}"
