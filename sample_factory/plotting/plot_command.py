"""Arguments, tables and exit codes of the commands that draw a picture."""

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from sample_factory.config.flags import ConfigError
from sample_factory.launch.exit_codes import run_command
from sample_factory.runtime.log import escaped

OUT_SUFFIXES = (".png", ".svg", ".pdf")


def add_out(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds the option --out."""
    suffixes = ", ".join(OUT_SUFFIXES)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        default=Path(default),
        help=f"picture to write; its name ends in one of {suffixes} (default: {default})",
    )


def check_out(path: Path, flag: str = "--out") -> None:
    """Raises ConfigError unless the name ends in one of OUT_SUFFIXES."""
    if path.suffix.lower() not in OUT_SUFFIXES:
        raise ConfigError(f"{flag}={path} should end in one of {', '.join(OUT_SUFFIXES)}")


def named_number(flag: str, text: str, form: str, least: float = -math.inf) -> tuple[str, float]:
    """Returns the name and the number of NAME=NUMBER. form: describes the text, for the ConfigError."""
    name, _, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not name or not math.isfinite(value) or value < least:
        raise ConfigError(f"{flag}={text}: should be {form}")
    return name, value


def run(
    argv: Sequence[str] | None,
    parse_arguments: Callable[[Sequence[str]], argparse.Namespace],
    plot: Callable[[argparse.Namespace], list[str]],
) -> int:
    """Runs the command; returns the exit code: 0 done, 2 bad input.

    plot: writes the picture --out and returns the lines to print.
    """

    def command(given: Sequence[str]) -> None:
        arguments = parse_arguments(given)
        try:
            rows = plot(arguments)
        except OSError as error:
            raise ConfigError(f"cannot use {error.filename}: {error.strerror}") from error
        print(escaped("\n".join([*rows, f"written: {arguments.out}"])))

    return run_command(command, argv)


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
