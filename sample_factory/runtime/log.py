"""One logger for the whole run: every process writes to the console and to one file."""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

log = logging.getLogger("sample_factory")

LINE = "[%(asctime)s][%(worker)s] %(levelname)s %(message)s"
COLOURS = {logging.DEBUG: "\x1b[2m", logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m"}
RESET = "\x1b[0m"
DETAILS = "details_for_the_file"


class LogSettings(NamedTuple):
    """Where a process logs to; sent to the children."""

    log_file: str | None = None
    level: int = logging.INFO


_settings = LogSettings()


def setup_logging(process_name: str, log_file: str | None = None, level: int | str = logging.INFO) -> None:
    """Configures the logger of this process; a second call replaces the first.

    process_name: shown in each line.
    log_file: all processes of the run append to it; its folder is created. None: console only.
    level: a number or a name of the logging module.
    """
    global _settings
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
    log.setLevel(level)
    log.propagate = False
    # Not stdout, which a user may redirect to another program.
    log.addHandler(logging.StreamHandler(sys.stderr))
    file_error = _log_to_file(log_file) if log_file is not None else None
    for handler in log.handlers:
        coloured = isinstance(handler, logging.StreamHandler) and sys.stderr.isatty()
        handler.setFormatter(ColourFormatter(process_name) if coloured else plain_formatter(process_name))
    _settings = LogSettings(None if log_file is None else os.path.abspath(log_file), log.level)
    if file_error is not None:
        log.error(
            "COULD NOT WRITE %s: %s. The log is written to the console only", log_file, file_error.strerror
        )


def _log_to_file(path: str) -> OSError | None:
    """Adds a handler for the file. Returns the error if that is impossible, which must not prevent a run."""
    try:
        log.addHandler(SharedFileHandler(path))
    except OSError as error:
        return error
    return None


def current_settings() -> LogSettings:
    """In the parent: returns the settings for its children."""
    return _settings


def details(text: str) -> Mapping[str, Sequence[str]]:
    """Returns the `extra` of a log record with a text, e.g. a traceback, that is written to the file only."""
    return {DETAILS: [text.rstrip()] if text else []}


def plain_formatter(process_name: str) -> logging.Formatter:
    return logging.Formatter(LINE, defaults={"worker": process_name})


# logging takes subclasses only.
class ColourFormatter(logging.Formatter):
    """Colours a line by its level."""

    def __init__(self, process_name: str):
        super().__init__(LINE, defaults={"worker": process_name})

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        colour = COLOURS.get(record.levelno)
        return f"{colour}{line}{RESET}" if colour else line


class SharedFileHandler(logging.Handler):
    """Appends to a file that other processes append to as well.

    A record is a single write to a descriptor in append mode, so records of several processes never mix.
    After its line follow the details that only the file gets, e.g. `log.error("...", extra=details(text))`.
    """

    def __init__(self, path: str):
        super().__init__()
        self._path = os.path.abspath(path)
        self._is_failing = False
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = "\n".join([self.format(record), *vars(record).get(DETAILS, ())])
            data = (text + "\n").encode(errors="backslashreplace")
        except Exception:  # a record that cannot be formatted must not end a training run
            self.handleError(record)
            return
        try:
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
