"""Writes scalars and texts for TensorBoard, without TensorFlow and without torch."""

import itertools
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sample_factory.monitoring.pending_file import PendingFile

_file_numbers = itertools.count()


class TensorboardWriter:
    """Writes one event file in `folder`, which is created with the first scalars.

    It keeps the promises of a PendingFile.
    """

    def __init__(self, folder: Path):
        self._folder = Path(folder)
        self._path: Path | None = None
        self._file = PendingFile()
        self._records: Any = None

    def begin(self, x: int) -> None:
        """Marks the start of a run that resumes at position `x`: TensorBoard hides scalars beyond it."""
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self._add(step=x + 1, session_log=SessionLog(status=SessionLog.START))

    def write(self, scalars: Mapping[str, float], x: int) -> None:
        """Adds tag -> value at position `x` of the axis. Kept in memory until the next `flush`."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        if not scalars:
            return
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._add(step=x, summary=Summary(value=values))

    def write_texts(self, texts: Mapping[str, str], x: int) -> None:
        """Adds tag -> text (Markdown) at position `x`."""
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        tensors = {
            tag: TensorProto(dtype=DT_STRING, string_val=[text.encode()]) for tag, text in texts.items()
        }
        values = [Summary.Value(tag=tag, metadata=metadata, tensor=tensor) for tag, tensor in tensors.items()]
        self._add(step=x, summary=Summary(value=values))

    def flush(self) -> None:
        """Appends the pending scalars to the file."""
        if self._path is not None:
            self._file.flush(self._path)

    def _add(self, **content: Any) -> None:
        # Not at the top of the file: these imports take 0.2 s.
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        if self._path is None:
            name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
            self._path = self._folder / f"{name}.{next(_file_numbers)}"
            self._records = RecordWriter(self._file.records)
            self._add(file_version="brain.Event:2")
        self._records.write(Event(wall_time=time.time(), **content).SerializeToString())
