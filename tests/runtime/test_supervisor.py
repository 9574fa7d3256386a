"""Tests of the supervisor and of the signals of the main process."""

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sample_factory.runtime import cpu
from sample_factory.runtime import supervisor as supervisor_module
from sample_factory.runtime.child import Child, ChildOptions
from sample_factory.runtime.failures import Failure
from sample_factory.runtime.log import log
from sample_factory.runtime.supervisor import (
    REPEAT_SECONDS,
    Limits,
    StopRequested,
    StopSignals,
    Supervisor,
    stop_all,
)
from sample_factory.runtime.template import template
from tests.runtime.bodies import (
    ExitsWith,
    FailsForGood,
    FailsInFactory,
    FailsWhenStopped,
    GetsStuck,
    GetsStuckLater,
    Idle,
    LosesPeer,
    NeverReady,
    Stubborn,
)
from tests.waiting import eventually, is_alive, kill_9, wait_ready

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def template_of_all_tests():
    with template(["tests.runtime.bodies"], cpu.ONE_THREAD):
        yield


def forked(name, factory, args=()):
    """Returns a child that starts quickly. It writes to the stderr of the first test."""
    return Child(name, factory, args, ChildOptions(from_template=True))


@contextlib.contextmanager
def started(*arguments, **options):
    """Yields a Supervisor that has started its children."""
    with Supervisor(*arguments, **options) as supervisor:
        supervisor.start_all()
        yield supervisor


def await_check(supervisor: Supervisor, restarts: bool = True) -> list[Child]:
    """Calls check() until it returns dead children; returns them."""
    dead = {}
    assert eventually(lambda: dead.update(supervisor.check(restarts)) or dead), "no child died"
    return list(dead)


def await_ready(supervisor: Supervisor) -> None:
    """Returns when all children are ready; raises the first failure."""
    assert eventually(lambda: supervisor.check(restarts=False) == {} and supervisor.is_ready)


def test_all_children_become_ready_and_stop_in_their_stages():
    learner, workers = forked("learner", Idle), [forked(f"worker_{i}", Idle) for i in range(2)]
    with started([learner, *workers]) as supervisor:
        await_ready(supervisor)
        assert supervisor.check() == {}
        for children in (workers, [learner]):
            assert stop_all(children, grace_seconds=15) == ([], {})
        assert [child.exit_code for child in supervisor.children] == [0, 0, 0]


def test_the_first_failure_to_build_is_raised_while_others_are_still_not_ready():
    raises = pytest.raises(Failure, match="bad: LookupError: no such map")
    with started([forked("good", Idle), forked("bad", FailsInFactory)]) as supervisor, raises:
        await_ready(supervisor)
    assert not any(child.is_alive for child in supervisor.children)


def test_a_restartable_child_that_was_ready_is_replaced_while_others_are_still_starting():
    slow, worker = forked("slow", NeverReady), forked("worker", Idle)
    with started([slow, worker], restartable=[slow, worker]) as supervisor:
        wait_ready(worker, 60)
        kill_9(worker.pid)
        assert await_check(supervisor, restarts=False) == [worker]
        kill_9(supervisor.restart(worker).pid)  # a successor may die even before it is ready
        assert [child.name for child in await_check(supervisor, restarts=False)] == ["worker"]
        kill_9(slow.pid)
        with pytest.raises(Failure, match="slow: ended by signal 9"):
            await_ready(supervisor)


def test_a_death_ends_the_run_unless_the_child_is_restartable():
    learner, worker = forked("learner", Idle), forked("worker", Idle)
    with started([learner, worker], restartable=[worker]) as supervisor:
        await_ready(supervisor)
        kill_9(worker.pid)
        assert await_check(supervisor) == [worker]
        successor = supervisor.restart(worker)
        await_ready(supervisor)
        assert supervisor.check() == {} and successor.pid != worker.pid
        kill_9(learner.pid)
        with pytest.raises(Failure, match="learner: ended by signal 9"):
            await_check(supervisor)
        stop_all(supervisor.children, grace_seconds=15)
        assert successor.exit_code == 0


def test_a_child_that_has_lost_another_one_is_not_named_before_it():
    first, other, worker = forked("first", LosesPeer), forked("other", Idle), forked("worker", Idle)
    with started([first, other, worker], restartable=[worker]) as supervisor:
        assert eventually(lambda: first.failure is not None and other.ready and worker.ready)
        kill_9(worker.pid)
        threading.Timer(0.3, os.kill, [other.pid, signal.SIGKILL]).start()
        with pytest.raises(Failure, match="other: ended by signal 9"):
            supervisor.check()


def test_a_lost_connection_is_the_failure_if_no_other_child_has_failed(monkeypatch):
    monkeypatch.setattr(supervisor_module, "PEER_SECONDS", 0.1)
    raises = pytest.raises(Failure, match="^lost the connection to another child")
    with started([forked("first", LosesPeer), forked("other", Idle)]) as supervisor, raises:
        await_check(supervisor)


def test_repeated_deaths_of_a_restartable_child_end_the_run():
    worker = forked("worker", ExitsWith, (4,))
    raises = pytest.raises(Failure, match="worker: died 3 times in a row, .* exit code 4")
    with started([worker], restartable=[worker], limits=Limits(deaths=2)) as supervisor, raises:
        for _ in range(3):
            supervisor.restart(*await_check(supervisor))


def test_a_child_that_was_useful_for_long_may_die_again():
    worker = forked("worker", GetsStuckLater)
    limits = Limits(deaths=1, useful_seconds=0.05, silent_seconds=1.5)
    with started([worker], restartable=[worker], limits=limits) as supervisor:
        for _ in range(2):
            supervisor.restart(*await_check(supervisor))


def test_a_permanent_failure_ends_the_run_at_once():
    worker = forked("worker", FailsForGood)
    raises = pytest.raises(Failure, match="^no such map, ever$")
    with started([worker], restartable=[worker]) as supervisor, raises:
        await_check(supervisor)


def test_a_child_that_is_stuck_prints_where_and_counts_as_dead(capfd):
    stuck, idle = Child("stuck", GetsStuck), Child("idle", Idle)
    with started([stuck, idle], restartable=[stuck], limits=Limits(silent_seconds=0.6)) as supervisor:
        assert eventually(lambda: supervisor.is_ready)
        assert await_check(supervisor) == [stuck], "the other one never sends heartbeats, so it is not stuck"
        assert (
            stuck.failure.message == "was stuck: no sign of life for 0.6 s (--heartbeat_reporting_interval)"
        )
        assert "in sleep_for_ever" in capfd.readouterr().err
        supervisor.restart(stuck)
        assert eventually(lambda: supervisor.is_ready)


def test_a_stuck_child_that_is_not_restartable_ends_the_run():
    stuck = forked("stuck", GetsStuck)
    with started([stuck], limits=Limits(silent_seconds=0.6)) as supervisor:
        assert eventually(lambda: supervisor.is_ready)
        with pytest.raises(Failure, match="stuck: was stuck: no sign of life for 0.6 s"):
            await_check(supervisor)


def test_time_in_which_the_run_was_suspended_is_no_silence(monkeypatch):
    monkeypatch.setattr(supervisor_module, "GAP_SECONDS", 0.5)
    children = [forked("stuck", GetsStuck), forked("slow", NeverReady)]
    limits = Limits(deaths=10**9, silent_seconds=0.8, start_seconds=0.8)
    with started(children, children, limits) as supervisor:
        assert supervisor.check() == {} and eventually(lambda: children[0].ready)
        assert eventually(lambda: children[0].silent_seconds > 0.01)
        supervisor.check()
        for _ in range(2):
            time.sleep(1.0)  # as if nothing ran
            assert supervisor.check() == {}
        assert eventually(lambda: len(supervisor.check()) == 2), "they are stuck"


def test_a_successor_that_never_gets_ready_counts_as_dead_too():
    child = forked("slow", NeverReady)
    with started([child], restartable=[child], limits=Limits(start_seconds=0.5)) as supervisor:
        assert await_check(supervisor) == [child]
        assert child.failure.message == "not ready after 0.5 s"


def test_a_child_that_is_busy_is_waited_for_and_killed_without_stacks(capfd, caplog, monkeypatch):
    monkeypatch.setattr(supervisor_module, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(log, "propagate", True)
    child = Child("stubborn", Stubborn)
    with started([child]) as supervisor, caplog.at_level(logging.INFO, "sample_factory"):
        await_ready(supervisor)
        too_slow, _ = stop_all([child], grace_seconds=1, describe=lambda child: f"{child.name} (level 3)")
        assert too_slow == ["stubborn"] and not child.is_alive
    waiting, killed = caplog.messages
    assert re.fullmatch(r"Waiting up to [01] s for stubborn \(level 3\)", waiting)
    assert killed == "Not stopped within 1 s, and killed: stubborn (level 3)"
    assert "Current thread" not in capfd.readouterr().err


def test_the_failure_of_a_child_that_was_asked_to_stop_before_its_stage_is_reported():
    idle, failing = forked("idle", Idle), forked("failing", FailsWhenStopped)
    with started([idle, failing]) as supervisor:
        await_ready(supervisor)
        failing.stop()
        assert failing.join(15)
        _, failed = stop_all([idle, failing], grace_seconds=15)
    assert [*failed] == ["failing"]


def test_a_child_that_is_not_ready_is_not_waited_for_when_it_is_to_stop():
    child = forked("slow", NeverReady)
    with started([child]):
        assert stop_all([child], grace_seconds=600) == ([], {})
        assert not child.is_alive


def test_a_signal_is_recorded_and_the_previous_handlers_are_restored():
    former = signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        assert signals.requested is None
        signal.raise_signal(signal.SIGTERM)
        assert signals.requested == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == former


MAIN = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from sample_factory.runtime.child import Child
from sample_factory.runtime.shared_arrays import ArraySpec, SharedArrays
from sample_factory.runtime.supervisor import StopSignals, Supervisor, stop_all
from tests.runtime.bodies import WithSimulator
from tests.waiting import eventually

pids = SharedArrays({{"pids": ArraySpec((3,), "int64")}})
signals = StopSignals(lambda: "Level 3 is lost.")
with signals, Supervisor([Child("child", WithSimulator, (pids, True))]) as supervisor:
    supervisor.start_all()
    assert eventually(lambda: supervisor.is_ready, 30)
    print(*pids["pids"], flush=True)
    assert eventually(lambda: signals.requested, 600)
    print("stopping", flush=True)
    stop_all(supervisor.children, grace_seconds=60)
"""


def test_repeats_of_a_signal_are_one_request_and_a_later_one_kills_all_children_and_says_what_is_lost():
    main = subprocess.Popen([sys.executable, "-c", MAIN], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        pids = [int(pid) for pid in main.stdout.readline().split()]
        main.send_signal(signal.SIGTERM)
        time.sleep(0.003)
        main.send_signal(signal.SIGTERM)
        assert main.stdout.readline() == b"stopping\n"
        time.sleep(REPEAT_SECONDS)
        assert main.poll() is None
        main.send_signal(signal.SIGINT)
        assert main.wait(15) == 128 + signal.SIGINT
        assert b"SIGINT received again: ended at once. Level 3 is lost.\n" in main.stderr.read()
        assert eventually(lambda: not any(is_alive(pid) for pid in pids))
    finally:
        main.kill()
        main.communicate()


def test_a_second_interrupt_of_a_process_with_other_work_raises_and_kills_all_children(monkeypatch):
    monkeypatch.setattr(supervisor_module, "REPEAT_SECONDS", 0.0)
    child = forked("child", Idle)
    former = signal.getsignal(signal.SIGINT)
    message = "SIGINT received again: ended at once. Level 3 is lost."
    signals = StopSignals(lambda: "Level 3 is lost.", keeps_process=True)
    with pytest.raises(KeyboardInterrupt, match=message), signals:
        child.start()
        wait_ready(child, 30)
        signal.raise_signal(signal.SIGINT)
        assert signals.requested == signal.SIGINT and child.is_alive
        signal.raise_signal(signal.SIGINT)
    assert eventually(lambda: not child.is_alive)
    assert signal.getsignal(signal.SIGINT) is former


def test_a_signal_interrupts_a_block_that_watches_no_flag(monkeypatch):
    monkeypatch.setattr(supervisor_module, "REPEAT_SECONDS", 60.0)  # a later one would end this process
    with StopSignals() as signals:
        with pytest.raises(StopRequested), signals.interrupting():
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # a repeat, not within the block
        with pytest.raises(StopRequested), signals.interrupting():
            raise AssertionError("the signal that came before ends the block")


def test_an_ignored_signal_stays_ignored():
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.requested is None
    finally:
        signal.signal(signal.SIGHUP, former)
