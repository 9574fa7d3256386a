"""Chooses the queue that connects processes, by the value of --queue."""

import importlib.util

from sample_factory.runtime.queues import Queue
from sample_factory.runtime.socket_queue import SocketQueue

TRANSPORTS = ("sockets", "faster_fifo")


def make_queue(transport: str) -> Queue:
    """In the parent: creates a queue between processes.

    transport: one of TRANSPORTS. Raises ImportError if its package is not installed.
    """
    check_transport(transport)
    if transport == "faster_fifo":
        # An optional package.
        from sample_factory.runtime.faster_fifo_queue import FasterFifoQueue

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
