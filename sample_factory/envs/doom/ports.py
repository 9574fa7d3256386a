"""UDP ports of this machine for net games."""

import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
ATTEMPTS = 100
LOWEST, HIGHEST = 10_000, 60_000
MIN_CHOICE = 1_000
# Linux says here which numbers it gives to sockets that ask for any.
RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUAL_START = 32_768


class PortClaim:
    """A UDP port that nobody uses, and that no other claim on this machine has until `release`.

    Two engines at one port would not only fail: ViZDoom 1.3 crashes the process whose engine ends while it
    starts. A claim is a TCP socket bound to the same number, which the operating system gives out once, and
    takes back when the process ends, however it ends. The number is not among those that sockets get which
    ask for any, as joining engines do. Raises OSError if no port is left.
    """

    def __init__(self):
        # The common generator may have been seeded, in all processes alike.
        draw, numbers = random.SystemRandom(), _numbers()
        for _ in range(ATTEMPTS):
            self.number = draw.choice(numbers)
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            if _binds(self._socket, LOOPBACK, self.number) and _is_free(self.number):
                return
            self._socket.close()
        raise OSError(f"{ATTEMPTS} ports between {numbers.start} and {numbers.stop} are in use")

    def release(self) -> None:
        self._socket.close()


def _numbers() -> range:
    start = int(RANGE_FILE.read_text().split()[0]) if RANGE_FILE.exists() else USUAL_START
    return range(LOWEST, start if start - LOWEST >= MIN_CHOICE else HIGHEST)


def _is_free(number: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return _binds(probe, "", number)


def _binds(sock: socket.socket, host: str, number: int) -> bool:
    try:
        sock.bind((host, number))
    except OSError:
        return False
    return True
