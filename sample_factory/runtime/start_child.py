"""The program of a child process: `python start_child.py PAYLOAD CONNECTION NAME`, started by `launch`.

PAYLOAD and CONNECTION are inherited file descriptors. NAME is what lists of processes show.
"""

import os
import pickle
import sys


def main(payload_fd: int, connection_fd: int) -> None:
    """In a new child process: applies the settings that must be in effect before large modules are imported
    (path, cores, niceness), then runs the child.

    payload_fd: descriptor of the file with the settings, the factory and its arguments.
    connection_fd: descriptor of the connection to the parent.
    """
    payload = os.fdopen(payload_fd, "rb")
    payload.seek(0)
    settings = pickle.load(payload)
    sys.path[:] = settings["path"]
    if settings["cores"]:
        os.sched_setaffinity(0, settings["cores"])
    if settings["niceness"]:
        os.nice(settings["niceness"])
    from sample_factory.runtime.child_side import child_main

    child_main(settings, payload, connection_fd)


if __name__ == "__main__":  # processes that the child starts by multiprocessing import this module too
    main(int(sys.argv[1]), int(sys.argv[2]))
