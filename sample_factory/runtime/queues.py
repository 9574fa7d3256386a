"""Queues of small messages between processes, or within one."""

import collections
import errno
import pickle
import queue
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import context, reduction
from typing import Any

# Every Linux kernel takes a packet of this size at its default limits (net.core.wmem_max = 212,992 bytes).
MAX_MESSAGE_BYTES = 200_000
# How long a blocked `put` waits before it asks again whether it should go on.
PATIENCE_SECONDS = 0.1


def always() -> bool:
    return True


class Queue:
    """A first-in first-out queue for any number of writing and reading processes and threads. Promises:

    1. A message is delivered exactly once, whole, to one reader; none is dropped. A full queue makes the
       writer wait.
    2. A reader or writer that dies, even by kill -9 in the middle of a call, never blocks the others.
    3. Nothing is left on the machine once the last process that holds the queue is gone.
    4. It can be pickled only while a child is being started; anywhere else that is a RuntimeError.

    It is a pair of Unix sockets that keep message boundaries, so that the kernel does the locking. The
    obvious alternative, a ring buffer in shared memory under a mutex (faster-fifo), fails promise 2: with two
    readers on one queue, killing one hung every later `put` in 19 of 20 trials (glibc 2.36). Nor is it
    faster: 6.4 us for put and get in one process against 2.0 here, 74 us from process to process against 42.

    max_bytes: how much the kernel may hold. It caps this at net.core.wmem_max and counts at least 768 bytes
    per message: the usual default cap (212,992) holds some 550 small messages.
    """

    def __init__(self, max_bytes: int = 2_000_000):
        """In the parent: creates the queue."""
        kind = socket.SOCK_SEQPACKET if sys.platform == "linux" else socket.SOCK_DGRAM
        writer, reader = socket.socketpair(socket.AF_UNIX, kind)
        writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, max_bytes)
        self._open(writer, reader)

    def _open(self, writer: socket.socket, reader: socket.socket) -> None:
        self._writer, self._reader = writer, reader
        # The flag belongs to the socket, not to the process: all holders must agree on it.
        writer.setblocking(False)
        reader.setblocking(False)

    def put(self, message: Any, keep_waiting: Callable[[], bool] = always) -> bool:
        """Sends one message, waiting while the queue is full.

        keep_waiting: asked ten times a second while the queue is full. Once it says no, the message is not
        sent and the answer is False; otherwise the answer is True.

        Raises ValueError for a message of more than MAX_MESSAGE_BYTES once pickled.
        """
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError(_too_long(data, MAX_MESSAGE_BYTES))
        while not self._send(data):
            if not keep_waiting():
                return False
            _wait_for(self._writer, select.POLLOUT, PATIENCE_SECONDS)
        return True

    def _send(self, data: bytes) -> bool:
        try:
            self._writer.send(data)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                limit = self._writer.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
                raise ValueError(_too_long(data, limit)) from None
            if error.errno == errno.ENOBUFS:  # how macOS says that the queue is full
                return False
            raise
        return True

    def get(self, timeout: float) -> Any:
        """The next message. Raises queue.Empty if there is none for `timeout` seconds."""
        messages = self.get_many(timeout, max_messages=1)
        if not messages:
            raise queue.Empty
        return messages[0]

    def get_many(self, timeout: float, max_messages: int = 1000) -> list[Any]:
        """What is there; if nothing is, what comes first within `timeout` seconds; else an empty list.

        The wait is counted in whole milliseconds, rounded up. timeout=0 never waits.
        """
        deadline = time.monotonic() + timeout
        messages = self._take(max_messages)
        while not messages:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            _wait_for(self._reader, select.POLLIN, remaining)
            messages = self._take(max_messages)
        return messages

    def _take(self, max_messages: int) -> list[Any]:
        messages = []
        try:
            while len(messages) < max_messages:
                messages.append(pickle.loads(self._reader.recv(MAX_MESSAGE_BYTES)))
        except BlockingIOError:
            pass
        return messages

    def fileno(self) -> int:
        """Readable when there is a message; for multiprocessing.connection.wait."""
        return self._reader.fileno()

    def close(self) -> None:
        """Lets go of the queue in this process."""
        self._writer.close()
        self._reader.close()

    def __reduce__(self):
        context.assert_spawning(self)
        return _attach, (reduction.DupFd(self._writer.fileno()), reduction.DupFd(self._reader.fileno()))


def _attach(*passed_fds: Any) -> Queue:
    """In the child: opens the parent's queue. A simulator that the child starts does not inherit it."""
    queue_here = Queue.__new__(Queue)
    sockets = [socket.socket(fileno=passed_fd.detach()) for passed_fd in passed_fds]
    for end in sockets:
        end.set_inheritable(False)
    queue_here._open(*sockets)
    return queue_here


def _too_long(data: bytes, limit: int) -> str:
    return (
        f"a message of {len(data):,} bytes does not fit into this queue (limit {limit:,}); "
        "put the data into SharedArrays and send their address"
    )


def _wait_for(end: socket.socket, event: int, seconds: float) -> bool:
    """Whether the event comes within `seconds`."""
    # A poll object must not be shared by threads, and making one takes less than a microsecond.
    poller = select.poll()
    poller.register(end, event)
    return bool(poller.poll(seconds * 1000))


class LocalQueue:
    """`Queue` for one process: the same methods, for serial mode and for tests with threads. Promises:

    1. A message is delivered exactly once; none is dropped. Messages are not copied.
    2. With waits=False nothing ever blocks, because in serial mode nobody could end the wait: reading an
       empty queue gives nothing at once, and writing to a full one raises queue.Full.
    """

    def __init__(self, max_messages: int = sys.maxsize, waits: bool = True):
        self._messages: collections.deque = collections.deque()
        self._max_messages = max_messages
        self._waits = waits
        self._changed = threading.Condition()

    def put(self, message: Any, keep_waiting: Callable[[], bool] = always) -> bool:
        """As Queue.put."""
        with self._changed:
            while len(self._messages) >= self._max_messages:
                if not self._waits:
                    raise queue.Full(f"{self._max_messages} messages, and nobody who could take one")
                if not keep_waiting():
                    return False
                self._changed.wait(PATIENCE_SECONDS)
            self._messages.append(message)
            self._changed.notify_all()
            return True

    def get(self, timeout: float) -> Any:
        """As Queue.get."""
        messages = self.get_many(timeout, max_messages=1)
        if not messages:
            raise queue.Empty
        return messages[0]

    def get_many(self, timeout: float, max_messages: int = 1000) -> list[Any]:
        """As Queue.get_many."""
        with self._changed:
            if self._waits:
                self._changed.wait_for(lambda: self._messages, timeout)
            messages = [self._messages.popleft() for _ in range(min(max_messages, len(self._messages)))]
            self._changed.notify_all()
            return messages

    def close(self) -> None:
        """As Queue.close: nothing to let go of."""
