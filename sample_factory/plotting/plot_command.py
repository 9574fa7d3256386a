"""What the commands that draw a picture have in common."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sample_factory.config.config import ConfigError, nearest

OUT_SUFFIXES = (".png", ".svg", ".pdf")


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """parser: with an option --out. Raises ConfigError. Prints the help and exits with 0 on --help."""
    try:
        arguments, rest = parser.parse_known_intermixed_args(list(argv))
    except argparse.ArgumentError as error:
        raise ConfigError(str(error)) from None
    if rest:
        known = [option for action in parser._actions for option in action.option_strings]
        raise ConfigError(f"unknown flag {rest[0]}{nearest(rest[0].split('=')[0], known)}")
    out: Path = arguments.out
    if out.suffix.lower() not in OUT_SUFFIXES:
        raise ConfigError(f"--out={out} should end in one of {', '.join(OUT_SUFFIXES)}")
    return arguments


def run(
    argv: Sequence[str] | None,
    parse_arguments: Callable[[Sequence[str]], argparse.Namespace],
    plot: Callable[[argparse.Namespace], list[str]],
) -> int:
    """Returns the exit code: 0 done, 2 bad input. plot: writes --out and returns what is to be printed."""
    try:
        arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
        rows = plot(arguments)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: cannot use {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    print("\n".join([*rows, f"written: {arguments.out}"]))
    return 0


def aligned(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Lines of a table. sides: by column, '<' for words, '>' for numbers; the last one holds for the rest."""
    sides = sides.ljust(len(rows[0]), sides[-1])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths)) for row in rows
    ]


def rounded(value: float) -> str:
    """With the digits that matter."""
    return f"{value:,.3f}" if value == 0 or abs(value) >= 0.1 else f"{value:.3g}"
