"""One logger for the whole run: every process writes to the console and to one file."""

import logging
import os
import sys
from typing import NamedTuple

log = logging.getLogger("sample_factory")

LINE = "[%(asctime)s][%(worker)s] %(levelname)s %(message)s"
COLOURS = {logging.DEBUG: "\x1b[2m", logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m"}
RESET = "\x1b[0m"


class LogSettings(NamedTuple):
    """Where a process logs to; travels to the children."""

    log_file: str | None = None
    level: int = logging.INFO


_settings = LogSettings()


def setup_logging(process_name: str, log_file: str | None = None, level: int | str = logging.INFO) -> None:
    """Sets the logger up for this process; a second call replaces the first.

    process_name: stands in each line.
    log_file: appended to by all processes of the run; its folder is made. None: console only.
    level: a number or a name of the logging module.
    """
    global _settings
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
    log.setLevel(level)
    log.propagate = False
    # Not stdout: what a program prints there must stay usable by a pipe.
    log.addHandler(logging.StreamHandler(sys.stderr))
    if log_file is not None:
        log.addHandler(SharedFileHandler(log_file))
    for handler in log.handlers:
        coloured = isinstance(handler, logging.StreamHandler) and sys.stderr.isatty()
        handler.setFormatter(ColourFormatter(process_name) if coloured else plain_formatter(process_name))
    _settings = LogSettings(None if log_file is None else os.path.abspath(log_file), log.level)


def current_settings() -> LogSettings:
    """In the parent: what its children should be set up with."""
    return _settings


def plain_formatter(process_name: str) -> logging.Formatter:
    return logging.Formatter(LINE, defaults={"worker": process_name})


# logging takes subclasses only.
class ColourFormatter(logging.Formatter):
    """Paints a line by its level."""

    def __init__(self, process_name: str):
        super().__init__(LINE, defaults={"worker": process_name})

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        colour = COLOURS.get(record.levelno)
        return f"{colour}{line}{RESET}" if colour else line


class SharedFileHandler(logging.Handler):
    """Appends to a file that other processes append to as well.

    A record is a single write to a descriptor in append mode, so records of several processes never mix.
    """

    def __init__(self, path: str):
        super().__init__()
        path = os.path.abspath(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            os.write(self._fd, (self.format(record) + "\n").encode(errors="backslashreplace"))
        except Exception:  # a full disk or a record that cannot be formatted must not end a training run
            self.handleError(record)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        super().close()
