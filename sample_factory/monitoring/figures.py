"""Figures of a run for programs: JSON lines in the file that --figures_file names.

One object a line, appended when all workers are ready, with the first frames, every --status_interval, and at
the end.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from sample_factory.exchange.messages import LearnerReady, Report, TrainReport
from sample_factory.monitoring.monitor import Monitor
from sample_factory.monitoring.subscriber import Subscriber
from sample_factory.monitoring.summaries import PendingFile
from sample_factory.runtime.clock import Every


class PolicyCounters(NamedTuple):
    """Counts what one policy was trained on in this run. time: when the counts were reached, in seconds since
    1970."""

    env_frames: int
    samples: int
    time: float


class Figures(NamedTuple):
    """Contains one line of a --figures_file, a JSON object with these fields.

    time: seconds since 1970 at which the line was written.
    seconds: duration of this run, since all workers were ready or the first samples were trained on.
    env_frames: env frames of this run, of all policies (frameskip counted, earlier runs not included).
    samples: samples trained on in this run, of all policies; 0 if the command `dummy_sampler` wrote the line.
    fps: object, length of a window in seconds -> env frames per second over that window, as far as known.
    policies: a list by policy of objects with env_frames and samples of this run and `time`, the seconds
        since 1970 at which these counters were reached. They grow by whole iterations of training, so a rate
        between two lines is exact if it is computed with these times. Empty for `dummy_sampler`.
    components: object, "rollout_worker", "policy_worker" or "learner" -> object, name -> mean over the
        processes of that kind and the last 20 s: shares of their time, 0..1, "wait" among them; memory_mb;
        avg_batch_size.
    learners: a list of objects with policy_id, device, precision and num_parameters.
    agents: number of agents in all envs; 0 for `dummy_sampler`.
    """

    time: float
    seconds: float
    env_frames: int
    samples: int
    fps: Mapping[str, float]
    policies: tuple[PolicyCounters, ...]
    components: Mapping[str, Mapping[str, float]]
    learners: tuple[LearnerReady, ...]
    agents: int = 0


def new_figures_file(path: str) -> PendingFile:
    """Opens a --figures_file for `write_figures`; the first line that is written replaces an existing
    file."""
    return PendingFile(Path(path).expanduser(), replaces=True)


def write_figures(file: PendingFile, figures: Figures) -> None:
    """Appends the figures to the file as one line of JSON. A reader may see a part of the line while it is
    written."""
    fields = figures._asdict()
    for name in ("policies", "learners"):
        fields[name] = [item._asdict() for item in fields[name]]
    file.records.write(f"{json.dumps(fields)}\n".encode())
    file.flush()


def read_figures(path: Path) -> list[Figures]:
    """Reads the complete lines of a --figures_file, oldest first; empty if there is no such file."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().split("\n")[:-1]:  # the last line is empty, or not complete yet
        fields = json.loads(line)
        fields["policies"] = tuple(PolicyCounters(**item) for item in fields["policies"])
        fields["learners"] = tuple(LearnerReady(**item) for item in fields["learners"])
        found.append(Figures(**fields))
    return found


class FiguresWriter(Subscriber):
    """In the main process: writes the --figures_file of a run."""

    def __init__(
        self,
        path: str,
        status_interval: float,
        monitor: Monitor,
        now: Callable[[], float] = time.time,
    ):
        """Opens the file. status_interval: seconds between lines. monitor: must handle each report before
        this subscriber does."""
        self._file = new_figures_file(path)
        self._monitor = monitor
        self._now = now
        self._status_interval = status_interval
        self._counted_at = [0.0] * len(monitor.policies)
        self._learners: dict[int, LearnerReady] = {}
        self._time_to_write = Every(status_interval, now=now)
        self._started: float | None = None
        self._has_frames = False

    def handle(self, report: Report) -> None:
        match report:
            case TrainReport():
                self._counted_at[report.policy_id] = self._now()
            case LearnerReady():
                self._learners[report.policy_id] = report

    def tick(self) -> None:
        """Writes a line at the start, when the first frames are counted, and every `status_interval`
        seconds."""
        if self._started is None:
            self._started = self._now()
            self._write()
            self._time_to_write = Every(self._status_interval, now=self._now)
        has_frames = self._monitor.progress.new_frames > 0
        if (has_frames and not self._has_frames) or self._time_to_write():
            self._has_frames = has_frames
            self._write()

    def close(self) -> None:
        """Writes the last line, with the final figures of the run."""
        self._write()

    def _write(self) -> None:
        now = self._now()
        progress = self._monitor.progress
        seconds = 0.0 if self._started is None else now - self._started
        # A window that the run has not covered yet would repeat the rate of the shortest one.
        rates = {window: rate for window, rate in progress.fps().items() if window <= seconds}
        counters = (
            PolicyCounters(policy.new_frames, policy.new_samples, counted_at)
            for policy, counted_at in zip(progress.policies, self._counted_at)
        )
        figures = Figures(
            time=now,
            seconds=seconds,
            env_frames=progress.new_frames,
            samples=sum(policy.new_samples for policy in progress.policies),
            fps={f"{window:g}": rate for window, rate in rates.items() if math.isfinite(rate)},
            policies=tuple(counters),
            components=self._monitor.components.means(),
            learners=tuple(self._learners.values()),
            agents=progress.num_agents,
        )
        write_figures(self._file, figures)
