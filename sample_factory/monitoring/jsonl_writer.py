"""Writes the summaries of a run as JSON lines, for pandas and other programs."""

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from sample_factory.monitoring.pending_file import PendingFile

NAME = "summaries.jsonl"  # in the experiment folder


class JsonlWriter:
    """Appends a JSON object a line to one file: policy, env_frames, time (seconds since 1970), and the
    summaries by tag. A value that is not finite is null."""

    def __init__(self, experiment_dir: Path, now: Callable[[], float] = time.time):
        self._path = experiment_dir / NAME
        self._now = now
        self._file = PendingFile()

    def write(self, policy_id: int, scalars: Mapping[str, float], env_frames: int) -> None:
        """Adds tag -> value of a policy at its env frames. Kept in memory until the next `flush`."""
        values = {tag: float(value) if math.isfinite(value) else None for tag, value in scalars.items()}
        line = {"policy": policy_id, "env_frames": env_frames, "time": self._now(), **values}
        self._file.records.write(f"{json.dumps(line)}\n".encode())

    def flush(self) -> None:
        """Appends the pending lines to the file."""
        self._file.flush(self._path)
