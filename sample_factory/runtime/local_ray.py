"""Connects to a Ray cluster, or starts Ray on this machine. Ray is an extra, imported inside functions."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.runtime.failures import CommandFailed

MAX_FOLDER = 40  # characters: Ray appends 62, and the path of a Unix socket has at most 107
MAX_STARTS = 4
ADDRESS = "RAY_ADDRESS"  # Ray's own variable: `ray job submit` sets it, ray.init obeys it
HERE = "local"  # for ray.init: start Ray on this machine
CONNECT_SECONDS = 10.0  # a head node that has just started does not listen yet
RETRY_SECONDS = 0.5
ANSWER_SECONDS = 5.0


class Cluster(NamedTuple):
    """The address of a Ray cluster. `source`: the flag or variable that holds the address, e.g.
    "--ray_address=auto"."""

    address: str
    source: str

    def check(self) -> None:
        """Checks within CONNECT_SECONDS that the cluster accepts connections, where Ray itself would try for
        minutes. An address without a port, such as "auto", is not checked.

        Raises CommandFailed if no connection can be made.
        """
        host, _, port = self.address.removeprefix("ray://").rpartition(":")
        if not (host and port.isdecimal()) or "/" in host:
            return  # "auto", or an address that Ray rejects at once
        give_up = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
                return
            except OSError as error:
                if time.monotonic() > give_up:
                    raise CommandFailed(
                        f"{self.source}: no Ray cluster can be reached ({error}); give "
                        "--ray_address=HOST:PORT of a head that runs, or "
                        f"--ray_address={HERE} to start Ray on this machine"
                    ) from None
            time.sleep(RETRY_SECONDS)

    def connect(self, options: Mapping[str, Any]) -> None:
        """Connects this process to the cluster. Raises CommandFailed if the cluster cannot be used.
        options: keyword arguments of ray.init."""
        import ray

        self.check()
        try:
            with keeping_sigterm():
                ray.init(address=self.address, **options)
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: another version of Python or Ray
            raise CommandFailed(f"{self.source}: {' '.join(str(error).split())}") from None


def find_cluster(ray_address: str | None) -> Cluster | None:
    """Returns the cluster that --ray_address names, or else RAY_ADDRESS; None: start Ray on this machine."""
    address = ray_address or os.environ.get(ADDRESS)
    if not address or address == HERE:
        return None
    return Cluster(address, f"--ray_address={address}" if ray_address else f"{ADDRESS}={address}")


@contextlib.contextmanager
def keeping_sigterm() -> Iterator[None]:
    """Returns a block that restores the handler of SIGTERM at its end, since ray.init installs a handler that
    exits. To be called in the main thread."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


class LocalRay:
    """Runs Ray on this machine for this process, with a new folder for its files, until `close`."""

    def __init__(self, flag: str, files: Path, options: dict[str, Any]):
        """Starts Ray. Raises CommandFailed if it does not start.

        flag: the flag that asks for Ray, for messages.
        files: absolute path in which Ray's folder is made; a path that is too long for Ray is replaced by the
            system's folder for temporary files.
        options: keyword arguments of ray.init.
        """
        import ray

        self._ray: Any = ray
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        # Ray's default of 15 would add to the niceness of workers: beside two busy processes of the same
        # session, a worker of niceness 19 gets 1.5 % of a core, and takes minutes to import torch.
        os.environ.setdefault("RAY_worker_niceness", "0")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex())  # otherwise Ray writes one to ~/.ray
        is_short = len(str(files)) < MAX_FOLDER - len("/r12345678")
        if is_short:
            files.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.mkdtemp(prefix="r", dir=files if is_short else None)
        try:
            self._start(flag, options)
        except BaseException:
            self.close()
            raise

    def _start(self, flag: str, options: dict[str, Any]) -> None:
        for attempt in range(1, MAX_STARTS + 1):
            try:
                with keeping_sigterm():
                    self._ray.init(HERE, include_dashboard=False, _temp_dir=self._folder, **options)
                return
            except Exception as error:  # on a busy machine Ray raises a bare Exception after 30 s
                self._ray.shutdown()
                if attempt == MAX_STARTS:
                    raise CommandFailed(f"{flag}: Ray does not start: {error}") from None

    def close(self) -> None:
        """Ends Ray and deletes its folder."""
        self._ray.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)
