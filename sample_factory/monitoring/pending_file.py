"""A file that grows by whole records, and that a full disk does not damage."""

import io
import logging
from pathlib import Path

from sample_factory.config.experiment_folder import append_whole

log = logging.getLogger("sample_factory")


class PendingFile:
    """Keeps records in memory and appends them to a file. Promises:

    1. The file on disk always consists of whole records: a write that fails is undone.
    2. A full disk is logged once and does not end the run; the records are kept and written later.

    records: where new records are added.
    """

    def __init__(self) -> None:
        self.records = io.BytesIO()
        self._is_failing = False

    def flush(self, path: Path) -> None:
        """Appends the records to the file, which is created with its folder."""
        data = self.records.getvalue()
        if not data:
            return
        try:
            append_whole(path, data)
        except OSError as error:
            if not self._is_failing:
                log.error(
                    "COULD NOT WRITE %s: %s. Training continues; the next flush tries again", path, error
                )
            self._is_failing = True
            return
        self._is_failing = False
        self.records.seek(0)
        self.records.truncate()
