"""UDP ports of this machine for net games."""

import socket

LOOPBACK = "127.0.0.1"
ATTEMPTS = 100


class PortClaim:
    """A UDP port that nobody uses, and that no other claim on this machine has until `release`.

    Two engines at one port would not only fail: ViZDoom 1.3 crashes the process whose engine ends while it
    starts. A claim is a TCP socket bound to the same number, which the operating system gives out once, and
    takes back when the process ends, however it ends. Raises OSError if no port is left.
    """

    def __init__(self):
        for _ in range(ATTEMPTS):
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._socket.bind((LOOPBACK, 0))
            self.number: int = self._socket.getsockname()[1]
            if _is_free(self.number):
                return
            self._socket.close()
        raise OSError(f"{ATTEMPTS} UDP ports in a row are in use")

    def release(self) -> None:
        self._socket.close()


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
