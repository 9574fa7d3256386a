"""In the parent: starts the process of a `Child`.

multiprocessing.Process does not serve here, for three reasons:

- Its children run the user's main script a second time: a script without the `if __name__ == "__main__"`
  guard starts itself again, and a class from a notebook cannot be found.
- It starts one more process, the resource tracker.
- A simulator that outlives a killed child keeps the pipe open by which the parent would notice the death.
"""

import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from multiprocessing import context
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle

from sample_factory.runtime import template
from sample_factory.runtime.log import current_settings
from sample_factory.runtime.passed_fds import PassedFds
from sample_factory.runtime.programs import VARIABLE
from sample_factory.runtime.shared_arrays import anonymous_file

START_CHILD = str(Path(__file__).with_name("start_child.py"))

Factory = Callable[..., Any] | str  # a string: "module:attribute"


class ChildOptions(NamedTuple):
    """Options of a child process.

    cores: CPU cores that the child and everything it starts may use; None: the parent's cores.
    niceness: added to the parent's nice value.
    environment: variables set before the child's interpreter starts, e.g. {"OMP_NUM_THREADS": "1"}.
    grace_seconds: how long the child may continue after the main process has died.
    one_shot: `run` may return before the child is asked to stop.
    own_session: whether the child leads a session; for a child that takes turns with processes it starts,
        such as simulators. Several such pairs in one session kept the programs of other sessions from the
        cores for 17 s (Linux 6.18).
    exit_hint: likely cause of an exit without an exception, e.g. that a library exits; added to the message.
    from_template: fork the child from the template process if there is one, see template.py. `environment` is
        then set after the template's modules are imported.
    """

    cores: frozenset[int] | None = None
    niceness: int = 0
    environment: Mapping[str, str] = {}
    grace_seconds: float = 10.0
    one_shot: bool = False
    own_session: bool = False
    exit_hint: str = ""
    from_template: bool = False


class ExecutedProcess(subprocess.Popen[bytes]):
    """In the parent: a child process with a new Python interpreter, in contrast to a ForkedProcess."""

    def has_ended(self) -> bool:
        """Returns whether the process has ended; its process id stays reserved until `wait`."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # other code of this process has reaped it
            return True


# In the parent: a process that was started for a child.
Process = ExecutedProcess | template.ForkedProcess


def launch(
    name: str,
    mark: str,
    factory: Factory,
    args: tuple[Any, ...],
    options: ChildOptions,
    connection: int,
) -> Process:
    """In the parent: starts a process that will build `factory(*args, context)`.

    Returns without waiting for the process. The first fork from a template waits until the template has
    imported its modules.

    mark: value of an environment variable that the process and all it will start inherit, see `kill_marked`.
    connection: file descriptor of the child's end of the connection. The caller closes it afterwards.
    """
    environment = {**os.environ, **options.environment, VARIABLE: mark}
    settings = {
        "name": name,
        "mark": mark,
        "path": sys.path,
        **options._asdict(),
        "environment": environment,
        **current_settings(),
    }
    payload, fds = _write_payload(settings, factory, args)
    source = template.current() if options.from_template else None
    try:
        forked = None if source is None else source.fork(name, payload, connection, fds)
        return forked or ExecutedProcess(
            # -P: the folder of the script must not be searched for modules of the standard library.
            [sys.executable, "-P", START_CHILD, str(payload), str(connection), name],
            pass_fds=[payload, connection, *fds],
            stdin=subprocess.DEVNULL,
            env=environment,
            # A process group of its own, so that Ctrl+C in the terminal reaches neither the child nor what it
            # starts. A session of its own only on request, see `cpu.pass_niceness_to_session`.
            process_group=None if options.own_session else 0,
            start_new_session=options.own_session,
        )
    finally:
        os.close(payload)


def _write_payload(
    settings: Mapping[str, Any], factory: Factory, args: tuple[Any, ...]
) -> tuple[int, list[int]]:
    """Writes settings, factory and arguments to an unnamed file for the child.

    Returns (descriptor of the file, descriptors that are pickled in it and must be passed to the child).

    A file is used since writing to the connection would have to wait for the child's interpreter.
    """
    stream = io.BytesIO()
    pickle.dump(settings, stream)
    collected = PassedFds()
    # In a process that multiprocessing has started, the script has this name.
    script = sys.modules.get("__mp_main__")
    if script is not None:
        cloudpickle.register_pickle_by_value(script)
    context.set_spawning_popen(collected)  # type: ignore[arg-type]  # takes its place, see the class
    try:
        cloudpickle.dump((factory, args), stream)
    finally:
        context.set_spawning_popen(None)
    fd = anonymous_file(0)
    with open(fd, "wb", closefd=False) as file:
        file.write(stream.getbuffer())
    return fd, collected.fds
