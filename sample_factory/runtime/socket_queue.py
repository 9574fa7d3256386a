"""The default queue between processes: a pair of Unix sockets."""

import errno
import pickle
import select
import socket
import sys
import time
from collections.abc import Callable
from multiprocessing import context, reduction
from typing import Any

from sample_factory.runtime.queues import MAX_MESSAGE_BYTES, POLL_SECONDS, always, check_size, does_not_fit


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
        check_size(data, MAX_MESSAGE_BYTES)
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
                raise does_not_fit(data, limit) from None
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

    def close(self) -> None:
        """See Queue.close."""
        self._writer.close()
        self._reader.close()

    def __reduce__(self) -> Any:
        context.assert_spawning(self)
        return _attach, (reduction.DupFd(self._writer.fileno()), reduction.DupFd(self._reader.fileno()))


def _attach(*passed_fds: Any) -> SocketQueue:
    """In the child: opens the parent's queue."""
    queue = SocketQueue.__new__(SocketQueue)
    writer, reader = (socket.socket(fileno=passed_fd.detach()) for passed_fd in passed_fds)
    queue._open(writer, reader)
    return queue


def _wait_for(end: socket.socket, event: int, seconds: float) -> bool:
    """Returns whether the event occurs within `seconds`."""
    # A poll object must not be shared by threads, and making one takes less than a microsecond.
    poller = select.poll()
    poller.register(end, event)
    return bool(poller.poll(seconds * 1000))
