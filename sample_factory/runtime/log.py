"""One logger for the whole run: every process writes to the console and to one file.

The file gets every record in full. On a terminal, a record may have a shorter text, or none:
`log.info("the whole text", extra={"short": "..."})`, where "" hides it. See `TerminalFormatter`.
A record with `extra={"only_on_terminals": True}` is written to no other console, and not to the file.
"""

import contextlib
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from sample_factory.runtime.terminal import TerminalFormatter, is_read_by_people

log = logging.getLogger("sample_factory")

LINE = "[%(asctime)s][%(worker)s] %(levelname)s %(message)s"
DETAILS = "details_for_the_file"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and new line
COLOUR_CODES = re.compile(r"\x1b\[[0-9;]*m")
# Names that differ between processes which log the same: "rollout_worker_3", "worker 1: env 2, agent 0".
NUMBERED = re.compile(r"\b(\w*worker|learner|env|agent|policy)([ _])\d+(_\d+)?")

ShowWarning = Callable[[str, str], None]


class LogSettings(NamedTuple):
    """Where a process logs to; sent to the children."""

    log_file: str | None = None
    level: int = logging.INFO


_settings = LogSettings()


def setup_logging(
    process_name: str,
    log_file: str | None = None,
    level: int | str = logging.INFO,
    show_warning: ShowWarning | None = None,
) -> None:
    """Configures the logger of this process; a second call replaces the first. Other handlers stay.

    process_name: shown in each line.
    log_file: all processes of the run append to it; its folder is created. None: console only.
    level: a number or a name of the logging module.
    show_warning: in a child: called with its name and the text of each warning, which is then not written to
        the console here but by the parent (`show_warning_of`), where each is shown once.
    """
    global _settings
    console = ConsoleHandler(process_name, sys.stderr, show_warning)
    for handler in log.handlers:
        if isinstance(handler, ConsoleHandler) and log_file is not None:
            console.shown |= handler.shown  # the same run continues with a file
    _remove_own_handlers()
    log.setLevel(level)
    log.propagate = False
    # Not stdout, which a user may redirect to another program.
    log.addHandler(console)
    file_error = _log_to_file(log_file, process_name) if log_file is not None else None
    _settings = LogSettings(None if log_file is None else os.path.abspath(log_file), log.level)
    if file_error is not None:
        log.error(
            "COULD NOT WRITE %s: %s. The log is written to the console only", log_file, file_error.strerror
        )


def escaped(text: str) -> str:
    """Returns a text with control characters, which could change a terminal, as escapes such as \\x1b."""
    return CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def _escape_controls(record: logging.LogRecord) -> bool:
    """A filter that keeps all records: texts in them may come from the files of other people."""
    text = record.getMessage()
    if CONTROLS.search(text):
        record.msg, record.args = escaped(text), ()
    short = vars(record).get("short")
    if short:
        vars(record)["short"] = escaped(short)
    return True


log.addFilter(_escape_controls)


def _remove_own_handlers() -> None:
    for handler in list(log.handlers):
        if isinstance(handler, (ConsoleHandler, SharedFileHandler)):
            log.removeHandler(handler)
            handler.close()


@contextlib.contextmanager
def restored_logging() -> Iterator[None]:
    """Returns a block after which this process logs as before it, and no log file is open.

    For functions that a program of a user's own calls.
    """
    global _settings
    level = log.level
    propagate = log.propagate
    settings = _settings
    try:
        yield
    finally:
        _remove_own_handlers()
        log.setLevel(level)
        log.propagate = propagate
        _settings = settings


def _log_to_file(path: str, process_name: str) -> OSError | None:
    """Adds a handler for the file. Returns the error if that is impossible, which must not prevent a run."""
    try:
        handler = SharedFileHandler(path)
    except OSError as error:
        return error
    handler.setFormatter(plain_formatter(process_name))
    log.addHandler(handler)
    return None


def current_settings() -> LogSettings:
    """In the parent: returns the settings for its children."""
    return _settings


def details(text: str) -> Mapping[str, Sequence[str]]:
    """Returns the `extra` of a log record with a text, e.g. a traceback, that is written to the file only."""
    return {DETAILS: [text.rstrip()] if text else []}


def plain_formatter(process_name: str) -> logging.Formatter:
    return logging.Formatter(LINE, defaults={"worker": process_name})


def log_python_warnings() -> None:
    """In a child: logs what libraries report by the module `warnings`, instead of printing it."""

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
    """In the parent: writes a warning of a child to the console. The child has written it to the file."""
    record = log.makeRecord(
        log.name, logging.WARNING, __file__, 0, "%s", (text,), None, extra={"worker": process_name}
    )
    consoles = [handler for handler in log.handlers if isinstance(handler, ConsoleHandler)]
    for handler in consoles:
        handler.handle(record)
    if not consoles:  # a program that has not called setup_logging
        log.handle(record)


class ConsoleHandler(logging.StreamHandler[TextIO]):
    """Writes to the console: short lines to a terminal and in a notebook, whole lines elsewhere. Promises:

    1. A warning is shown once, however many processes of the run log it.
    2. A record whose `short` is empty is not shown on a terminal.
    """

    def __init__(self, process_name: str, stream: TextIO, show_warning: ShowWarning | None = None):
        super().__init__(stream)
        self._process_name = process_name
        self._show_warning = show_warning
        self._is_terminal = is_read_by_people(stream)
        self.shown: set[str] = set()  # warnings, without the numbers of workers
        is_child = show_warning is not None
        terminal_formatter = TerminalFormatter(stream, process_name if is_child else "")
        self.setFormatter(terminal_formatter if self._is_terminal else plain_formatter(process_name))

    def emit(self, record: logging.LogRecord) -> None:
        attributes = vars(record)
        if self._is_terminal and attributes.get("short") == "":
            return
        if not self._is_terminal and attributes.get("only_on_terminals"):
            return
        if record.levelno == logging.WARNING and not self._is_first(record):
            return
        if record.levelno == logging.WARNING and self._show_warning is not None:
            origin = attributes.get("worker", self._process_name)
            self._show_warning(origin, record.getMessage())
            return
        super().emit(record)

    def _is_first(self, record: logging.LogRecord) -> bool:
        text = NUMBERED.sub(r"\1\2N", record.getMessage())
        is_first = text not in self.shown
        self.shown.add(text)
        return is_first


class SharedFileHandler(logging.Handler):
    """Appends to a file that other processes append to as well.

    A record is a single write to a descriptor in append mode, so records of several processes never mix.
    After its line follow the details that only the file gets, e.g. `log.error("...", extra=details(text))`.
    A file that was deleted is created again.
    """

    def __init__(self, path: str):
        super().__init__()
        self._path = os.path.abspath(path)
        self._is_failing = False
        self._fd = self._open()

    def _open(self) -> int:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def emit(self, record: logging.LogRecord) -> None:
        if vars(record).get("only_on_terminals"):
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
        except OSError as error:
            self._log_first(error)

    def _log_first(self, error: OSError) -> None:
        """Logs the first of consecutive errors: a full disk must neither end a run nor flood the console."""
        if self._is_failing:
            return
        self._is_failing = True  # before the message, which is passed to this handler too
        log.error(
            "COULD NOT WRITE %s: %s. Until this works again, the log is written to the console only",
            self._path,
            error.strerror,
        )

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        super().close()
