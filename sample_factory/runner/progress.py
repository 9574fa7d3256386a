"""How far the runs of a grid have come, from the files that they write."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.config.flags import NEVER
from sample_factory.monitoring.policy_progress import TAGS

FRAMES = "0_aux/env_frames"
FPS = "0_aux/_fps"
EVENT_FILES = ".summary/0/*tfevents*"


class Progress(NamedTuple):
    """The latest figures of a run, of policy 0. reward: mean of the last episodes. nan: not known.

    target: of --train_for_env_steps; None without a limit.
    """

    env_frames: int = 0
    target: int | None = None
    fps: float = math.nan
    reward: float = math.nan
    env: str = ""


class ProgressReader:
    """Follows the experiment in a folder; reads only what was added since the last call."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._loaders: dict[Path, Any] = {}
        self._latest: dict[str, float] = {}
        self._flags: Mapping[str, Any] = {}

    def read(self) -> Progress:
        for file in sorted(self._folder.glob(EVENT_FILES)):  # a name has the time of its start
            self._read_events(file)
        if not self._flags:
            self._flags = _read_flags(self._folder / "cfg.json")
        target = int(self._flags.get("train_for_env_steps", NEVER))
        return Progress(
            int(self._latest.get(FRAMES, 0)),
            None if target >= NEVER else target,
            self._latest.get(FPS, math.nan),
            self._latest.get(TAGS["reward"], math.nan),
            str(self._flags.get("env", "")),
        )

    def _read_events(self, file: Path) -> None:
        # Not at the top of the module: it takes 0.2 s, which an error about a flag should not.
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

        if file not in self._loaders:
            self._loaders[file] = LegacyEventFileLoader(str(file))
        for event in self._loaders[file].Load():
            for scalar in event.summary.value:
                if scalar.tag in (FRAMES, FPS, TAGS["reward"]):
                    self._latest[scalar.tag] = scalar.simple_value


def _read_flags(path: Path) -> Mapping[str, Any]:
    """Returns the flags of an experiment; none if there is no file yet."""
    try:
        flags: Mapping[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return flags
