"""The lines about workers that are starting."""

import logging
import time
from collections.abc import Callable, Sequence

from sample_factory.runtime.local_ray import Cluster

log = logging.getLogger("sample_factory")

FIRST_WAIT_SECONDS = 5.0  # before the first line about workers that are not ready yet
NEXT_WAIT_SECONDS = 15.0  # after the start; each later line comes after twice the time
# Role -> what a run waits for; of several, the first one is named.
STARTING = {
    "rollout_worker": "the envs are starting",
    "sampler": "the envs are starting",
    "policy_worker": "the policies are starting",
    "learner": "the learner is starting",
    "ingest": "Ray is starting",
}


class StartLog:
    """In the main process: logs from time to time which workers are not ready, and once that all are."""

    def __init__(self, num_processes: int, starting: Callable[[], Sequence[str]], ray: Cluster | None):
        """starting: returns the roles of the workers that are not ready. ray: the cluster of --num_nodes."""
        self._num_processes = num_processes
        self._starting = starting
        self._ray = ray
        self._began = time.monotonic()
        self._next_line = FIRST_WAIT_SECONDS  # after the start
        self._is_over = False

    def write(self) -> None:
        """Logs what is due. To be called about every second."""
        if self._is_over:
            return
        seconds = time.monotonic() - self._began
        starting = self._starting()
        if not starting:
            self._is_over = True
            log.info("All processes are ready after %.1f s", seconds)
        elif seconds >= self._next_line:
            self._next_line = max(NEXT_WAIT_SECONDS, 2 * self._next_line)
            log.info(starting_text(self._num_processes, starting, seconds, self._ray))


def starting_text(
    num_processes: int, starting: Sequence[str], seconds: float, ray: Cluster | None = None
) -> str:
    """Returns a text that fits into a line of 76 characters with the time before it, except with `ray`.

    starting: roles of the processes that are not ready yet. seconds: since the start.
    """
    num_ready = num_processes - len(starting)
    waiting = next(text for role, text in STARTING.items() if role in starting)
    if waiting == STARTING["ingest"] and ray is not None:
        waiting = f"waiting for Ray at {ray.address}"
    return f"{num_ready} of {num_processes} processes ready after {seconds:.0f} s; {waiting}"
