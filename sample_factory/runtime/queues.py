"""The interface of all queues of small messages, and the queue between threads of one process."""

import collections
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

# Every Linux kernel takes a packet of this size at its default limits (net.core.wmem_max = 212,992 bytes).
MAX_MESSAGE_BYTES = 200_000
# A `put` that waits at a full queue asks `keep_waiting` this often.
POLL_SECONDS = 0.1


def always() -> bool:
    return True


class Queue(Protocol):
    """A first-in first-out queue for any number of writing and reading processes and threads. Promises:

    1. A message is delivered exactly once, whole, to one reader; none is dropped. A full queue makes the
       writer wait.
    2. A reader or writer that dies, even by kill -9 in the middle of a call, never blocks the others.
       (Not kept by FasterFifoQueue.)
    3. Nothing is left on the machine once the last process that holds the queue has ended.
    4. It can be pickled only while a child is being started; anywhere else that is a RuntimeError.

    README.md in this folder compares the transports that connect processes.
    """

    def put(self, message: Any, keep_waiting: Callable[[], bool] = always) -> bool:
        """Sends one message, waiting while the queue is full. Returns whether the message was sent.

        keep_waiting: called ten times a second while the queue is full. Once it returns False, the message is
        not sent.

        Raises MessageTooLarge for a message of more than MAX_MESSAGE_BYTES once pickled.
        """

    def get_many(self, timeout: float, max_messages: int = 1000) -> list[Any]:
        """Returns the messages in the queue; if there are none, those that arrive first within `timeout`
        seconds, or an empty list. timeout=0 never waits. With fewer than `max_messages`, the queue has been
        read to its end.
        """

    def close(self) -> None:
        """Releases the resources that the queue holds in this process."""


class MessageTooLarge(ValueError):
    """A message can never fit into a queue."""


def check_size(data: bytes, max_bytes: int) -> None:
    """Raises MessageTooLarge for a pickled message that can never fit into a queue."""
    if len(data) > max_bytes:
        raise does_not_fit(data, max_bytes)


def does_not_fit(data: bytes, max_bytes: int) -> MessageTooLarge:
    """Returns the error for a pickled message that can never fit into a queue."""
    return MessageTooLarge(
        f"a message of {len(data):,} bytes does not fit into this queue (limit {max_bytes:,}); "
        "put the data into SharedArrays and send their address"
    )


class LocalQueue:
    """A `Queue` within one process, for serial mode and for tests with threads. Promises:

    1. A message is delivered exactly once; none is dropped. Messages are not copied.
    2. With waits=False nothing ever blocks, because in serial mode nothing else could end the wait: reading
       an empty queue returns an empty list at once, and writing to a full one raises queue.Full.
    """

    def __init__(self, max_messages: int = sys.maxsize, waits: bool = True):
        self._messages: collections.deque[Any] = collections.deque()
        self._max_messages = max_messages
        self._waits = waits
        self._changed = threading.Condition()

    def put(self, message: Any, keep_waiting: Callable[[], bool] = always) -> bool:
        """See Queue.put."""
        with self._changed:
            while len(self._messages) >= self._max_messages:
                if not self._waits:
                    raise queue.Full(f"{self._max_messages} messages, and nothing else can read them")
                if not keep_waiting():
                    return False
                self._changed.wait(POLL_SECONDS)
            self._messages.append(message)
            self._changed.notify_all()
            return True

    def get_many(self, timeout: float, max_messages: int = 1000) -> list[Any]:
        """See Queue.get_many."""
        with self._changed:
            if self._waits:
                self._changed.wait_for(lambda: self._messages, timeout)
            messages = [self._messages.popleft() for _ in range(min(max_messages, len(self._messages)))]
            self._changed.notify_all()
            return messages

    def close(self) -> None:
        """See Queue.close. Does nothing."""
