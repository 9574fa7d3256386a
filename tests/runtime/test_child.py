"""Children: how they start, fail, stop, and what they leave behind."""

import contextlib
import itertools
import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.runtime import child as child_module
from sample_factory.runtime import child_side, cpu, failures
from sample_factory.runtime import template as template_module
from sample_factory.runtime.child import Child, ChildOptions, call_in_child, run_in_child
from sample_factory.runtime.failures import Failure
from sample_factory.runtime.log import log
from sample_factory.runtime.programs import unmarked_environment
from sample_factory.runtime.queues import SocketQueue
from sample_factory.runtime.shared_arrays import ArraySpec, SharedArrays
from sample_factory.runtime.template import current, template
from tests.runtime.bodies import (
    BeatsOnceWhileItIsBuilt,
    CannotEnd,
    Doubles,
    ExitsWith,
    FailsInFactory,
    FailsInThread,
    Idle,
    Returns,
    Stubborn,
    Surroundings,
    WithSimulator,
)
from tests.waiting import eventually, is_alive, kill_9, wait_ready

ROOT = Path(__file__).parents[2]


BODIES = ["tests.runtime.bodies"]


@pytest.fixture(scope="module")
def template_of_all_tests():
    with template(BODIES, cpu.ONE_THREAD):
        yield


@pytest.fixture(params=[False, True], ids=["executed", "forked"])
def start(request, monkeypatch):
    """Returns a function that starts a child: start(factory, *args, **options). All are killed at the end."""
    # A template writes to the stderr that it was started with, which has to be the one that a test reads.
    has_own_template = request.param and "capfd" in request.fixturenames
    if has_own_template:
        monkeypatch.setattr(template_module, "_current", None)
    elif request.param:
        request.getfixturevalue("template_of_all_tests")
    children = []
    with contextlib.ExitStack() as stack:

        def start_child(factory, *args, **options):
            if has_own_template and current() is None:
                stack.enter_context(template(BODIES, cpu.ONE_THREAD))
            options = ChildOptions(**options, from_template=request.param)
            children.append(Child(factory.__name__, factory, args, options))
            children[-1].start()
            return children[-1]

        yield start_child
        for child in children:
            child.kill()


def test_a_child_stops_when_asked_and_that_is_no_failure(start):
    child = start(Idle)
    wait_ready(child, 15)
    assert child.is_alive and child.exit_code is None and child.failure is None
    child.stop()
    assert child.join(15)
    assert (child.exit_code, child.failure, child.result) == (0, None, "stopped")


def test_the_time_without_a_heartbeat_before_it_was_ready_does_not_count(start):
    child = start(BeatsOnceWhileItIsBuilt)
    wait_ready(child, 15)
    assert 0 < child.silent_seconds < 1.0


def test_an_exception_in_the_factory_is_raised_in_the_parent_with_the_traceback(start):
    child = start(FailsInFactory)
    with pytest.raises(Failure, match="LookupError: no such map") as caught:
        wait_ready(child, 15)
    assert caught.value.where == "FailsInFactory" and not caught.value.permanent
    assert "(bodies.py:" in caught.value.message and "\n" not in str(caught.value)
    assert "Traceback" in caught.value.traceback and "bodies.py" in caught.value.traceback
    assert child.join(15) and child.exit_code == 1


def raise_wrapped():
    try:
        raise ConfigError("no such map")
    except ConfigError as error:
        raise RuntimeError from error


def test_an_exception_of_a_child_is_recognised_by_its_class_and_by_its_causes():
    with pytest.raises(Failure) as caught:
        call_in_child("child", raise_wrapped)
    error = caught.value
    assert error.is_a(RuntimeError) and error.text == ""
    assert error.caused_by("builtins.ValueError") and not error.caused_by("ValueError")
    names = map(failures.qualified_name, (ConfigError, RuntimeError))
    assert all(map(error.caused_by, names)) and not error.is_a(ConfigError)


def test_a_cycle_of_causes_ends():
    first, second = ValueError("a"), KeyError("b")
    first.__cause__ = second
    second.__cause__ = first
    assert Failure.of(first, "child").caused_by("builtins.KeyError")


def test_a_factory_that_is_not_found_in_the_child_is_its_failure():
    child = Child("child", "tests.runtime.bodies:Idel")
    child.start()
    with pytest.raises(Failure, match="tests.runtime.bodies has no attribute Idel"):
        wait_ready(child, 15)
    child.kill()


def test_a_factory_given_by_its_name_is_imported_in_the_child():
    child = Child("child", "tests.runtime.bodies:Returns", (), ChildOptions(one_shot=True))
    child.start()
    assert child.join(15) and child.failure is None and child.result == 7


def test_an_exception_in_a_thread_of_the_child_is_its_failure_too(start):
    child = start(FailsInThread)
    assert eventually(lambda: child.failure is not None)
    assert "ArithmeticError: in the thread" in child.failure.message


@pytest.mark.parametrize(
    ("code", "hint", "reason"), [(0, "", ""), (3, "the head has died", "; the head has died")]
)
def test_a_silent_end_is_a_failure_whatever_the_exit_code_and_of_no_exception_class(
    start, code, hint, reason
):
    child = start(ExitsWith, code, exit_hint=hint)
    assert child.join(15)
    message = f"ended with exit code {code} without a request to stop{reason}"
    assert child.failure.text == child.failure.message == message
    assert not child.failure.is_a(BaseException) and not child.failure.caused_by("builtins.BaseException")


def test_an_exit_without_a_reason_names_the_limit_of_the_address_space(start):
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (10**14, hard))  # far beyond what this process uses
    try:
        child = start(ExitsWith, 3)
        assert child.join(15)
        assert child.failure is not None and child.failure.message.endswith(
            "to stop; the address space is limited to 100,000,000 MB (ulimit -v); it should be unlimited"
        )
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def use_up_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
    with pytest.raises(OSError, match="Too many open files") as caught:
        list(map(SocketQueue, [2000] * 30))
    return Failure.of(caught.value, "child").message


def test_a_limit_of_open_files_is_named_where_this_package_needs_them():
    message = call_in_child("child", use_up_files)
    assert message.endswith("; allow more (ulimit -n), or use fewer workers")


def test_a_limit_of_processes_and_threads_is_named():
    assert "ulimit -u" in Failure.of(RuntimeError("can't start new thread"), "child").message


def test_a_run_that_returns_unasked_is_a_failure_unless_the_child_is_one_shot(start):
    worker, probe = start(Returns), start(Returns, one_shot=True)
    assert worker.join(15) and "returned" in worker.failure.message
    assert probe.join(15) and probe.failure is None and probe.result == 7


def test_a_killed_child_says_by_which_signal(start):
    child = start(Idle)
    wait_ready(child, 15)
    kill_9(child.pid)
    assert child.join(15)
    assert child.exit_code == -9 and "signal 9 (SIGKILL" in child.failure.message


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_dead_childs_simulators_are_killed_when_its_end_is_noticed(start, stubborn):
    pids = SharedArrays({"pids": ArraySpec((3,), np.int64)})
    child = start(WithSimulator, pids, stubborn)
    wait_ready(child, 15)
    child_pid, *simulators = map(int, pids["pids"])
    assert child_pid == child.pid and all(map(is_alive, simulators))
    kill_9(child.pid)
    assert child.join(15)  # although a simulator, which inherits descriptors, is alive
    assert eventually(lambda: not any(map(is_alive, simulators)))


def test_kill_ends_a_child_that_does_not_stop_with_its_simulators(start):
    pids = SharedArrays({"pids": ArraySpec((3,), np.int64)})
    child = start(WithSimulator, pids, True)
    wait_ready(child, 15)
    child.stop()
    assert not child.join(0.1)
    child.kill()
    assert not child.is_alive and child.exit_code == -9
    assert eventually(lambda: not any(is_alive(int(pid)) for pid in pids["pids"]))


@pytest.mark.parametrize("end", ["stop", "sigterm"])
def test_a_childs_simulators_end_with_it_when_it_stops(start, end):
    pids = SharedArrays({"pids": ArraySpec((3,), np.int64)})
    child = start(WithSimulator, pids, False, one_shot=True)
    wait_ready(child, 15)
    child.stop() if end == "stop" else os.kill(child.pid, signal.SIGTERM)
    assert child.join(15) and child.exit_code == 0
    assert eventually(lambda: not any(is_alive(int(pid)) for pid in pids["pids"]))


def test_a_process_started_without_the_mark_outlives_its_child():
    pid = call_in_child("starts", start_unmarked)
    assert is_alive(pid)
    kill_9(pid)


def start_unmarked() -> int:
    options = {"start_new_session": True, "env": unmarked_environment()}
    return subprocess.Popen(["/bin/sleep", "600"], **options).pid


@pytest.mark.parametrize("kind", ["thread", "cleanup", "exit handler"])
def test_a_child_that_cannot_end_is_ended_and_shows_what_it_waits_for(kind, monkeypatch, caplog, capfd):
    monkeypatch.setattr(log, "propagate", True)
    assert run_in_child("child", CannotEnd, (kind,)) == "a result"
    [message] = caplog.messages
    assert message.startswith("Ended by force, 0.3 s after its work was done")
    assert ("in sleep_for_ever" in capfd.readouterr().err) == (kind != "exit handler")


def test_what_a_cleanup_raises_is_a_failure():
    with pytest.raises(Failure, match="LookupError: nothing to clean up"):
        run_in_child("child", CannotEnd, ("failing cleanup",))


def test_a_child_that_cannot_even_end_itself_is_killed_and_named(monkeypatch, caplog):
    monkeypatch.setattr(log, "propagate", True)
    monkeypatch.setattr(child_module, "END_SECONDS", 0.1)
    monkeypatch.setattr(child_module, "MORE_SECONDS", 0.1)
    assert run_in_child("child", CannotEnd, ("stopped",)) == "a result"
    assert caplog.messages == ["child has not ended 0.1 s after its work was done, and is killed"]


def test_environment_cores_and_niceness_are_in_effect_in_the_child(start):
    core = min(os.sched_getaffinity(0))
    child = start(
        Surroundings, cores=frozenset({core}), niceness=3, environment={"OMP_NUM_THREADS": "1"}, one_shot=True
    )
    assert child.join(15)
    assert child.failure is None
    seen = child.result
    assert seen["cores"] == {core}
    assert seen["niceness"] == os.nice(0) + 3
    assert seen["environment"]["OMP_NUM_THREADS"] == "1"
    assert {signal.SIGINT, signal.SIGHUP, signal.SIGTTOU} <= seen["ignored"] and seen["leads_group"]
    assert seen["session"] == os.getsid(0), "within which niceness counts"
    assert "torch" not in seen["modules"]


def test_a_session_of_its_own_has_the_niceness_of_its_child(start):
    child = start(Surroundings, niceness=3, own_session=True, one_shot=True)
    assert child.join(15)
    assert child.failure is None
    seen = child.result
    assert seen["session"] == child.pid and seen["leads_group"]
    assert seen["session_niceness"] in (None, os.nice(0) + 3)


def test_a_session_that_must_keep_its_niceness_is_logged_and_no_failure(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(cpu, "AUTOGROUP", str(tmp_path))
    with caplog.at_level("WARNING", "sample_factory"):
        child_side._pass_niceness()
    assert "the same share of the cores as learners: [Errno 21] Is a directory" in caplog.text


def test_niceness_is_passed_to_the_session_though_linux_allows_it_only_now_and_then(tmp_path, monkeypatch):
    file, write, refusals = tmp_path / "autogroup", os.write, [BlockingIOError(), BlockingIOError()]

    def refuse_at_first(fd, data):
        if refusals:
            raise refusals.pop()
        return write(fd, data)

    monkeypatch.setattr(cpu, "AUTOGROUP", str(file))
    cpu.pass_niceness_to_session()
    assert not file.exists(), "there are no autogroups"
    file.touch()
    monkeypatch.setattr(os, "write", refuse_at_first)
    cpu.pass_niceness_to_session()
    assert file.read_text() == str(os.nice(0)) and not refusals


def test_arrays_and_queues_are_shared_with_a_child_and_with_its_successor(start):
    arrays = SharedArrays({"numbers": ArraySpec((3,), np.float32)})
    orders = SocketQueue()
    done = SocketQueue()
    arrays["numbers"][:] = 1, 2, 3
    child = start(Doubles, arrays, orders, done)
    orders.put("first")
    assert done.get_many(15) == ["first"]
    kill_9(child.pid)
    assert child.join(15)
    successor = child.make_successor()
    successor.start()
    orders.put("second")
    assert done.get_many(15) == ["second"]
    successor.kill()
    assert arrays["numbers"].tolist() == [4, 8, 12]


def test_call_in_child_returns_the_result_or_raises_the_failure():
    offset = 5
    assert call_in_child("adds", lambda x: x + offset, (3,)) == 8
    with pytest.raises(Failure, match="ZeroDivisionError"):
        call_in_child("divides", lambda: 1 / 0)
    with pytest.raises(Failure, match="has not returned after 0.2 s"):
        call_in_child("sleeps", Stubborn(None).run, timeout=0.2)
    with pytest.raises(Failure, match="exit code 5"):
        call_in_child("crashes", os._exit, (5,))


def test_a_stuck_child_prints_where_it_is_stuck(start, capfd):
    child = start(Stubborn)
    wait_ready(child, 15)
    printed = []

    def is_named() -> bool:
        child.dump_stacks()  # repeatedly: the child is ready a moment before `run` is called
        printed.append(capfd.readouterr().err)
        return "bodies.py" in "".join(printed)

    assert eventually(is_named)


def test_a_result_larger_than_the_connection_holds_arrives():
    assert len(call_in_child("large", bytes, (5_000_000,))) == 5_000_000


def run_script(folder: Path, source: str) -> subprocess.CompletedProcess:
    script = folder / "script.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + textwrap.dedent(source))
    command = [sys.executable, str(script)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_classes_of_an_unguarded_main_script_work_and_the_script_runs_once(tmp_path):
    done = run_script(
        tmp_path,
        """
        print("the script runs")
        from sample_factory.runtime.child import Child, ChildOptions

        FACTOR = 3

        class Setting:
            value = 2

        class Body:
            def __init__(self, setting, context):
                self.setting = setting

            def run(self):
                self.setting.value *= FACTOR
                return self.setting

        child = Child("body", Body, (Setting(),), ChildOptions(one_shot=True))
        child.start()
        child.join(30)
        print(child.failure, child.result.value, type(child.result) is Setting)
    """,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["the script runs", "None 6 True"]


def test_classes_of_the_script_work_in_a_process_that_multiprocessing_has_spawned(tmp_path):
    done = run_script(
        tmp_path,
        """
        import multiprocessing
        from sample_factory.runtime.child import call_in_child

        class Value:
            number = 2

        def doubled(value):
            value.number *= 2
            return value

        def work():
            found = call_in_child("child", doubled, (Value(),))
            print(found.number, type(found) is Value)

        if __name__ == "__main__":
            process = multiprocessing.get_context("spawn").Process(target=work)
            process.start()
            process.join()
    """,
    )
    assert (done.stdout, done.stderr) == ("4 True\n", "")


PARENT = """
import os, sys
sys.path.insert(0, {root!r})
from sample_factory.runtime.child import Child, ChildOptions
from sample_factory.runtime.failures import Failure
from sample_factory.runtime.log import log
from sample_factory.runtime.programs import unmarked_environment
from sample_factory.runtime.shared_arrays import ArraySpec, SharedArrays
from sample_factory.runtime.template import current, template
from tests.runtime.bodies import WithSimulator
from tests.waiting import wait_ready

pids = SharedArrays({{"pids": ArraySpec((3,), "int64")}})
options = ChildOptions(grace_seconds=0.5, from_template={forked})
child = Child("child", WithSimulator, (pids, {stubborn}), options)
with template([], {{}}):
    child.start()
    wait_ready(child, 300)
    print(*pids["pids"], current()._process.pid, flush=True)
    {end}
"""


ENDS = ["os.kill(os.getpid(), 9)", "sys.exit(0)", "raise ValueError"]


@pytest.fixture(scope="module")
def ended_parents():
    """Returns the process ids of child, simulators and template by (forked, stubborn, end); all parents run
    side by side."""
    parents = {}
    for forked, stubborn, end in itertools.product([False, True], [False, True], ENDS):
        source = PARENT.format(root=str(ROOT), forked=forked, stubborn=stubborn, end=end)
        command = [sys.executable, "-c", source]
        parents[forked, stubborn, end] = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    outputs = {key: parent.communicate(timeout=300)[0] for key, parent in parents.items()}
    return {key: [int(pid) for pid in output.split()] for key, output in outputs.items()}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("forked", [False, True])
def test_no_process_outlives_its_parent_however_that_ends(ended_parents, forked, stubborn, end):
    pids = ended_parents[forked, stubborn, end]
    assert len(pids) == 4
    assert eventually(lambda: not any(is_alive(pid) for pid in pids))


def processes_of_this_thread() -> set[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as children:
        return {int(pid) for pid in children.read().split()}


def test_a_childs_start_adds_no_other_process(start):
    before = processes_of_this_thread()
    child = start(Idle)
    wait_ready(child, 15)
    own = set() if child.options.from_template else {child.pid}
    assert processes_of_this_thread() - before == own
    child.kill()
