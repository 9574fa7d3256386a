"""Tests of queues: no message is lost or delivered twice, and no process hangs."""

import collections
import gc
import os
import pickle
import socket
import sys
import threading
import time
import warnings

import pytest

from sample_factory.runtime import cpu, queues
from sample_factory.runtime.child import Child, ChildOptions
from sample_factory.runtime.queues import MAX_MESSAGE_BYTES, LocalQueue, SocketQueue
from sample_factory.runtime.template import template
from tests.runtime.bodies import Consumes, Hammers, Produces, WithoutInheritedFiles
from tests.waiting import eventually, kill_9, wait_ready


def get(q, timeout):
    (message,) = q.get_many(timeout, max_messages=1)
    return message


@pytest.mark.parametrize("make", [SocketQueue, LocalQueue])
def test_messages_are_received_whole_and_in_order(make):
    q = make()
    messages = [0, None, "text", (1, [2, {"three": b"4"}]), b"x" * 100_000]
    assert all(q.put(message) for message in messages)
    assert get(q, timeout=0) == 0
    assert q.get_many(timeout=0, max_messages=2) == messages[1:3]
    assert q.get_many(timeout=5) == messages[3:]
    assert q.get_many(timeout=0) == []


def test_an_empty_queue_gives_nothing_after_the_timeout():
    q = SocketQueue()
    begin = time.monotonic()
    assert q.get_many(timeout=0.05) == []
    assert time.monotonic() - begin >= 0.05
    assert q.get_many(timeout=0) == []


def test_a_waiting_reader_gets_a_message_that_comes_later():
    q = SocketQueue()
    threading.Timer(0.05, q.put, ["late"]).start()
    assert get(q, timeout=15) == "late"


def fill(q) -> int:
    """Fills the queue; returns the number of messages."""
    count = 0
    while q.put(count, keep_waiting=lambda: False):
        count += 1
    return count


def test_a_full_queue_makes_the_writer_wait_and_drops_nothing():
    q = SocketQueue(max_bytes=10_000)
    count = fill(q)
    writer = threading.Thread(target=q.put, args=(count,))
    writer.start()
    received = []
    while len(received) <= count:
        received += q.get_many(timeout=15, max_messages=3)
    writer.join(15)
    assert received == list(range(count + 1))


def test_a_writer_waiting_at_a_full_queue_notices_that_it_should_stop():
    q = SocketQueue(max_bytes=10_000)
    asked = []
    fill(q)
    assert not q.put("too much", keep_waiting=lambda: len(asked) < 2 and not asked.append(1))
    assert "too much" not in q.get_many(timeout=0)


def test_the_default_queue_holds_the_requests_of_hundreds_of_workers():
    assert fill(SocketQueue()) >= 250


def test_in_serial_mode_a_queue_never_blocks():
    q = LocalQueue()
    assert q.get_many(timeout=600) == []
    assert all(q.put(number) for number in range(10_000))
    assert q.get_many(timeout=600) == list(range(1000))


def test_a_message_that_can_never_fit_is_an_error():
    with pytest.raises(ValueError, match="SharedArrays"):
        SocketQueue().put(b"x" * (MAX_MESSAGE_BYTES + 1))
    with pytest.raises(ValueError, match="SharedArrays"):
        SocketQueue(max_bytes=5_000).put(b"x" * 100_000)
    assert SocketQueue().put(b"x" * (MAX_MESSAGE_BYTES - 100))


def test_a_message_that_just_exceeds_the_socket_buffer_is_refused_like_a_larger_one():
    q = SocketQueue(max_bytes=10_000)
    limit = q._writer.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    refused = []
    for size in range(limit - 100, limit + 1, 4):  # pickled, some bytes more
        try:
            q.put(b"x" * size)
            assert get(q, timeout=15) == b"x" * size
        except ValueError as error:
            refused.append(str(error))
    assert refused and all("does not fit into this queue" in message for message in refused)


def test_a_queue_is_pickled_only_for_a_child():
    with pytest.raises(RuntimeError):
        pickle.dumps(SocketQueue())


def test_a_queue_has_no_name_in_the_file_system():
    def names() -> set[str]:
        return {name for name in os.listdir("/dev/shm") if name.startswith(f"pym-{os.getpid()}-")}

    before = names()
    q = SocketQueue()
    q.put("message")
    assert names() <= before


def test_a_simulator_that_a_child_starts_does_not_inherit_the_queue():
    q = SocketQueue()
    child = Child("child", WithoutInheritedFiles, (q,), ChildOptions(one_shot=True))
    child.start()
    assert child.join(15) and child.failure is None
    assert child.result == set()


def test_a_queue_closes_its_files_without_a_warning_and_also_if_it_has_none(monkeypatch):
    def no_files(family, kind):
        raise OSError("too many open files")

    raised = []
    gc.collect()  # what earlier tests in this process have left may warn, too
    monkeypatch.setattr(sys, "unraisablehook", raised.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SocketQueue().put(1)
        gc.collect()
        monkeypatch.setattr(queues.socket, "socketpair", no_files)
        with pytest.raises(OSError, match="too many"):
            SocketQueue()
        gc.collect()
    assert not raised


@pytest.fixture(scope="module", autouse=True)
def template_of_all_tests():
    with template(["tests.runtime.bodies"], cpu.ONE_THREAD):
        yield


def start(*recipe) -> Child:
    options = ChildOptions(one_shot=True, from_template=True)
    child = Child(recipe[0].__name__, recipe[0], recipe[1:], options)
    child.start()
    return child


def test_two_writers_and_two_readers_pass_every_message_exactly_once():
    source = SocketQueue(max_bytes=20_000)
    target = SocketQueue()
    count = 3000
    writers = [start(Produces, source, number, count) for number in range(2)]
    readers = [start(Consumes, source, target) for _ in range(2)]
    received = []
    while len(received) < 2 * count:
        messages = target.get_many(timeout=20)
        assert messages, f"only {len(received)} of {2 * count} messages came"
        received += messages
    source.put(None)
    source.put(None)
    assert all(child.join(15) and child.failure is None for child in [*writers, *readers])
    assert all(writer.result for writer in writers)
    assert sum(reader.result for reader in readers) == 2 * count
    assert set(collections.Counter(received).values()) == {1}


def test_a_full_queue_keeps_every_message_and_the_order_of_each_writer_though_two_of_them_are_killed():
    q = SocketQueue(max_bytes=20_000)
    count = 20_000
    waiting, busy, survivor = writers = [start(Produces, q, number, count) for number in range(3)]
    for writer in writers:
        wait_ready(writer, 15)
    assert eventually(lambda: not q.put("probe", keep_waiting=lambda: False)), "the queue is not filled"
    assert not any(writer.finished for writer in writers)
    kill_9(waiting.pid)  # while it waits at a full queue
    received = {writer: [] for writer in (0, 1, 2)}
    while len(received[2]) < count:
        messages = q.get_many(timeout=20)
        assert messages, f"only {len(received[2])} of {count} messages came"
        for writer, number in (message for message in messages if message != "probe"):
            received[writer].append(number)
        if len(received[1]) > 100 and busy.is_alive:
            kill_9(busy.pid)  # while it writes
    assert survivor.join(15) and survivor.result
    for numbers in received.values():
        assert numbers == list(range(len(numbers)))
    assert len(received[0]) < count and 100 < len(received[1]) < count


@pytest.mark.parametrize("writes", [False, True])
def test_a_process_killed_in_the_middle_of_a_call_blocks_no_other(writes):
    q = SocketQueue(max_bytes=20_000)
    children = [start(Hammers, q, writes) for _ in range(4)]
    for child in children:
        wait_ready(child, 15)
    for child in children:
        kill_9(child.pid)
        # In this thread, so that the test hangs here if the queue is still locked.
        for number in range(200):
            q.put(number, keep_waiting=lambda: bool(q.get_many(timeout=0)))
            q.get_many(timeout=0)
    for child in children:
        child.kill()
    q.get_many(timeout=0)
    assert q.put("still") and get(q, timeout=5) == "still"
