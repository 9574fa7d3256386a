"""The queue of the package faster-fifo, as an alternative to SocketQueue (extra "faster-fifo")."""

import pickle
import queue
import time
from collections.abc import Callable
from multiprocessing import context
from multiprocessing.reduction import ForkingPickler
from typing import Any

import faster_fifo

from sample_factory.runtime.queues import MAX_MESSAGE_BYTES, POLL_SECONDS, always, check_size

LENGTH_BYTES = 8  # faster-fifo stores the length of each message before it


class FasterFifoQueue:
    """A `Queue` over a ring buffer in shared memory under a mutex. Keeps promises 1, 3 and 4 of `Queue`, but
    not promise 2: the mutex and the condition variables of faster-fifo are not robust. A process that is
    killed inside a call can leave them in a state in which every later call of any process waits forever.

    max_bytes: size of the ring buffer, which is allocated at once. It lies in a file without a name in
    /dev/shm, where a container may have only 64 MB; hence it is smaller than the package's default of 1 MB.
    """

    def __init__(self, max_bytes: int = 500_000):
        """In the parent: creates the queue."""
        self._open(faster_fifo.Queue(max_bytes, loads=pickle.loads, dumps=_unchanged))

    def _open(self, fifo: Any) -> None:
        self._fifo = fifo
        self._max_message_bytes = min(MAX_MESSAGE_BYTES, fifo.max_size_bytes - LENGTH_BYTES)

    def put(self, message: Any, keep_waiting: Callable[[], bool] = always) -> bool:
        """See Queue.put. Raises MessageTooLarge also for a message that is larger than max_bytes."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        check_size(data, self._max_message_bytes)
        timeout = 0.0
        while True:
            try:
                self._fifo.put_many([data], timeout > 0, timeout)
                return True
            except queue.Full:
                if not keep_waiting():
                    return False
            timeout = POLL_SECONDS

    def get_many(self, timeout: float, max_messages: int = 1000) -> list[Any]:
        """See Queue.get_many."""
        if self._fifo.message_buffer.val is None:  # one for each thread
            # Large enough for all messages: faster-fifo returns only those that fit.
            self._fifo.reallocate_msg_buffer(self._fifo.max_size_bytes)
        deadline = time.monotonic() + timeout
        remaining = timeout
        while True:
            try:
                # In short waits: a writer wakes up one reader only, which may be one that was killed.
                wait = min(remaining, POLL_SECONDS)
                messages: list[Any] = self._fifo.get_many(wait > 0, max(0.0, wait), max_messages)
                return messages
            except queue.Empty:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return []

    def close(self) -> None:
        """See Queue.close. Its memory is released once no process refers to the queue."""

    def __reduce__(self) -> Any:
        context.assert_spawning(self)
        # Only ForkingPickler can hand over multiprocessing's shared memory.
        return _attach, (bytes(ForkingPickler.dumps(self._fifo)),)


def _attach(pickled: bytes) -> FasterFifoQueue:
    """In the child: maps the parent's queue."""
    queue_here = FasterFifoQueue.__new__(FasterFifoQueue)
    queue_here._open(pickle.loads(pickled))
    return queue_here


def _unchanged(data: bytes) -> bytes:
    return data
