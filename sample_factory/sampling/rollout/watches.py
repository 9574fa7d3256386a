"""Watches over what the envs of a rollout worker do to its process: dead simulators and leaked memory."""

import logging
import os
import threading
from collections.abc import Sequence

import numpy as np

from sample_factory.exchange.messages import Incident
from sample_factory.runtime.child_side import StopFlag
from sample_factory.runtime.cpu import private_mb
from sample_factory.sampling.rollout.guarded_env import GuardedEnv

log = logging.getLogger("sample_factory")

CHECK_SECONDS = 1.0
# Usually the next call on the env raises before this, and the env is rebuilt.
PATIENCE_SECONDS = 5.0
EXIT_CODE = 1
LEAK_MB = 200.0  # less growth than this is not reported


class SimulatorWatch(threading.Thread):
    """In a rollout worker: ends the process when a call on an env waits for a simulator that has died.

    Such a call cannot be interrupted; the supervisor replaces a rollout worker. (ViZDoom 1.3 waits without
    end if its engine dies while it holds the lock of the message queue, as one in thirty did that were killed
    at work.)
    """

    def __init__(self, envs: Sequence[GuardedEnv], stepping: np.ndarray, stopping: StopFlag):
        """stepping: [1] int, index of the env that is being called; that of envs[i] is i."""
        super().__init__(name="simulator_watch", daemon=True)
        self._envs = envs
        self._stepping = stepping
        self._stopping = stopping

    def run(self) -> None:
        """Checks all envs every CHECK_SECONDS until the worker stops."""
        gone_seconds = [0.0] * len(self._envs)
        while not self._stopping.wait(CHECK_SECONDS):
            for i, env in enumerate(self._envs):
                is_waited_for = self._stepping[0] == i and env.process_is_gone()
                gone_seconds[i] = gone_seconds[i] + CHECK_SECONDS if is_waited_for else 0.0
                if gone_seconds[i] >= PATIENCE_SECONDS:
                    log.error("%s waits for its simulator, which is gone", env.name)
                    os._exit(EXIT_CODE)


class MemoryWatch:
    """Reports each time the memory of this process has doubled."""

    def __init__(self, worker_index: int):
        self._worker_index = worker_index
        self._reference_mb: float | None = None  # at the first check, or when growth was last reported

    def check(self) -> Incident | None:
        """Returns a report if the memory has doubled since the first check or the last report."""
        now = private_mb()
        before = self._reference_mb
        if before is None:
            self._reference_mb = now
        elif now > 2 * before + LEAK_MB:
            self._reference_mb = now
            text = (
                f"worker {self._worker_index} has grown from {before:,.0f} to {now:,.0f} MB: "
                "do its envs leak?"
            )
            return Incident("memory_growth", text)
        return None
