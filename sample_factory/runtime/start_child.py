"""The program of a child process: `python start_child.py PAYLOAD CONNECTION NAME`, started by `launch`.

PAYLOAD, CONNECTION: numbers of inherited file descriptors. NAME: shown in lists of processes.
"""

import os
import pickle
import sys


def main(payload_fd: int, connection_fd: int) -> None:
    """Sets what must be in effect before anything large is imported, then continues in `child_main`."""
    # A descriptor of its own, which closing the file closes; the offset is shared with `payload_fd`.
    with os.fdopen(os.dup(payload_fd), "rb") as payload:
        payload.seek(0)
        header = pickle.load(payload)
    sys.path[:] = header["path"]
    if header["cores"]:
        os.sched_setaffinity(0, header["cores"])
    if header["niceness"]:
        os.nice(header["niceness"])
    from sample_factory.runtime.child_side import child_main

    child_main(payload_fd, connection_fd)


if __name__ == "__main__":  # a process that the child starts by multiprocessing imports this module, too
    main(int(sys.argv[1]), int(sys.argv[2]))
