"""Batches and requests that pass between the two threads of a learner process."""

import queue
import threading

from sample_factory.exchange.messages import DonateRequest, NewSettings, SaveRequest, SnapshotRequest
from sample_factory.learning.batch import Batch

Request = DonateRequest | NewSettings | SnapshotRequest


class Handover:
    """From the batching thread to the trainer thread: the only object with state that both of them change.

    At most `max_ready_batches` wait here. That is the back-pressure: while they wait, no further buffer is
    released, and rollout workers that find no free buffer pause.
    """

    def __init__(self, max_ready_batches: int):
        self._batches: queue.Queue[Batch] = queue.Queue(max_ready_batches)
        self._batch_taken = threading.Event()
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._save_request: SaveRequest | None = None  # the newest; set and swapped in one operation

    # Called by the batching thread

    @property
    def is_full(self) -> bool:
        """Whether `put_batch` would block."""
        return self._batches.full()

    def wait_for_room(self, timeout: float) -> None:
        """Blocks until the trainer takes a batch, at most `timeout` seconds; not at all if there is room."""
        self._batch_taken.clear()
        if self._batches.full():
            self._batch_taken.wait(timeout)

    def put_batch(self, batch: Batch) -> None:
        """Adds a batch."""
        self._batches.put(batch)

    def put_request(self, request: Request | SaveRequest) -> None:
        """Adds a request of the main process. Of several save requests the last one counts."""
        if isinstance(request, SaveRequest):
            self._save_request = request
        else:
            self._requests.put(request)

    # Called by the trainer thread

    def take_batch(self, timeout: float) -> Batch | None:
        """Returns the oldest batch, or None if there is none within `timeout` seconds."""
        try:
            batch = self._batches.get(block=timeout > 0, timeout=timeout or None)
        except queue.Empty:
            return None
        self._batch_taken.set()
        return batch

    def take_request(self) -> Request | None:
        """Returns the oldest request of population-based training or for a snapshot, or None."""
        return None if self._requests.empty() else self._requests.get()

    def take_save_request(self) -> SaveRequest | None:
        """Returns the newest save request that has not been taken, or None."""
        request, self._save_request = self._save_request, None
        return request
