"""NumPy arrays in memory that several processes share."""

import ctypes
import math
import mmap
import os
import resource
import weakref
from collections.abc import Mapping
from multiprocessing import context, reduction
from typing import Any, NamedTuple

import numpy as np

from sample_factory.runtime.failures import CommandFailed

ALIGNMENT = 64  # bytes: one cache line, and enough for any vector instruction
NAME = "sample_factory"  # of the memory, in /proc/<pid>/maps
MFD_CLOEXEC = 1  # of linux/memfd.h


class ArraySpec(NamedTuple):
    """Shape and dtype of one shared array."""

    shape: tuple[int, ...]
    dtype: Any  # whatever numpy.dtype accepts

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * int(np.dtype(self.dtype).itemsize)


def anonymous_file(nbytes: int) -> int:
    """Returns the descriptor of a new file of zeros in memory. The file has no name, so the kernel frees it
    when the last process that holds the descriptor ends."""
    # Unlike /dev/shm, a memfd is not bounded by the 64 MB that a container gets there.
    fd = _memfd_create()
    resize(fd, nbytes)
    return fd


def resize(fd: int, nbytes: int) -> None:
    """Sets the size of an `anonymous_file`. Raises CommandFailed if `ulimit -f`, which limits the size of
    files, forbids it."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY and nbytes > limit:
        raise CommandFailed(f"{nbytes / 1e6:.1f} MB of shared memory are needed: raise `ulimit -f`")
    os.ftruncate(fd, nbytes)


def _memfd_create() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(NAME, MFD_CLOEXEC)
    # Python was built for systems with a glibc before 2.27, as uv's was until 2026: uv issue 15081.
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.memfd_create(NAME.encode(), MFD_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


class SharedArrays:
    """Named arrays in one block of memory that processes share. Promises:

    1. All processes that hold the object share the same bytes; nothing is ever copied.
    2. New arrays are all zeros and start at a multiple of 64 bytes.
    3. The memory has no name in any file system. It is released when the last process that maps it has ended,
       in whatever way. Programs that these processes start do not inherit it.
    4. The object can be pickled only while a child is being started; otherwise pickling raises RuntimeError.
    5. In a process, the memory is released when the object and all views of its arrays are deleted.
    """

    def __init__(self, specs: Mapping[str, ArraySpec]):
        """In the parent: allocates zeroed memory for all arrays. `specs`: name -> shape and dtype of the
        array."""
        self._open(dict(specs), anonymous_file(layout(specs)[1]))

    def _open(self, specs: dict[str, ArraySpec], fd: int) -> None:
        self._specs = specs
        self._fd = fd
        weakref.finalize(self, os.close, fd)
        offsets, self.nbytes = layout(specs)
        block = mmap.mmap(fd, self.nbytes)
        # Only the arrays refer to the map, which is unmapped with the last view of them.
        self._arrays: dict[str, np.ndarray] = {
            name: np.ndarray(spec.shape, spec.dtype, buffer=block, offset=offsets[name])
            for name, spec in specs.items()
        }

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __getstate__(self) -> Any:
        context.assert_spawning(self)
        return self._specs, reduction.DupFd(self._fd)

    def __setstate__(self, state: Any) -> None:
        """In the child: maps the memory that the parent allocated."""
        specs, passed_fd = state
        self._open(specs, passed_fd.detach())


def layout(arrays: Mapping[str, Any]) -> tuple[dict[str, int], int]:
    """Computes where arrays lie in one block. Returns (name -> offset of the array, size of the block), both
    in bytes; offsets are aligned.

    arrays: name -> an array or ArraySpec; only `nbytes` is read.
    """
    offsets: dict[str, int] = {}
    end = 0
    for name, array in arrays.items():
        offsets[name] = end
        end += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, max(end, ALIGNMENT)
