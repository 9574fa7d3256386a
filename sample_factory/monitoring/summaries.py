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
    """Keeps records in memory and appends them to a file when flushed.

    1. The file on disk always consists of whole records: a write that fails is undone.
    2. A full disk is logged once and does not end the run; the records are kept and written later.

    records: stream to which the caller writes new records.
    """

    def __init__(self, path: Path, replaces: bool = False):
        """Prepares a file, which is created with its folder by the first flush with records.
        replaces: whether the first flush replaces an existing file."""
        self.records = io.BytesIO()
        self._path = path
        self._replaces = replaces
        self._is_failing = False

    def flush(self) -> None:
        """Appends the pending records to the file; if that fails, keeps them for the next flush."""
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
    """Interface of an object that receives every summary that TensorBoard receives."""

    def write(self, policy_id: int, scalars: Mapping[str, float], env_frames: int) -> None:
        """Adds a point at x = env_frames to curves of a policy. scalars: tag -> value; not empty."""

    def flush(self) -> None:
        """Writes all points that are still in memory."""


class JsonlWriter:
    """Writes summaries to summaries.jsonl. Each line is a JSON object with policy, env_frames, time (seconds
    since 1970), and tag -> value; null stands for a value that is not finite."""

    def __init__(self, experiment_dir: Path, now: Callable[[], float] = time.time):
        self._now = now
        self._file = PendingFile(experiment_dir / "summaries.jsonl")

    def write(self, policy_id: int, scalars: Mapping[str, float], env_frames: int) -> None:
        """Adds a line about a policy. scalars: tag -> value. It is kept in memory until the next `flush`."""
        values = {tag: float(value) if math.isfinite(value) else None for tag, value in scalars.items()}
        line = {"policy": policy_id, "env_frames": env_frames, "time": self._now(), **values}
        self._file.records.write(f"{json.dumps(line)}\n".encode())

    def flush(self) -> None:
        self._file.flush()


class TensorboardWriter:
    """Writes scalars and texts for TensorBoard into one event file in `folder`, without TensorFlow and torch.
    Records are kept in memory until they are flushed; the first flush creates the folder. If the disk is
    full, records are kept for the next flush."""

    def __init__(self, folder: Path):
        self._folder = Path(folder)
        self._file: PendingFile | None = None
        self._records: Any = None

    def begin(self, x: int) -> None:
        """Marks the start of a run at position `x` of the axis; 0 for a run that resumes no other run.

        TensorBoard 2.21 hides the scalars of earlier runs beyond `x` if it is started with --load_fast=false.
        Its default reader, the data server, ignores marks: a point hides only later points of its own tag.
        """
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self._add(step=x + 1 if x else 0, session_log=SessionLog(status=SessionLog.START))

    def write(self, scalars: Mapping[str, float], x: int) -> None:
        """Adds scalars, tag -> value, at position `x` of the axis. They are kept in memory until the next
        `flush`."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        if not scalars:
            return
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._add(step=x, summary=Summary(value=values))

    def write_texts(self, texts: Mapping[str, str], x: int) -> None:
        """Adds texts, tag -> Markdown, at position `x` of the axis."""
        for tag, text in texts.items():
            self._add_bytes("text", tag, text.encode(), x)

    def write_first_page(self, x: int) -> None:
        """Adds the page of charts that TensorBoard shows under Custom Scalars. x: position on the axis."""
        from tensorboard.plugins.custom_scalar import metadata

        self._add_bytes(metadata.PLUGIN_NAME, metadata.CONFIG_SUMMARY_TAG, first_page(), x)

    def _add_bytes(self, plugin: str, tag: str, content: bytes, x: int) -> None:
        """Adds content for one of TensorBoard's plugins under a tag. x: position on the axis."""
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin))
        tensor = TensorProto(dtype=DT_STRING, string_val=[content])
        self._add(step=x, summary=Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)]))

    def flush(self) -> None:
        """Appends the pending records to the event file."""
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
    """Writes the summaries of a run: an event file for each policy, and the same values to other writers.
    Tags begin with a group: 0_aux for what people look at first, such as reward, length, FPS and lag (the
    name and most tags are v1's); len for the range of lengths; train for summaries of the learner; stats for
    statistics of components; health for counts of incidents; run for texts about the run."""

    def __init__(
        self,
        experiment_dir: Path,
        flags: MonitoringFlags,
        frames_per_x: int,
        texts: Mapping[str, str],
        now: Callable[[], float],
        others: Sequence[SummaryWriter] = (),
    ):
        """Prepares the writers.
        frames_per_x: env frames in a unit of the horizontal axis. texts: tag -> text in Markdown.
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
        """Restarts the intervals between summaries and between flushes, so that `tick` writes nothing before
        one has passed; called when the clock of the run starts."""
        interval = self._flags.experiment_summaries_interval
        self._time_to_write_early = Every(min(EARLY_INTERVAL, interval), now=self._now)
        self._time_to_write = Every(interval, now=self._now)
        self._time_to_flush = Every(self._flags.flush_summaries_interval, now=self._now)

    def tick(self, progress: RunProgress, components: ComponentStats) -> None:
        """Writes and flushes summaries if they are due; to be called often."""
        is_early = progress.seconds <= EARLY_SECONDS
        early_is_due, is_due = self._time_to_write_early(), self._time_to_write()
        if (early_is_due and progress.new_frames > 0) if is_early else is_due:
            self.write_all(progress, components)
            if is_early:
                self.flush()
        if self._time_to_flush():
            self.flush()

    def begin(self, policy_id: int, env_frames: int) -> None:
        """Marks where a policy's training starts in this run, so that points of earlier runs beyond
        `env_frames` count as invalid."""
        self._writer(policy_id).begin(env_frames // self._frames_per_x)

    def write(self, policy_id: int, scalars: Mapping[str, float], env_frames: int) -> None:
        """Adds a point at `env_frames` to a policy's curves. scalars: tag -> value."""
        if not scalars:
            return
        self._writer(policy_id).write(scalars, env_frames // self._frames_per_x)
        for other in self._others:
            other.write(policy_id, scalars, env_frames)

    def write_all(self, progress: RunProgress, components: ComponentStats) -> None:
        """Adds a point to all curves of each policy that has started, with its current values."""
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
        """Writes the texts about the run, which the constructor got, and TensorBoard's page of charts, at
        position `x` of the axis; does nothing after the first call."""
        if not self._has_pages:
            self._has_pages = True
            self._writer(0).write_texts(self._texts, x)
            self._writer(0).write_first_page(x)

    def flush(self) -> None:
        """Writes all pending summaries to disk, or to the service of a writer."""
        for writer in self._writers.values():
            writer.flush()
        for other in self._others:
            other.flush()

    def _writer(self, policy_id: int) -> TensorboardWriter:
        if policy_id not in self._writers:
            self._writers[policy_id] = TensorboardWriter(self._folder / str(policy_id))
        return self._writers[policy_id]
