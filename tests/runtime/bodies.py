"""Objects that the tests run in children."""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from sample_factory.runtime import child_side, cpu
from sample_factory.runtime.child import ChildContext
from sample_factory.runtime.failures import Explained, PeerLost
from sample_factory.runtime.queues import Queue
from sample_factory.runtime.shared_arrays import SharedArrays
from tests.waiting import eventually


class Idle:
    """Waits until it is asked to stop."""

    def __init__(self, context: ChildContext):
        self.context = context

    def run(self) -> str:
        self.context.stopping.wait()
        return "stopped"


class FailsInFactory:
    def __init__(self, context: ChildContext):
        raise LookupError("no such map")


class FailsWhenStopped(Idle):
    def run(self) -> str:
        super().run()
        raise OSError("the disk is full")


class FailsInThread(Idle):
    def run(self) -> str:
        threading.Thread(target=self._raise).start()
        return super().run()

    def _raise(self) -> None:
        raise ArithmeticError("in the thread")


class Returns(Idle):
    def run(self) -> int:
        return 7


class ExitsWith(Idle):
    """Ends without a message to the parent, like a crash in native code."""

    def __init__(self, code: int, context: ChildContext):
        super().__init__(context)
        self.code = code

    def run(self) -> None:
        os._exit(self.code)


class LosesPeer(Idle):
    """Has lost the connection to another child as soon as it runs."""

    def run(self) -> None:
        raise PeerLost("lost the connection to another child")


class FailsForGood(Idle):
    """Fails in a way that would repeat itself."""

    def run(self) -> None:
        raise Explained("no such map, ever")


class GetsStuck(Idle):
    """Sends two heartbeats, then gets stuck."""

    useful_seconds = 0.11  # between the two

    def run(self) -> None:
        child_side.BEAT_SECONDS = 0.1  # shorter than usual, in this process only
        self.context.beat()
        time.sleep(self.useful_seconds)
        self.context.beat()
        self.sleep_for_ever()

    def sleep_for_ever(self) -> None:
        time.sleep(10_000)


class GetsStuckLater(GetsStuck):
    useful_seconds = 0.5


class BeatsOnceWhileItIsBuilt(Idle):
    def __init__(self, context: ChildContext):
        super().__init__(context)
        context.beat()
        time.sleep(1.0)


class NeverReady(Idle):
    def __init__(self, context: ChildContext):
        time.sleep(10_000)


class HoldsOn(Idle):
    """Holds its argument."""

    def __init__(self, held: Any, context: ChildContext):
        super().__init__(context)
        self.held = held


class CannotEnd(Idle):
    """Returns, and leaves something behind that keeps its process from ending. kind: what."""

    def __init__(self, kind: str, context: ChildContext):
        super().__init__(context)
        child_side.END_SECONDS = 0.3  # shorter than usual, in this process only
        self.kind = kind

    def run(self) -> str:
        if self.kind == "thread":
            threading.Thread(target=self.sleep_for_ever).start()
        elif self.kind == "cleanup":
            self.context.cleanup.callback(self.sleep_for_ever)
        elif self.kind == "exit handler":
            atexit.register(time.sleep, 10_000)
        elif self.kind == "stopped":
            self.context.cleanup.callback(os.kill, os.getpid(), signal.SIGSTOP)
        elif self.kind == "failing cleanup":
            self.context.cleanup.callback(self.fail)
        return "a result"

    def sleep_for_ever(self) -> None:
        time.sleep(10_000)

    def fail(self) -> None:
        raise LookupError("nothing to clean up")


class Stubborn(Idle):
    """Does not stop."""

    def run(self) -> None:
        while True:
            time.sleep(60)


class WithSimulator(Idle):
    """Starts a process that does not end by itself and, like an engine, ignores SIGTERM; and a daemon, which
    no parent and no session connects with this process."""

    def __init__(self, pids: SharedArrays, stubborn: bool, context: ChildContext):
        """pids: [3] int, set to those of this process, the simulator and the daemon."""
        super().__init__(context)
        code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"
        simulator = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, close_fds=False)
        simulator.stdout.readline()
        start_daemon = ["/bin/sh", "-c", "setsid sleep 600 > /dev/null & echo $!"]
        daemon = subprocess.run(start_daemon, stdout=subprocess.PIPE, check=True)
        pids["pids"][:] = os.getpid(), simulator.pid, int(daemon.stdout)
        self.stubborn = stubborn

    def run(self) -> None:
        super().run()
        while self.stubborn:
            time.sleep(60)


class WithoutInheritedFiles(HoldsOn):
    """Returns the descriptors of the queue that a program started by the child would inherit."""

    def run(self) -> set[int]:
        inheritable = set()
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # of the listing itself
                if int(name) > 2 and os.get_inheritable(int(name)):
                    inheritable.add(int(name))
        return inheritable


class Doubles(Idle):
    """Doubles the array once for each message that it gets."""

    def __init__(self, arrays: SharedArrays, orders: Queue, done: Queue, context: ChildContext):
        super().__init__(context)
        self.arrays = arrays
        self.orders = orders
        self.done = done

    def run(self) -> None:
        while not self.context.stopping.is_set():
            for order in self.orders.get_many(timeout=0.05):
                np.multiply(self.arrays["numbers"], 2, out=self.arrays["numbers"])
                self.done.put(order)


class Produces(Idle):
    """Sends (number, 0), (number, 1), ..."""

    def __init__(self, queue: Queue, number: int, count: int, context: ChildContext):
        super().__init__(context)
        self.queue = queue
        self.number = number
        self.count = count

    def run(self) -> bool:
        return all(self.queue.put((self.number, i), self.context.keep_going) for i in range(self.count))


class Consumes(Idle):
    """Forwards messages until it receives None; returns their number."""

    def __init__(self, source: Queue, target: Queue, context: ChildContext):
        super().__init__(context)
        self.source = source
        self.target = target

    def run(self) -> int:
        count = 0
        while True:
            for message in self.source.get_many(timeout=1.0, max_messages=1):
                if message is None:
                    return count
                self.target.put(message)
                count += 1


class Hammers(Idle):
    """Uses the queue as hard as it can."""

    def __init__(self, queue: Queue, writes: bool, context: ChildContext):
        super().__init__(context)
        self.queue = queue
        self.writes = writes

    def run(self) -> None:
        while True:
            if self.writes:
                self.queue.put(("x", 100 * "y"))
            else:
                self.queue.get_many(timeout=1.0)


class Surroundings(Idle):
    """Returns properties of its process."""

    def run(self) -> dict[str, Any]:
        return {
            "cores": os.sched_getaffinity(0),
            "niceness": os.nice(0),
            "environment": dict(os.environ),
            "ignored": {number for number in signal.Signals if signal.getsignal(number) == signal.SIG_IGN},
            "leads_group": os.getpgrp() == os.getpid(),
            "session": os.getsid(0),
            "session_niceness": self._session_niceness() if os.getsid(0) == os.getpid() else None,
            "modules": set(sys.modules),
        }

    def _session_niceness(self) -> int | None:
        """Returns the session's nice value once it is the process's own, None without autogroups."""
        if not os.path.exists(cpu.AUTOGROUP):
            return None
        eventually(lambda: self._autogroup_niceness() == os.nice(0))
        return self._autogroup_niceness()

    def _autogroup_niceness(self) -> int:
        return int(Path(cpu.AUTOGROUP).read_text().split()[-1])
