"""NumPy arrays in memory that several processes share."""

import math
import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Mapping
from multiprocessing import context, reduction
from typing import Any, NamedTuple

import numpy as np

ALIGNMENT = 64  # bytes: one cache line, and enough for any vector instruction


class ArraySpec(NamedTuple):
    """Shape and dtype of one shared array."""

    shape: tuple[int, ...]
    dtype: Any  # whatever numpy.dtype accepts

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * int(np.dtype(self.dtype).itemsize)


def anonymous_file(nbytes: int) -> int:
    """Returns the descriptor of a new file of zeros that has no name, so that nothing is left when the
    processes that hold it die.
    """
    if sys.platform == "linux":
        # Unlike /dev/shm, a memfd is not bounded by the 64 MB that a container gets there.
        fd = os.memfd_create("sample_factory", os.MFD_CLOEXEC)
    else:
        fd, path = tempfile.mkstemp(prefix="sample_factory_")
        os.unlink(path)
    os.ftruncate(fd, nbytes)
    return fd


class SharedArrays:
    """Named arrays in one block of shared memory. Promises:

    1. All processes that hold it share the same bytes; nothing is ever copied.
    2. New arrays are all zeros and start at a multiple of 64 bytes.
    3. The memory has no name in any file system: it is released when the last process that maps it has
       ended, however it ended. A program that such a process starts does not inherit it.
    4. It can be pickled only while a child is being started; anywhere else that is a RuntimeError.
    5. After `close()` no array can be looked up. Views that were looked up before stay valid; the memory is
       released when the last of them is deleted.
    """

    def __init__(self, specs: Mapping[str, ArraySpec]):
        """In the parent: allocates the memory."""
        self._open(dict(specs), anonymous_file(max(1, _layout(specs)[1])))

    def _open(self, specs: dict[str, ArraySpec], fd: int) -> None:
        self._specs = specs
        self._fd = fd
        self._close_fd = weakref.finalize(self, os.close, fd)
        offsets, self.nbytes = _layout(specs)
        block = mmap.mmap(fd, max(1, self.nbytes))
        # From here on, only the views hold the map, so it is released with them.
        self._arrays: dict[str, np.ndarray] = {
            name: np.ndarray(spec.shape, spec.dtype, buffer=block, offset=offsets[name])
            for name, spec in specs.items()
        }

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._arrays)

    def poison(self) -> None:
        """Fills all arrays with values that a test notices if they are used before they are written.

        Floats become NaN, integers the largest of their type, bools True.
        """
        for array in self._arrays.values():
            if array.dtype.kind in "fc":
                array.fill(np.nan)
            elif array.dtype.kind in "iu":
                array.fill(np.iinfo(array.dtype).max)
            else:
                array.fill(True)

    def close(self) -> None:
        """Releases the memory in this process; other processes keep theirs."""
        self._arrays = {}
        self._close_fd()

    def __reduce__(self) -> Any:
        context.assert_spawning(self)
        return _attach, (self._specs, reduction.DupFd(self._fd))


def _attach(specs: dict[str, ArraySpec], passed_fd: Any) -> SharedArrays:
    """In the child: maps the memory that the parent allocated."""
    arrays = SharedArrays.__new__(SharedArrays)
    arrays._open(specs, passed_fd.detach())
    return arrays


def _layout(specs: Mapping[str, ArraySpec]) -> tuple[dict[str, int], int]:
    """Returns (offset of each array, size of the block), in bytes."""
    offsets: dict[str, int] = {}
    end = 0
    for name, spec in specs.items():
        offsets[name] = end
        end += -(-spec.nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, end
