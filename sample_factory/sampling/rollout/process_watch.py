"""Finds simulators that died while a call waits for them for ever."""

import logging
import os
import threading
from collections.abc import Sequence

import numpy as np

from sample_factory.runtime.child_side import StopFlag
from sample_factory.sampling.rollout.guarded_env import GuardedEnv

log = logging.getLogger("sample_factory")

LOOK_SECONDS = 1.0
# Usually the next call on the env raises, and the env is rebuilt.
PATIENCE_SECONDS = 5.0
EXIT_CODE = 1


class ProcessWatch(threading.Thread):
    """In a rollout worker: ends this process if the simulator of one of its envs has been gone for long.

    A call that waits for it cannot be interrupted; the supervisor replaces a rollout worker. (ViZDoom 1.3
    waits without end if its engine dies while it holds the lock of the message queue, as one in thirty did
    that were killed at work.)
    """

    def __init__(self, envs: Sequence[GuardedEnv], stepping: np.ndarray, stopping: StopFlag):
        """stepping: [1] int, the number of the env that is being called; that of envs[i] is i."""
        super().__init__(name="process_watch", daemon=True)
        self._envs, self._stepping, self._stopping = envs, stepping, stopping

    def run(self) -> None:
        gone_for = [0.0] * len(self._envs)
        while not self._stopping.wait(LOOK_SECONDS):
            for i, env in enumerate(self._envs):
                is_waited_for = self._stepping[0] == i and env.process_is_gone()
                gone_for[i] = gone_for[i] + LOOK_SECONDS if is_waited_for else 0.0
                if gone_for[i] >= PATIENCE_SECONDS:
                    log.error("%s waits for its simulator, which is gone", env.name)
                    os._exit(EXIT_CODE)
