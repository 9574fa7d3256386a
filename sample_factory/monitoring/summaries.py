"""The summaries of a run: TensorBoard files, JSON lines, and other writers that receive the same values."""

import io
import itertools
import json
import math
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from sample_factory.config.experiment_folder import append_whole
from sample_factory.config.monitoring_flags import MonitoringFlags
from sample_factory.monitoring.component_stats import ComponentStats
from sample_factory.monitoring.run_progress import STEADY_SECONDS, RunProgress
from sample_factory.monitoring.tensorboard_pages import first_page, legend_text
from sample_factory.runtime.clock import Every
from sample_factory.runtime.cpu import rss_mb
from sample_factory.runtime.log import log

# In the first minutes people wait for curves, so summaries are written and flushed more often.
EARLY_SECONDS = 120.0
EARLY_INTERVAL = 5.0

_file_numbers = itertools.count()  # TensorBoard reads files of the same second in the order of their names


class PendingFile:
    """Keeps records in memory and appends them to a file. Promises:

    1. The file on disk always consists of whole records: a write that fails is undone.
    2. A full disk is logged once and does not end the run; the records are kept and written later.

    records: where new records are added.
    """

    def __init__(self, path: Path, replaces: bool = False):
        """path: file to create, with its folder, if missing. replaces: whether the first flush empties the
        file."""
        self.records = io.BytesIO()
        self._path = path
        self._replaces = replaces
        self._is_failing = False

    def flush(self) -> None:
        """Appends the records to the file."""
        data = self.records.getvalue()
        if not data:
            return
        try:
            if self._replaces:
                self._path.unlink(missing_ok=True)
            append_whole(self._path, data)
        except OSError as error:
            if not self._is_failing:
                log.error("COULD NOT WRITE %s: %s. The run continues; tried again later", self._path, error)
            self._is_failing = True
            return
        self._is_failing = self._replaces = False
        self.records.seek(0)
        self.records.truncate()


class SummaryWriter(Protocol):
    """Receives every summary that TensorBoard receives."""

    def write(self, policy_id: int, scalars: Mapping[str, float], env_frames: int) -> None:
        """Adds a point at env_frames to curves of a policy. scalars: tag -> value; at least one."""

    def flush(self) -> None:
        """Writes what is kept in memory."""


class JsonlWriter:
    """Appends lines to summaries.jsonl, each a JSON object with policy, env_frames, time (seconds since
    1970), and the summaries by tag. A value that is not finite is null."""

    def __init__(self, experiment_dir: Path, now: Callable[[], float] = time.time):
        self._now = now
        self._file = PendingFile(experiment_dir / "summaries.jsonl")

    def write(self, policy_id: int, scalars: Mapping[str, float], env_frames: int) -> None:
        """Adds a line about a policy. scalars: tag -> value. Kept in memory until the next `flush`."""
        values = {tag: float(value) if math.isfinite(value) else None for tag, value in scalars.items()}
        line = {"policy": policy_id, "env_frames": env_frames, "time": self._now(), **values}
        self._file.records.write(f"{json.dumps(line)}\n".encode())

    def flush(self) -> None:
        self._file.flush()


class TensorboardWriter:
    """Writes scalars and texts for TensorBoard, without TensorFlow and without torch, into one event file in
    `folder`, which is created with the first scalars. Keeps the promises of a PendingFile."""

    def __init__(self, folder: Path):
        self._folder = Path(folder)
        self._file: PendingFile | None = None
        self._records: Any = None

    def begin(self, x: int) -> None:
        """Marks the start of a run at position `x`, 0 if it resumes none: scalars of earlier runs beyond it
        are no longer valid.

        TensorBoard 2.21 hides them from the second mark on, if it is started with --load_fast=false. Its
        default reader, the data server, ignores marks: a point hides only later points of its own tag.
        """
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self._add(step=x + 1 if x else 0, session_log=SessionLog(status=SessionLog.START))

    def write(self, scalars: Mapping[str, float], x: int) -> None:
        """Adds tag -> value at position `x` of the axis. Kept in memory until the next `flush`."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        if not scalars:
            return
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._add(step=x, summary=Summary(value=values))

    def write_texts(self, texts: Mapping[str, str], x: int) -> None:
        """Adds tag -> text (Markdown) at position `x`."""
        for tag, text in texts.items():
            self._add_bytes("text", tag, text.encode(), x)

    def write_first_page(self, x: int) -> None:
        """Writes the page of charts that TensorBoard shows under Custom Scalars."""
        from tensorboard.plugins.custom_scalar import metadata

        self._add_bytes(metadata.PLUGIN_NAME, metadata.CONFIG_SUMMARY_TAG, first_page(), x)

    def _add_bytes(self, plugin: str, tag: str, content: bytes, x: int) -> None:
        """Adds content that a plugin of TensorBoard shows under a tag. x: position on the axis."""
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin))
        tensor = TensorProto(dtype=DT_STRING, string_val=[content])
        self._add(step=x, summary=Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)]))

    def flush(self) -> None:
        """Appends the pending scalars to the file."""
        if self._file is not None:
            self._file.flush()

    def _add(self, **content: Any) -> None:
        # Not at the top of the file: these imports take 0.2 s.
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        if self._file is None:
            name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
            self._file = PendingFile(self._folder / f"{name}.{next(_file_numbers):06d}")
            self._records = RecordWriter(self._file.records)
            self._add(file_version="brain.Event:2")
        self._records.write(Event(wall_time=time.time(), **content).SerializeToString())


class Summaries:
    """Writes one event file per policy, and the same summaries to other writers.

    Tags begin with a group: 0_aux for what people look at first, such as reward, length, FPS and lag (the
    name and most tags are v1's); len for the range of lengths; train for summaries of the learner; stats for
    those of components; health for counts of incidents; run for texts about the run.
    """

    def __init__(
        self,
        experiment_dir: Path,
        flags: MonitoringFlags,
        frames_per_x: int,
        texts: Mapping[str, str],
        now: Callable[[], float],
        others: Sequence[SummaryWriter] = (),
    ):
        """frames_per_x: env frames in a unit of the horizontal axis. texts: tag -> text in Markdown.
        others: writers beside TensorBoard's."""
        self._flags = flags
        self._frames_per_x = frames_per_x
        self._texts = {"run/legend": legend_text(), **texts}
        self._has_pages = False
        self._now = now
        self._others = others
        self._folder = experiment_dir / ".summary"  # as in v1
        self._writers: dict[int, TensorboardWriter] = {}
        self.start_timers()

    def start_timers(self) -> None:
        """Starts all intervals anew, so that nothing is due yet."""
        interval = self._flags.experiment_summaries_interval
        self._time_to_write_early = Every(min(EARLY_INTERVAL, interval), now=self._now)
        self._time_to_write = Every(interval, now=self._now)
        self._time_to_flush = Every(self._flags.flush_summaries_interval, now=self._now)

    def tick(self, progress: RunProgress, components: ComponentStats) -> None:
        """Writes the summaries that are due."""
        is_early = progress.seconds <= EARLY_SECONDS
        early_is_due, is_due = self._time_to_write_early(), self._time_to_write()
        if (early_is_due and progress.new_frames > 0) if is_early else is_due:
            self.write_all(progress, components)
            if is_early:
                self.flush()
        if self._time_to_flush():
            self.flush()

    def begin(self, policy_id: int, env_frames: int) -> None:
        """Marks the start of a run of a policy, see `TensorboardWriter.begin`."""
        self._writer(policy_id).begin(env_frames // self._frames_per_x)

    def write(self, policy_id: int, scalars: Mapping[str, float], env_frames: int) -> None:
        """Adds tag -> value to the curves of a policy, at this number of env frames."""
        if not scalars:
            return
        self._writer(policy_id).write(scalars, env_frames // self._frames_per_x)
        for other in self._others:
            other.write(policy_id, scalars, env_frames)

    def write_all(self, progress: RunProgress, components: ComponentStats) -> None:
        """Adds the current values of all policies that have started."""
        for policy_id, policy in enumerate(progress.policies):
            if not policy.has_started:
                continue
            scalars = {
                "0_aux/_sample_throughput": progress.samples_per_second(policy_id),
                "0_aux/env_frames": policy.env_frames,
                **policy.episode_summaries(),
                **components.summaries(policy_id),
            }
            if policy.lag is not None:
                scalars["0_aux/policy_lag"] = policy.lag
            if policy_id == 0:  # as in v1, values of the whole run are written for policy 0
                scalars["0_aux/_fps"] = progress.fps()[STEADY_SECONDS]
                scalars["stats/master_process_memory_mb"] = rss_mb()
                self._write_pages(policy.env_frames // self._frames_per_x)
            finite = {tag: value for tag, value in scalars.items() if math.isfinite(value)}
            self.write(policy_id, finite, policy.env_frames)

    def _write_pages(self, x: int) -> None:
        """Writes the texts and the page of charts; once, with the first summaries."""
        if not self._has_pages:
            self._has_pages = True
            self._writer(0).write_texts(self._texts, x)
            self._writer(0).write_first_page(x)

    def flush(self) -> None:
        """Appends pending summaries to the files of all writers."""
        for writer in self._writers.values():
            writer.flush()
        for other in self._others:
            other.flush()

    def _writer(self, policy_id: int) -> TensorboardWriter:
        if policy_id not in self._writers:
            self._writers[policy_id] = TensorboardWriter(self._folder / str(policy_id))
        return self._writers[policy_id]
