"""Queues of small messages: between threads of one process, and between processes (--queue)."""

import collections
import errno
import importlib.util
import pickle
import queue
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import context, reduction
from typing import Any, Protocol

TRANSPORTS = ("sockets", "faster_fifo")
# Every Linux kernel takes a packet of this size at its default limits (net.core.wmem_max = 212,992 bytes).
MAX_MESSAGE_BYTES = 200_000
# A `put` that waits at a full queue asks `keep_waiting` this often.
POLL_SECONDS = 0.1
LENGTH_BYTES = 8  # faster-fifo stores the length of each message before it


def always() -> bool:
    return True


class Queue(Protocol):
    """A first-in first-out queue for any number of writing and reading processes and threads. Promises:

    1. Each message is delivered exactly once, whole, to one reader; none is dropped. A full queue makes the
       writer wait.
    2. A reader or writer that dies, even by kill -9 in the middle of a call, never blocks the others.
       (FasterFifoQueue does not keep this promise.)
    3. Nothing is left on the machine once the last process that holds the queue has ended.
    4. It can be pickled only while a child is being started; anywhere else that is a RuntimeError.

    README.md in this folder compares the transports.
    """

    def put(self, message: Any, keep_waiting: Callable[[], bool] = always) -> bool:
        """Sends one message, waiting while the queue is full. Returns whether the message was sent.

        keep_waiting: called ten times a second while the queue is full. Once it returns False, the message is
        not sent.

        Raises MessageTooLarge for a message of more than MAX_MESSAGE_BYTES once pickled.
        """

    def get_many(self, timeout: float, max_messages: int = 1000) -> list[Any]:
        """Returns the messages in the queue, at most `max_messages`.

        If the queue is empty, waits up to `timeout` seconds for the first message, and returns an empty list
        if none arrives; timeout=0 never waits. A result of fewer than `max_messages` means that the queue has
        been read to its end.
        """


class MessageTooLarge(ValueError):
    """A message can never fit into a queue."""

    def __init__(self, num_bytes: int, max_bytes: int):
        super().__init__(
            f"a message of {num_bytes:,} bytes does not fit into this queue (limit {max_bytes:,}); "
            "put the data into SharedArrays and send their address"
        )


def make_queue(transport: str) -> Queue:
    """In the parent: creates a queue between processes.

    transport: one of TRANSPORTS. Raises ImportError if its package is not installed.
    """
    check_transport(transport)
    if transport == "faster_fifo":
        return FasterFifoQueue()
    return SocketQueue()


def check_transport(transport: str) -> None:
    """Raises ValueError for an unknown transport, ImportError for one whose package is not installed."""
    if transport not in TRANSPORTS:
        raise ValueError(f"queue transport {transport!r} is unknown; use one of {', '.join(TRANSPORTS)}")
    if transport == "faster_fifo" and importlib.util.find_spec("faster_fifo") is None:
        raise ImportError(
            "--queue=faster_fifo needs the package faster-fifo, which is not installed: "
            "pip install -e '.[faster-fifo]' in the checkout"
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


class SocketQueue:
    """A `Queue` over two Unix sockets that keep message boundaries. The kernel does the locking, so that no
    process can die holding a lock: all promises of `Queue` are kept.

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
        self._writer = writer
        self._reader = reader
        # The flag belongs to the socket, not to the process: all holders must agree on it.
        writer.setblocking(False)
        reader.setblocking(False)

    def put(self, message: Any, keep_waiting: Callable[[], bool] = always) -> bool:
        """See Queue.put. Raises MessageTooLarge also for a message that is larger than max_bytes."""
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
                # The kernel's overhead counts too: the message itself can be smaller than the limit.
                limit = self._writer.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
                raise MessageTooLarge(len(data), limit) from None
            if error.errno == errno.ENOBUFS:  # how macOS says that the queue is full
                return False
            raise
        return True

    def get_many(self, timeout: float, max_messages: int = 1000) -> list[Any]:
        """See Queue.get_many. The wait is counted in whole milliseconds, rounded up."""
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

    def __reduce__(self) -> Any:
        context.assert_spawning(self)
        return _attach_sockets, (
            reduction.DupFd(self._writer.fileno()),
            reduction.DupFd(self._reader.fileno()),
        )


def _attach_sockets(*passed_fds: Any) -> SocketQueue:
    """In the child: opens the parent's queue."""
    queue_here = SocketQueue.__new__(SocketQueue)
    writer, reader = (socket.socket(fileno=passed_fd.detach()) for passed_fd in passed_fds)
    queue_here._open(writer, reader)
    return queue_here


def _wait_for(end: socket.socket, event: int, seconds: float) -> bool:
    """Returns whether the event occurs within `seconds`."""
    # A poll object must not be shared by threads, and making one takes less than a microsecond.
    poller = select.poll()
    poller.register(end, event)
    return bool(poller.poll(seconds * 1000))


class FasterFifoQueue:
    """The queue of the package faster-fifo (an extra): a ring buffer in shared memory under a mutex.

    Keeps promises 1, 3 and 4 of `Queue`, but not promise 2: its mutex and condition variables are not robust.
    A process that is killed inside a call can leave them in a state in which every later call of any process
    waits forever.

    max_bytes: size of the ring buffer, which is allocated at once. It lies in a file without a name in
    /dev/shm, where a container may have only 64 MB; hence it is smaller than the package's default of 1 MB.
    """

    def __init__(self, max_bytes: int = 500_000):
        """In the parent: creates the queue."""
        import faster_fifo

        self._open(faster_fifo.Queue(max_bytes, loads=pickle.loads, dumps=_unchanged))

    def _open(self, fifo: Any) -> None:
        self._fifo = fifo
        self._max_message_bytes = min(MAX_MESSAGE_BYTES, fifo.max_size_bytes - LENGTH_BYTES)

    def put(self, message: Any, keep_waiting: Callable[[], bool] = always) -> bool:
        """See Queue.put. Raises MessageTooLarge also for a message that is larger than max_bytes."""
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

    def __reduce__(self) -> Any:
        context.assert_spawning(self)
        # Only ForkingPickler can hand over multiprocessing's shared memory.
        return _attach_faster_fifo, (bytes(reduction.ForkingPickler.dumps(self._fifo)),)


def _attach_faster_fifo(pickled: bytes) -> FasterFifoQueue:
    """In the child: maps the parent's queue."""
    queue_here = FasterFifoQueue.__new__(FasterFifoQueue)
    queue_here._open(pickle.loads(pickled))
    return queue_here


def _unchanged(data: bytes) -> bytes:
    return data
