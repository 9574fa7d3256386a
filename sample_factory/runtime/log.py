"""One logger for the whole run: every process writes to the console and to one file.

A record with `extra={"on_terminals": True}` is written to terminals only, and not to the file or to other
consoles; one with False is not written to terminals.
"""

import contextlib
import logging
import os
import re
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from sample_factory.runtime.safe_files import open_descriptor

log = logging.getLogger("sample_factory")

LINE = "[%(asctime)s][%(worker)s] %(levelname)s %(message)s"
DETAILS = "details_for_the_file"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and new line
COLOUR_CODES = re.compile(r"\x1b\[[0-9;]*m")
# Names that differ between processes that log the same: "rollout_worker_3", "worker 1: env 2, agent 0".
NUMBERED = re.compile(r"\b(\w*worker|learner|env|agent|policy)([ _])\d+(_\d+)?")
DEFAULT_COLUMNS = 80  # of a terminal that does not tell its width
MIN_COLUMNS = 40
DIM = "\x1b[2m"
BOLD = "\x1b[1m"
YELLOW = "\x1b[1;33m"
RED = "\x1b[1;31m"
RESET = "\x1b[0m"

ShowWarning = Callable[[str, str], None]

_log_file: str | None = None  # absolute path


def setup_logging(
    process_name: str,
    log_file: str | None = None,
    level: int | str = logging.INFO,
    show_warning: ShowWarning | None = None,
    in_notebook: bool = False,
) -> None:
    """Configures the logger of this process; a second call replaces the first. Handlers of users stay.

    process_name: shown in each line.
    log_file: all processes of the run append to it; its folder is created. None: console only.
    level: a number or a name of the logging module.
    show_warning: in a child: called with the process name and the text of each warning. The parent writes the
        warning to the console (`show_warning_of`), once for several children that log the same.
    in_notebook: in a child: stderr is shown in a notebook, although it is a pipe.
    """
    global _log_file
    _open_closed_streams()
    console = ConsoleHandler(process_name, sys.stderr, show_warning, in_notebook)
    for handler in log.handlers:
        if isinstance(handler, ConsoleHandler) and log_file is not None:
            console.shown |= handler.shown  # the same run continues with a file
    _remove_own_handlers()
    log.setLevel(level)
    log.propagate = False
    # Not stdout, which a user may redirect to another program.
    log.addHandler(console)
    _log_file = None if log_file is None else os.path.abspath(log_file)
    if log_file is not None:
        try:
            file_handler = SharedFileHandler(log_file)
        except OSError as error:  # must not prevent a run
            text = "COULD NOT WRITE %s: %s. The log is written to the console only"
            log.error(text, log_file, error.strerror)
            return
        file_handler.setFormatter(_plain_formatter(process_name))
        log.addHandler(file_handler)


def _open_closed_streams() -> None:
    """Opens the standard streams that this program was started without (`2>&-`), on the null device.

    Otherwise the files opened next would get descriptors 0 to 2, and a child would write its messages there.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    sys.stdin = sys.stdin or os.fdopen(os.dup(fd))
    sys.stdout = sys.stdout or os.fdopen(os.dup(fd), "w")
    sys.stderr = sys.stderr or os.fdopen(os.dup(fd), "w")
    os.close(fd)


def current_settings() -> dict[str, Any]:
    """In the parent: returns the arguments with which its children set up logging, as plain Python values.
    If this program has not called setup_logging, the level of the children is INFO."""
    return {
        "log_file": _log_file,
        "log_level": log.level or logging.INFO,
        "in_notebook": _is_of_notebook(sys.stderr),
    }


def _is_of_notebook(stream: TextIO) -> bool:
    return type(stream).__module__.partition(".")[0] == "ipykernel"


@contextlib.contextmanager
def restored_logging() -> Iterator[None]:
    """Returns a block after which this process logs as before; closes a log file that was opened within it.
    For functions that a user's own program calls."""
    global _log_file
    level = log.level
    propagate = log.propagate
    log_file = _log_file
    try:
        yield
    finally:
        _remove_own_handlers()
        log.setLevel(level)
        log.propagate = propagate
        _log_file = log_file


def _remove_own_handlers() -> None:
    for handler in list(log.handlers):
        if isinstance(handler, (ConsoleHandler, SharedFileHandler)):
            log.removeHandler(handler)
            handler.close()


def escaped(text: str) -> str:
    """Returns a text with control characters, which could change a terminal, as escapes such as \\x1b."""
    return CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def _escape_controls(record: logging.LogRecord) -> bool:
    """Escapes control characters in a record, whose text may come from files that other people wrote.
    This is a logging filter: it returns True, which keeps the record."""
    text = record.getMessage()
    if CONTROLS.search(text):
        record.msg, record.args = escaped(text), ()
    return True


log.addFilter(_escape_controls)


def details(text: str) -> Mapping[str, Sequence[str]]:
    """Returns the argument `extra` of a log call that writes a text, e.g. a traceback, to the file only."""
    return {DETAILS: [text.rstrip()] if text else []}


def log_python_warnings() -> None:
    """In a child: redirects the warnings of Python's module `warnings` to the log, in place of stderr."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = COLOUR_CODES.sub("", str(message)).removeprefix("WARN: ")  # of Gymnasium
        place = os.path.join(*Path(filename).parts[-2:])
        log.warning("%s (%s, %s:%d)", text, category.__name__, place, lineno)

    warnings.showwarning = show


def show_warning_of(process_name: str, text: str) -> None:
    """In the parent: writes a child's warning to the console; the child itself writes it to the file."""
    record = log.makeRecord(
        log.name, logging.WARNING, __file__, 0, "%s", (text,), None, extra={"worker": process_name}
    )
    consoles = [handler for handler in log.handlers if isinstance(handler, ConsoleHandler)]
    for handler in consoles:
        handler.handle(record)
    if not consoles:  # a program that has not called setup_logging
        log.handle(record)


class ConsoleHandler(logging.StreamHandler[TextIO]):
    """Writes log records to the console; on a terminal or in a notebook, as TerminalFormatter formats them.
    A warning is shown once, however many processes of the run log it."""

    def __init__(
        self,
        process_name: str,
        stream: TextIO,
        show_warning: ShowWarning | None = None,
        in_notebook: bool = False,
    ):
        super().__init__(stream)
        self._process_name = process_name
        self._show_warning = show_warning
        # The output of a cell in a notebook counts as a terminal.
        self._is_terminal = in_notebook or stream.isatty() or _is_of_notebook(stream)
        self.shown: set[str] = set()  # warnings, without the numbers of workers
        is_child = show_warning is not None
        terminal_formatter = TerminalFormatter(stream, process_name if is_child else "")
        self.setFormatter(terminal_formatter if self._is_terminal else _plain_formatter(process_name))

    def emit(self, record: logging.LogRecord) -> None:
        attributes = vars(record)
        if attributes.get("on_terminals", self._is_terminal) != self._is_terminal:
            return
        if record.levelno == logging.WARNING:
            text = NUMBERED.sub(r"\1\2N", record.getMessage())
            if text in self.shown:
                return
            self.shown.add(text)
            if self._show_warning is not None:
                self._show_warning(attributes.get("worker", self._process_name), record.getMessage())
                return
        super().emit(record)


def _plain_formatter(process_name: str) -> logging.Formatter:
    return logging.Formatter(LINE, defaults={"worker": process_name})


# logging accepts only subclasses.
class TerminalFormatter(logging.Formatter):
    """Formats a record as `05:28:40  text`. Optional attributes of the record:

    bold: part of the text to print in bold.
    worker: name of the process that logged the record; shown in warnings and errors.

    Long lines are wrapped and indented, except lines that begin with a space: commands to copy, tracebacks.
    """

    def __init__(self, stream: TextIO, worker: str = ""):
        """Makes a formatter for lines shown on `stream`.
        worker: name of this process, for records without the attribute `worker`; empty in the main
            process."""
        super().__init__()
        self._worker = worker
        self._stream = stream

    def format(self, record: logging.LogRecord) -> str:
        attributes = vars(record)
        message = super().format(record)
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        indent = " " * (len(clock) + 2)
        label = ""
        if record.levelno >= logging.WARNING:
            worker = attributes.get("worker", self._worker)
            label = f"{record.levelname} {worker}: " if worker else f"{record.levelname} "
        # Wrapped with spaces in place of the clock: escape codes have no width.
        lines = self._wrap(f"{indent}{label}{message}", indent)
        text = "\n".join(lines)[len(indent) + len(label) :]
        # See https://no-color.org.
        has_colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        if not (self._stream.isatty() and has_colours):
            return f"{clock}  {label}{text}"
        bold = attributes.get("bold")
        if bold:
            text = text.replace(bold, f"{BOLD}{bold}{RESET}", 1)
        if label:
            label = f"{RED if record.levelno >= logging.ERROR else YELLOW}{label}{RESET}"
        return f"{DIM}{clock}{RESET}  {label}{text}"

    def _wrap(self, text: str, indent: str) -> list[str]:
        first, *others = text.split("\n")
        width = columns_of(self._stream) - 1
        wrapped = _wrap_line(first, width, indent)
        for line in others:
            indented = f"{indent}{line}"
            wrapped += [indented] if line.startswith(" ") else _wrap_line(indented, width, indent)
        return wrapped


def _wrap_line(line: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [line]


def columns_of(stream: TextIO) -> int:
    """Returns the width of a terminal in characters; the variable COLUMNS overrides it."""
    override = os.environ.get("COLUMNS", "")
    if override.isdecimal() and int(override) > 0:
        return max(MIN_COLUMNS, int(override))
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:  # e.g. a stream without a file descriptor
        columns = 0
    return max(MIN_COLUMNS, columns or DEFAULT_COLUMNS)


class SharedFileHandler(logging.Handler):
    """Appends to a file that other processes append to as well.

    A record is one write to a descriptor in append mode, so records of several processes never mix. The line
    of a record is followed by its details, see `details`. A file that was deleted is created again.
    """

    def __init__(self, path: str):
        super().__init__()
        self._path = os.path.abspath(path)
        self._is_failing = False
        self._fd = self._open()

    def _open(self) -> int:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        return open_descriptor(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def emit(self, record: logging.LogRecord) -> None:
        if vars(record).get("on_terminals"):
            return
        try:
            text = "\n".join([self.format(record), *vars(record).get(DETAILS, ())])
            data = (text + "\n").encode(errors="backslashreplace")
        except Exception:  # a record that cannot be formatted must not end a training run
            self.handleError(record)
            return
        try:
            if os.fstat(self._fd).st_nlink == 0:
                deleted, self._fd = self._fd, self._open()
                os.close(deleted)
            os.write(self._fd, data)
            self._is_failing = False
        except OSError as error:  # a full disk must neither end a run nor flood the console
            if not self._is_failing:
                self._is_failing = True  # before the message, which is passed to this handler too
                text = (
                    "COULD NOT WRITE %s: %s. Until this works again, the log is written to the console only"
                )
                log.error(text, self._path, error.strerror)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        super().close()
