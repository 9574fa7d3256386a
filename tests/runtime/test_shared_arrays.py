"""Tests of shared arrays in one process; those in two processes are in tests/runtime/test_child.py."""

import gc
import os
import pickle
import resource
from pathlib import Path

import numpy as np
import pytest

from sample_factory.runtime.failures import CommandFailed
from sample_factory.runtime.shared_arrays import ALIGNMENT, ArraySpec, SharedArrays

SPECS = {
    "pixels": ArraySpec((3, 5, 7), np.uint8),
    "reward": ArraySpec((3,), "float32"),
    "empty": ArraySpec((0, 4), np.float64),
    "done": ArraySpec((), bool),
}


def test_arrays_are_aligned_zeroed_and_do_not_overlap():
    arrays = SharedArrays(SPECS)
    for name, spec in SPECS.items():
        array = arrays[name]
        assert (array.shape, array.dtype) == (spec.shape, np.dtype(spec.dtype))
        assert array.ctypes.data % ALIGNMENT == 0 and not array.any()
    for number, name in enumerate(SPECS, start=1):
        arrays[name].fill(number)
    assert (arrays["pixels"] == 1).all() and (arrays["reward"] == 2).all() and arrays["done"]
    assert arrays.nbytes >= sum(spec.nbytes for spec in SPECS.values())


def test_a_limit_of_file_sizes_is_named_if_it_is_too_small():
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    large = {"a": ArraySpec((2**20,), np.uint8)}
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, limits[1]))
    try:
        with pytest.raises(CommandFailed, match="1.0 MB of shared memory .* `ulimit -f`"):
            SharedArrays(large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    SharedArrays(large)


def memfd_maps() -> int:
    with open("/proc/self/maps") as maps:
        return sum("memfd:sample_factory" in line for line in maps)


def test_memory_and_descriptors_are_returned_when_the_last_view_is_gone():
    gc.collect()
    maps, fds = memfd_maps(), len(os.listdir("/proc/self/fd"))
    arrays = SharedArrays(SPECS)
    view = arrays["reward"][1:]
    del arrays
    view[:] = 3  # still valid
    assert memfd_maps() == maps + 1
    del view
    assert (memfd_maps(), len(os.listdir("/proc/self/fd"))) == (maps, fds)


def test_a_python_that_was_built_without_memfd_create_has_the_same_memory(monkeypatch):
    """As uv's Python 3.12.11, see uv issue 15081."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    gc.collect()
    before = memfd_maps()
    arrays = SharedArrays(SPECS)
    assert memfd_maps() == before + 1 and not arrays["pixels"].any()
    assert not os.get_inheritable(arrays._fd)


def test_nothing_is_created_in_dev_shm():
    def mapped() -> list[str]:
        return [line for line in Path("/proc/self/maps").read_text().splitlines() if "/dev/shm" in line]

    before = mapped()
    arrays = SharedArrays(SPECS)
    assert arrays["reward"].nbytes and mapped() == before
    assert "/dev/shm" not in os.readlink(f"/proc/self/fd/{arrays._fd}")


def test_arrays_are_pickled_only_for_a_child():
    with pytest.raises(RuntimeError):
        pickle.dumps(SharedArrays(SPECS))
