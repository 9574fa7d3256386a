"""The template process: what its children have in common with others, and what happens when it fails.

test_child.py tests the promises of Child with it, too.
"""

import os
import select
import socket
import subprocess
import sys
import threading

import numpy as np
import psutil
import pytest

from sample_factory.runtime import cpu
from sample_factory.runtime.child import Child, ChildOptions
from sample_factory.runtime.log import log
from sample_factory.runtime.template import START_TEMPLATE, current, template
from tests.runtime.bodies import Idle, Returns
from tests.waiting import eventually, kill_9, wait_ready

OPTIONS = ChildOptions(one_shot=True, from_template=True)


@pytest.fixture
def logged(monkeypatch, caplog):
    """Returns caplog, which receives the log."""
    monkeypatch.setattr(log, "propagate", True)
    return caplog


class Looks(Idle):
    """Returns what tells a process from others."""

    def run(self):
        me = psutil.Process()
        numbers = np.random.randint(2**31, size=4).tolist()
        with open("/proc/self/comm") as comm:
            return me.ppid(), comm.read().strip(), numbers


def results(*names, options=OPTIONS):
    children = [Child(name, Looks, (), options) for name in names]
    for child in children:
        child.start()
    for child in children:
        assert child.join(60) and child.failure is None, child.failure
    return [child.result for child in children]


def test_several_threads_may_start_children():
    found = []
    with template(["numpy"], cpu.ONE_THREAD):
        threads = [
            threading.Thread(target=lambda i=i: found.append(results(f"a{i}", f"b{i}"))) for i in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(found) == 6 and {first[0] for pair in found for first in pair} == {current()._process.pid}
    assert {look[1] for pair in found for look in pair} == {
        f"{letter}{i}" for letter in "ab" for i in range(6)
    }


def test_forked_children_have_names_of_their_own_and_draw_other_numbers():
    with template(["numpy"], cpu.ONE_THREAD):
        first, second = results("policy_worker_0_1", "a_sampler_with_a_very_long_name")
        assert first[0] == second[0] == current()._process.pid
    assert (first[1], second[1]) == ("policy_0_1", "a_sampler_with_")
    assert first[2] != second[2]


def test_it_ends_without_a_word_when_its_parent_has_ended_and_read_no_answer():
    parent, own = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-P", START_TEMPLATE, str(own.fileno()), "json"]
    process = subprocess.Popen(command, pass_fds=[own.fileno()], stderr=subprocess.PIPE)
    own.close()
    assert select.select([parent], [], [], 15)[0]
    parent.close()
    assert process.communicate(timeout=15)[1] == b"" and process.returncode == 0


def test_a_child_that_does_not_ask_for_the_template_has_an_interpreter_of_its_own():
    with template([], {}):
        [result] = results("child", options=ChildOptions(one_shot=True))
    assert result[0] == os.getpid()


def test_without_its_template_a_child_starts_by_itself(logged):
    with template([], {}):
        kill_9(current()._process.pid)
        results_of_both = results("first", "second")
    assert [result[0] for result in results_of_both] == 2 * [os.getpid()]
    [message] = logged.messages
    assert message.endswith("processes start without it: it has ended with exit code -9")


def test_a_template_with_several_threads_forks_no_children(logged):
    with template(["tests.runtime.starts_thread"], {}):
        [result] = results("child")
    assert result[0] == os.getpid() and "it has several threads" in logged.text


def test_a_module_that_the_template_cannot_import_is_a_failure_of_the_child_that_needs_it():
    with template(["tests.runtime.no_such_module"], {}):
        [result] = results("child")
        assert result[0] == current()._process.pid
        child = Child("child", "tests.runtime.no_such_module:Body", (), OPTIONS)
        child.start()
        assert child.join(15) and "No module named 'tests.runtime.no_such_module'" in child.failure.message


def test_children_go_on_without_their_template_and_their_end_is_noticed(logged):
    with template([], {}):
        options = ChildOptions(from_template=True)
        stopping, dying = (Child(name, Idle, (), options) for name in ("stopping", "dying"))
        for child in (stopping, dying):
            child.start()
            wait_ready(child, 15)
        kill_9(current()._process.pid)
        stopping.stop()
        assert stopping.join(15) and stopping.failure is None and stopping.result == "stopped"
        kill_9(dying.pid)
        assert dying.join(15) and "the template process had ended before" in dying.failure.message
    assert len(logged.messages) == 1


def test_without_its_modules_it_is_small_reports_how_its_children_end_and_forks_others(logged):
    with template(["numpy", "sample_factory.envs.registry"], cpu.ONE_THREAD):
        options = ChildOptions(from_template=True)
        before = Child("before", Idle, (), options)
        before.start()
        wait_ready(before, 15)
        process = psutil.Process(current()._process.pid)
        full = process.memory_info().rss
        current().unload_modules()
        assert process.memory_info().rss < 0.7 * full
        kill_9(before.pid)
        assert before.join(15) and "signal 9" in before.failure.message
        [after] = results("after")
        assert after[0] == process.pid
    assert not logged.messages


def test_the_limit_of_open_files_is_that_of_the_parent_at_the_start_of_the_child():
    with template([], {}):
        child = Child("child", Returns, (), OPTIONS)
        limit = cpu.raise_open_files_limit()
        child.start()
        assert psutil.Process(current()._process.pid).rlimit(psutil.RLIMIT_NOFILE)[0] == limit
        assert child.join(15) and child.failure is None


def test_a_block_within_another_one_uses_its_template_and_leaves_it_and_the_outer_one_leaves_no_process():
    threads, children = {*threading.enumerate()}, {*psutil.Process().children()}
    with template([], {}):
        outer = current()
        with template([], {}):
            assert current() is outer
        assert current() is outer and psutil.pid_exists(outer._process.pid)
    assert current() is None and not psutil.pid_exists(outer._process.pid)
    assert not {*threading.enumerate()} - threads
    assert eventually(lambda: not {*psutil.Process().children()} - children)
