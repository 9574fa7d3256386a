"""Cores and memory of this machine."""

import ctypes
import math
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

# Environment of a child that allocates hundreds of megabytes. The first access to memory takes less time with
# pages of 2 MB.
HUGE_PAGES = {"GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")}
# Environment of a child whose maths libraries are limited to one thread.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
AUTOGROUP = "/proc/self/autogroup"
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # of malloc.h


def available_cores() -> list[int]:
    """Returns the sorted indices of the cores that this process may use. A batch system may allow only some
    of the machine's cores."""
    return sorted(os.sched_getaffinity(0))


def cpu_limit(file: str = "/sys/fs/cgroup/cpu.max") -> float:
    """Returns the CPU limit of this process's container, in cores; infinity without a limit.

    file: file of cgroup v2 that contains "<microseconds of CPU time> <microseconds of a period>", or
        "max <period>".
    """
    try:
        quota, period = Path(file).read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # no cgroup v2, "max", or an unknown format
        return math.inf


def num_usable_cores() -> int:
    """Returns the number of cores that this process can keep busy: the smaller of the number of
    `available_cores` and the container's CPU limit, rounded up."""
    return max(1, math.ceil(min(len(available_cores()), cpu_limit())))


def worker_cores(index: int, num_workers: int, cores: Sequence[int] | None = None) -> frozenset[int] | None:
    """Returns the cores to which worker `index` of `num_workers` is pinned; None: it may use all cores.

    With C cores, the first num_workers // C * C workers get one core each, in turn. The remaining workers
    share out the cores in equal consecutive ranges; if their number does not divide C, they are not pinned.

    cores: the cores to share out, by default all that this process may use.
    """
    cores = available_cores() if cores is None else cores
    num_cores = len(cores)
    num_single = num_workers // num_cores * num_cores
    if index < num_single:
        return frozenset([cores[index % num_cores]])
    num_rest = num_workers - num_single
    if num_cores % num_rest != 0:
        return None
    width = num_cores // num_rest
    first = (index - num_single) * width
    return frozenset(cores[first : first + width])


def pass_niceness_to_session() -> None:
    """Sets the nice value of this process's session to the nice value of the process.

    Linux with autogroups shares a core among sessions by the nice values of the sessions, which are equal by
    default. The nice values of processes matter only within a session.

    May take seconds: Linux allows ten such changes per second and machine without privileges. Raises OSError
    if this process may not make the change.
    """
    if not os.path.exists(AUTOGROUP):
        return
    file = os.open(AUTOGROUP, os.O_WRONLY)
    try:
        while True:
            try:
                os.write(file, str(os.nice(0)).encode())
                return
            except BlockingIOError:
                time.sleep(random.uniform(0.1, 0.3))
    finally:
        os.close(file)


def rss_mb() -> float:
    """Returns the resident memory of this process in MB, with the shared memory it has used."""
    return float(psutil.Process().memory_info().rss) / 2**20


def memory_limit_mb(machine_bytes: float, file: str = "/sys/fs/cgroup/memory.max") -> float:
    """Returns the memory that this process may use, in MB: the smaller of `machine_bytes` and the limit of
    its container.

    file: file of cgroup v2 that contains the limit in bytes, or "max".
    """
    try:
        limit = Path(file).read_text().strip()
    except OSError:
        limit = ""
    return min(machine_bytes, float(limit) if limit.isdigit() else math.inf) / 2**20


def private_mb() -> float:
    """Returns the resident memory of this process in MB, without shared memory."""
    memory = psutil.Process().memory_info()
    return float(memory.rss - memory.shared) / 2**20


def raise_open_files_limit() -> int:
    """Raises the limit of open files of this process and its later children; returns the new limit.
    The usual 1024 does not suffice for a few hundred children: each costs the parent five descriptors."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some programs close every descriptor up to the limit when they start another one.
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


def keep_freed_memory() -> None:
    """Makes this process keep freed memory for its next allocations. Does nothing without glibc.

    A training step allocates and frees hundreds of megabytes. By default glibc returns large blocks to the
    kernel at once; the page faults of the next allocation took 30 % of a learner's time. All threads share
    one arena, so that the memory of one thread can be reused by another.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return
    for parameter, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_ARENA_MAX, 1)):
        libc.mallopt(parameter, value)
