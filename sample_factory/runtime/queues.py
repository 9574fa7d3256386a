"""Queues of small messages: between threads of one process, and between processes (--queue)."""

import collections
import errno
import importlib.util
import pickle
import queue
import select
import socket
import time
from collections.abc import Callable
from multiprocessing import context, reduction
from typing import Any, Protocol

TRANSPORTS = ("sockets", "faster_fifo")
# Every Linux kernel takes a packet of this size at its default limits (net.core.wmem_max = 212,992 bytes).
MAX_MESSAGE_BYTES = 200_000
# How often a `put` into a full queue calls `keep_waiting`.
POLL_SECONDS = 0.1
LENGTH_BYTES = 8  # faster-fifo stores the length of each message before it


def always() -> bool:
    return True


class Queue(Protocol):
    """A first-in first-out queue for any number of writing and reading processes and threads. Promises:

    1. Each message is delivered exactly once, whole, to one reader; none is dropped. A full queue makes the
       writer wait.
    2. A reader or writer that dies, even by kill -9 in the middle of a call, never blocks other processes.
       (FasterFifoQueue does not keep this promise.)
    3. Nothing is left on the machine once the last process that holds the queue has ended.
    4. A queue can be pickled only while a child is being started; otherwise pickling raises RuntimeError.

    README.md in this folder compares the transports.
    """

    def put(self, message: Any, keep_waiting: Callable[[], bool] = always) -> bool:
        """Sends one message; waits while the queue is full. Returns whether the message was sent.

        keep_waiting: called ten times per second while the queue is full; once it returns False, the message
            is not sent.

        Raises MessageTooLarge if the pickled message has more than MAX_MESSAGE_BYTES.
        """

    def get_many(self, timeout: float, max_messages: int = 1000) -> list[Any]:
        """Removes and returns the oldest messages, at most `max_messages`.
        Waits up to `timeout` seconds for the first message. Returns an empty list if none arrives."""


class MessageTooLarge(ValueError):
    """Raised for a message that is larger than its queue can ever take."""

    def __init__(self, num_bytes: int, max_bytes: int):
        super().__init__(
            f"a message of {num_bytes:,} bytes does not fit into this queue (limit {max_bytes:,}); "
            "put the data into SharedArrays and send their address"
        )


def make_queue(transport: str) -> Queue:
    """In the parent: creates a queue between processes.
    transport: one of TRANSPORTS. Raises ImportError for faster_fifo if faster-fifo is not installed."""
    check_transport(transport)
    if transport == "faster_fifo":
        return FasterFifoQueue()
    return SocketQueue()


def check_transport(transport: str) -> None:
    """Checks a value of --queue. Raises ValueError if it is unknown, ImportError for faster_fifo if the
    package faster-fifo is not installed."""
    if transport not in TRANSPORTS:
        raise ValueError(f"queue transport {transport!r} is unknown; use one of {', '.join(TRANSPORTS)}")
    if transport == "faster_fifo" and importlib.util.find_spec("faster_fifo") is None:
        raise ImportError(
            "--queue=faster_fifo needs the package faster-fifo, which is not installed: "
            "pip install -e '.[faster-fifo]' in the checkout"
        )


class LocalQueue:
    """A `Queue` whose writer and reader are the same process. Messages are not copied.

    It never blocks, since nothing else could end the wait: `put` finds room for any number of messages, and
    `get_many` returns an empty list at once if the queue is empty.
    """

    def __init__(self) -> None:
        self._messages: collections.deque[Any] = collections.deque()

    def put(self, message: Any, keep_waiting: Callable[[], bool] = always) -> bool:
        self._messages.append(message)
        return True

    def get_many(self, timeout: float, max_messages: int = 1000) -> list[Any]:
        return [self._messages.popleft() for _ in range(min(max_messages, len(self._messages)))]


class SocketQueue:
    """A `Queue` over a pair of Unix sockets that keep message boundaries. Keeps all promises of `Queue`: the
    kernel does the locking, so no process can die while it holds a lock."""

    def __init__(self, max_bytes: int = 2_000_000):
        """In the parent: creates the queue.

        max_bytes: capacity. The kernel limits it to net.core.wmem_max, and counts at least 768 bytes per
            message: the usual limit of 212,992 bytes holds about 550 small messages.
        """
        writer, reader = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, max_bytes)
        self._open(writer, reader)

    def _open(self, writer: socket.socket, reader: socket.socket) -> None:
        self._writer = writer
        self._reader = reader
        # The flag belongs to the socket, so all processes that hold it must set the same.
        writer.setblocking(False)
        reader.setblocking(False)

    def __del__(self) -> None:
        for end in vars(self).values():  # none if it could not be opened
            end.close()  # otherwise Python warns

    def put(self, message: Any, keep_waiting: Callable[[], bool] = always) -> bool:
        """Sends a message as `Queue.put` does. Raises MessageTooLarge for a pickled message of more than
        max_bytes or MAX_MESSAGE_BYTES."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        if len(data) > MAX_MESSAGE_BYTES:
            raise MessageTooLarge(len(data), MAX_MESSAGE_BYTES)
        while not self._send(data):
            if not keep_waiting():
                return False
            _wait_for(self._writer, select.POLLOUT, POLL_SECONDS)
        return True

    def _send(self, data: bytes) -> bool:
        try:
            self._writer.send(data)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                # The limit includes the kernel's overhead, so the message itself can be smaller.
                limit = self._writer.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
                raise MessageTooLarge(len(data), limit) from None
            raise
        return True

    def get_many(self, timeout: float, max_messages: int = 1000) -> list[Any]:
        """Removes and returns the oldest messages as `Queue.get_many` does; waits whole milliseconds, rounded
        up."""
        deadline = time.monotonic() + timeout
        messages = self._receive(max_messages)
        while not messages:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            _wait_for(self._reader, select.POLLIN, remaining)
            messages = self._receive(max_messages)
        return messages

    def _receive(self, max_messages: int) -> list[Any]:
        messages: list[Any] = []
        try:
            while len(messages) < max_messages:
                messages.append(pickle.loads(self._reader.recv(MAX_MESSAGE_BYTES)))
        except BlockingIOError:
            pass
        return messages

    def __getstate__(self) -> Any:
        context.assert_spawning(self)
        return [reduction.DupFd(end.fileno()) for end in (self._writer, self._reader)]

    def __setstate__(self, passed_fds: Any) -> None:
        """In the child: opens the parent's queue. `passed_fds`: the descriptors of the two sockets."""
        self._open(*(socket.socket(fileno=passed_fd.detach()) for passed_fd in passed_fds))


def _wait_for(end: socket.socket, event: int, seconds: float) -> None:
    """Waits at most `seconds` until a socket is ready. `event`: what to wait for, select.POLLIN or
    select.POLLOUT."""
    # Threads must not share a poll object; creating one takes less than a microsecond.
    poller = select.poll()
    poller.register(end, event)
    poller.poll(seconds * 1000)


class FasterFifoQueue:
    """The queue of the package faster-fifo (an extra): a ring buffer in shared memory under a mutex.

    Keeps promises 1, 3 and 4 of `Queue`, but not promise 2: after a process was killed inside a call, every
    later call of any process may wait forever, because the mutex and the condition variables are not robust.
    """

    def __init__(self, max_bytes: int = 500_000):
        """In the parent: creates the queue.

        max_bytes: size of the ring buffer, allocated at once in an unnamed file in /dev/shm. Smaller than the
            package's default of 1 MB, since /dev/shm of a container may have only 64 MB.
        """
        import faster_fifo

        self._open(faster_fifo.Queue(max_bytes, loads=pickle.loads, dumps=bytes))  # `put` has pickled

    def _open(self, fifo: Any) -> None:
        self._fifo = fifo
        self._max_message_bytes = min(MAX_MESSAGE_BYTES, fifo.max_size_bytes - LENGTH_BYTES)

    def put(self, message: Any, keep_waiting: Callable[[], bool] = always) -> bool:
        """Sends a message as `Queue.put` does. Raises MessageTooLarge for a pickled message of more than
        max_bytes or MAX_MESSAGE_BYTES."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        if len(data) > self._max_message_bytes:
            raise MessageTooLarge(len(data), self._max_message_bytes)
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
        """Removes and returns the oldest messages as `Queue.get_many` does."""
        if self._fifo.message_buffer.val is None:  # each thread has its own
            # Large enough for all messages: faster-fifo returns only as many as fit.
            self._fifo.reallocate_msg_buffer(self._fifo.max_size_bytes)
        deadline = time.monotonic() + timeout
        remaining = timeout
        while True:
            try:
                # In short waits: a writer wakes up only one reader, which may have been killed.
                wait = min(remaining, POLL_SECONDS)
                messages: list[Any] = self._fifo.get_many(wait > 0, max(0.0, wait), max_messages)
                return messages
            except queue.Empty:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return []

    def __getstate__(self) -> Any:
        context.assert_spawning(self)
        # Only ForkingPickler can hand over multiprocessing's shared memory.
        return bytes(reduction.ForkingPickler.dumps(self._fifo))

    def __setstate__(self, pickled: bytes) -> None:
        """In the child: maps the shared memory of the parent's queue."""
        self._open(pickle.loads(pickled))
