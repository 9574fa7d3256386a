"""Log lines for people at a terminal: the time, the text, colours, wrapped at the terminal's width."""

import logging
import os
import textwrap
import time
from collections.abc import Mapping
from typing import TextIO

COLUMNS = 80  # where the terminal does not say how wide it is
MIN_COLUMNS = 40
DIM = "\x1b[2m"
BOLD = "\x1b[1m"
YELLOW = "\x1b[1;33m"
RED = "\x1b[1;31m"
RESET = "\x1b[0m"


def is_read_by_people(stream: TextIO) -> bool:
    """Returns whether a stream is a terminal, or the output of a cell in a notebook."""
    return stream.isatty() or type(stream).__module__.partition(".")[0] == "ipykernel"


def has_colours(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Returns whether a stream is a terminal that should show colours (https://no-color.org)."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def columns_of(stream: TextIO, environment: Mapping[str, str] = os.environ) -> int:
    """Returns the width of a terminal in characters; the variable COLUMNS overrides it."""
    override = environment.get("COLUMNS", "")
    if override.isdecimal() and int(override) > 0:
        return max(MIN_COLUMNS, int(override))
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:  # e.g. a stream without a file descriptor
        columns = 0
    return max(MIN_COLUMNS, columns or COLUMNS)


# logging takes subclasses only.
class TerminalFormatter(logging.Formatter):
    """Formats a record as `05:28:40  text`, for which it uses these optional attributes of the record:

    short: text instead of the message.
    bold: a part of the text that is printed in bold.
    worker: name of the process that logged it; shown with warnings and errors.

    Long lines are wrapped and indented. Lines that begin with a space are not: they are commands to copy, or
    tracebacks.
    """

    def __init__(self, stream: TextIO, worker: str = ""):
        """worker: for records without that attribute; empty in the main process."""
        super().__init__()
        self._worker = worker
        self._stream = stream

    def format(self, record: logging.LogRecord) -> str:
        attributes = vars(record)
        message = attributes.get("short") or super().format(record)
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        indent = " " * (len(clock) + 2)
        label = self._label(record.levelno, attributes.get("worker", self._worker))
        # A placeholder of the same length keeps the codes of the colours out of the computation of widths.
        lines = self._wrap(f"{indent}{label}{message}", indent)
        text = "\n".join(lines)[len(indent) + len(label) :]
        if not has_colours(self._stream):
            return f"{clock}  {label}{text}"
        bold = attributes.get("bold")
        if bold:
            text = text.replace(bold, f"{BOLD}{bold}{RESET}", 1)
        if label:
            label = f"{RED if record.levelno >= logging.ERROR else YELLOW}{label}{RESET}"
        return f"{DIM}{clock}{RESET}  {label}{text}"

    def _label(self, level: int, worker: str) -> str:
        """Returns the text before the message: the level from WARNING on, and which process it was."""
        if level < logging.WARNING:
            return ""
        origin = f"{worker}: " if worker else ""
        return f"{logging.getLevelName(level)} {origin}"

    def _wrap(self, text: str, indent: str) -> list[str]:
        first, *others = text.split("\n")
        width = columns_of(self._stream) - 1
        wrapped = _wrap_line(first, width, indent)
        for line in others:
            if line.startswith(" "):
                wrapped.append(f"{indent}{line}")
            else:
                wrapped += _wrap_line(f"{indent}{line}", width, indent)
        return wrapped


def _wrap_line(line: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [line]
