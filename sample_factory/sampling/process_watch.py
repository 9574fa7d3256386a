"""Finds simulators that died while a call waits for them for ever."""

import logging
import os
import threading
from typing import Sequence

from sample_factory.runtime.child_side import StopFlag
from sample_factory.sampling.guarded_env import GuardedEnv

log = logging.getLogger("sample_factory")

LOOK_SECONDS = 1.0
# Usually the next call on the env raises, and the env is rebuilt.
PATIENCE_SECONDS = 5.0
EXIT_CODE = 1


class ProcessWatch(threading.Thread):
    """In a rollout worker: ends this process if the simulator of one of its envs has been gone for long.

    A call that waits for it cannot be interrupted; the supervisor replaces this worker. (An engine of ViZDoom
    1.3 that is killed in the middle of `new_episode` is waited for without end.)
    """

    def __init__(self, envs: Sequence[GuardedEnv], stopping: StopFlag):
        super().__init__(name="process_watch", daemon=True)
        self._envs, self._stopping = envs, stopping

    def run(self) -> None:
        gone_for = [0.0] * len(self._envs)
        while not self._stopping.wait(LOOK_SECONDS):
            for i, env in enumerate(self._envs):
                gone_for[i] = gone_for[i] + LOOK_SECONDS if env.process_is_gone() else 0.0
                if gone_for[i] >= PATIENCE_SECONDS:
                    log.error("%s: its simulator is gone, and the env has not noticed", env.name)
                    os._exit(EXIT_CODE)
