"""One policy's parameters in shared memory: published by its learner, fetched by policy workers."""

import mmap
import os
import time
import weakref
from collections.abc import Callable, Mapping
from multiprocessing import reduction
from typing import Any, NamedTuple

import numpy as np

from sample_factory.runtime.shared_arrays import anonymous_file, layout, resize

HEADER_BYTES = 4096
NOTHING_PUBLISHED = -1


class Stamp(NamedTuple):
    """Identifies published weights, so that samples can be told apart by the weights that acted. version:
    number of SGD steps. generation: number of times in this run that the policy has taken over another
    policy's weights; the learner trains only on samples of the newest generation."""

    version: int
    generation: int = 0


class PolicyWeights:
    """Publishes a policy's weights in shared memory: two slots of bytes and their stamps. Promises:

    1. When `fetch` returns, its last call of `load` has seen one published state, never a mixture of two.
    2. Nobody waits: the learner writes to the slot that does not hold the newest state.
    3. The process that creates the object need not know the model: the first `publish` sizes the memory.

    Header, int64: [0] publications begun, [1] publications completed, [2] bytes of a slot, [3:5] version in
    each slot, [5:7] generation in each slot.
    """

    def __init__(self) -> None:
        self._open(anonymous_file(HEADER_BYTES))
        self._header[:7] = (0, 0, 0, NOTHING_PUBLISHED, NOTHING_PUBLISHED, 0, 0)

    def _open(self, fd: int) -> None:
        self._fd = fd
        weakref.finalize(self, os.close, fd)
        self._header = np.frombuffer(mmap.mmap(fd, HEADER_BYTES), np.int64)
        self._slots: np.ndarray | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"fd": reduction.DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._open(state["fd"].detach())

    @property
    def newest(self) -> Stamp:
        """Stamp of the newest published weights; its version is NOTHING_PUBLISHED before the first
        publication."""
        return self._stamp(int(self._header[1]) % 2)

    def _stamp(self, slot: int) -> Stamp:
        return Stamp(int(self._header[3 + slot]), int(self._header[5 + slot]))

    def wait_published(self, keep_waiting: Callable[[], bool]) -> bool:
        """Blocks until weights are published for the first time. Returns False if `keep_waiting`, which is
        called regularly, returns False before."""
        while self.newest.version == NOTHING_PUBLISHED:
            if not keep_waiting():
                return False
            time.sleep(0.005)
        return True

    def publish(self, state: Mapping[str, np.ndarray], stamp: Stamp) -> None:
        """In the learner: publishes a state.

        state: contiguous arrays by name; names, shapes and dtypes must be the same each time.
        """
        offsets, size = layout(state)
        if self._slots is None:
            resize(self._fd, HEADER_BYTES + 2 * size)
            self._header[2] = size
        slots = self._map_slots()
        publication = int(self._header[1]) + 1
        self._header[0] = publication
        slot = slots[publication % 2]
        for name, array in state.items():
            begin = offsets[name]
            slot[begin : begin + array.nbytes] = array.reshape(-1).view(np.uint8)
        self._header[3 + publication % 2] = stamp.version
        self._header[5 + publication % 2] = stamp.generation
        self._header[1] = publication

    def fetch(self, load: Callable[[np.ndarray], object]) -> Stamp:
        """In a policy worker: loads the newest state, and returns its stamp.

        load: called with the bytes of the state in shared memory, [slot_bytes] uint8, which it must not keep.
            If the learner wrote to this memory during the call, `load` may have seen a mixture of two states,
            and is called again with a newer one.
        """
        slots = self._map_slots()
        while True:
            publication = int(self._header[1])
            stamp = self._stamp(publication % 2)
            load(slots[publication % 2])
            # Only the publication after the next one writes to the slot that was read.
            if int(self._header[0]) <= publication + 1:
                return stamp

    @property
    def slot_bytes(self) -> int:
        """Size in bytes of a published state; 0 before the first publication."""
        return int(self._header[2])

    def _map_slots(self) -> np.ndarray:
        if self._slots is None:
            size = self.slot_bytes
            block = mmap.mmap(self._fd, HEADER_BYTES + 2 * size)
            flat = np.frombuffer(block, np.uint8, offset=HEADER_BYTES)
            self._slots = flat.reshape(2, size)
        return self._slots
