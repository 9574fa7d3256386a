"""Tests of queues: no message is lost or delivered twice, and no process hangs."""

import collections
import gc
import importlib.util
import os
import pickle
import socket
import sys
import threading
import time
import warnings
from dataclasses import fields

import pytest

from sample_factory.config.sampling_flags import SamplingFlags
from sample_factory.runtime import cpu, queues
from sample_factory.runtime.child import Child, ChildOptions
from sample_factory.runtime.queues import MAX_MESSAGE_BYTES, FasterFifoQueue, LocalQueue, SocketQueue
from sample_factory.runtime.template import template
from tests.runtime.bodies import Consumes, Hammers, Produces, WithoutInheritedFiles
from tests.waiting import eventually, kill_9, wait_ready

TRANSPORTS = {"sockets": SocketQueue, "faster_fifo": FasterFifoQueue}
IS_INSTALLED = importlib.util.find_spec("faster_fifo") is not None
NEEDS_FASTER_FIFO = pytest.mark.skipif(not IS_INSTALLED, reason="faster-fifo has no wheel for this Python")
MUTEX_IS_NOT_ROBUST = pytest.mark.xfail(
    run=False,
    reason="faster-fifo does not promise that a killed process blocks no other: its mutex is not robust "
    "(no PTHREAD_MUTEX_ROBUST), so that after a kill within a call the other processes can wait forever",
)

FASTER_FIFO = pytest.param(FasterFifoQueue, marks=NEEDS_FASTER_FIFO)

all_queues = pytest.mark.parametrize(
    "make", [SocketQueue, FASTER_FIFO, LocalQueue], ids=[*TRANSPORTS, "local"]
)
transports = pytest.mark.parametrize("make", [SocketQueue, FASTER_FIFO], ids=TRANSPORTS)
transports_that_survive_a_kill = pytest.mark.parametrize(
    "make", [SocketQueue, pytest.param(FasterFifoQueue, marks=MUTEX_IS_NOT_ROBUST)], ids=TRANSPORTS
)


def get(q, timeout):
    (message,) = q.get_many(timeout, max_messages=1)
    return message


@all_queues
def test_messages_are_received_whole_and_in_order(make):
    q = make()
    messages = [0, None, "text", (1, [2, {"three": b"4"}]), b"x" * 100_000]
    assert all(q.put(message) for message in messages)
    assert get(q, timeout=0) == 0
    assert q.get_many(timeout=0, max_messages=2) == messages[1:3]
    assert q.get_many(timeout=5) == messages[3:]
    assert q.get_many(timeout=0) == []


@transports
def test_an_empty_queue_gives_nothing_after_the_timeout(make):
    q = make()
    begin = time.monotonic()
    assert q.get_many(timeout=0.05) == []
    assert time.monotonic() - begin >= 0.05
    assert q.get_many(timeout=0) == []


@transports
def test_a_waiting_reader_gets_a_message_that_comes_later(make):
    q = make()
    threading.Timer(0.05, q.put, ["late"]).start()
    assert get(q, timeout=15) == "late"


def fill(q) -> int:
    """Fills the queue; returns the number of messages."""
    count = 0
    while q.put(count, keep_waiting=lambda: False):
        count += 1
    return count


@pytest.mark.parametrize(
    "make",
    [
        lambda: SocketQueue(max_bytes=10_000),
        pytest.param(lambda: FasterFifoQueue(max_bytes=500), marks=NEEDS_FASTER_FIFO),
    ],
    ids=TRANSPORTS,
)
def test_a_full_queue_makes_the_writer_wait_and_drops_nothing(make):
    q = make()
    count = fill(q)
    writer = threading.Thread(target=q.put, args=(count,))
    writer.start()
    received = []
    while len(received) <= count:
        received += q.get_many(timeout=15, max_messages=3)
    writer.join(15)
    assert received == list(range(count + 1))


@transports
def test_a_writer_waiting_at_a_full_queue_notices_that_it_should_stop(make):
    q = make(max_bytes=10_000)
    asked = []
    fill(q)
    assert not q.put("too much", keep_waiting=lambda: len(asked) < 2 and not asked.append(1))
    assert "too much" not in q.get_many(timeout=0)


@transports
def test_the_default_queue_holds_the_requests_of_hundreds_of_workers(make):
    assert fill(make()) >= 250


def test_in_serial_mode_a_queue_never_blocks():
    q = LocalQueue()
    assert q.get_many(timeout=600) == []
    assert all(q.put(number) for number in range(10_000))
    assert q.get_many(timeout=600) == list(range(1000))


@transports
def test_a_message_that_can_never_fit_is_an_error(make):
    with pytest.raises(ValueError, match="SharedArrays"):
        make().put(b"x" * (MAX_MESSAGE_BYTES + 1))
    with pytest.raises(ValueError, match="SharedArrays"):
        make(max_bytes=5_000).put(b"x" * 100_000)
    assert make().put(b"x" * (MAX_MESSAGE_BYTES - 100))


@transports
def test_every_message_that_is_accepted_fits(make):
    num_refused = 0
    for size in range(450, 510):  # around the limit of faster-fifo
        q = make(max_bytes=500)
        try:
            sent = q.put(b"x" * size, keep_waiting=lambda: False)
        except ValueError:
            num_refused += 1
            continue
        assert sent and get(q, timeout=0) == b"x" * size
    assert num_refused == 0 or make is FasterFifoQueue


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


@transports
def test_a_queue_is_pickled_only_for_a_child(make):
    with pytest.raises(RuntimeError):
        pickle.dumps(make())


@transports
def test_a_queue_has_no_name_in_the_file_system(make):
    def names() -> set[str]:
        return {name for name in os.listdir("/dev/shm") if name.startswith(f"pym-{os.getpid()}-")}

    before = names()
    q = make()
    q.put("message")
    assert names() <= before


@transports
def test_a_simulator_that_a_child_starts_does_not_inherit_the_queue(make):
    q = make()
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


def test_the_transport_is_chosen_by_its_name():
    (choices,) = [field.metadata["choices"] for field in fields(SamplingFlags) if field.name == "queue"]
    assert choices == queues.TRANSPORTS
    usable = choices if IS_INSTALLED else ("sockets",)
    made = [type(queues.make_queue(name)).__name__ for name in usable]
    assert made == ["SocketQueue", "FasterFifoQueue"][: len(usable)]
    with pytest.raises(ValueError, match="'pipes' is unknown; use one of sockets, faster_fifo"):
        queues.make_queue("pipes")


def test_a_transport_that_is_not_installed_names_the_extra_to_install(monkeypatch):
    monkeypatch.setattr(queues.importlib.util, "find_spec", lambda name: None)
    queues.check_transport("sockets")
    with pytest.raises(ImportError, match=r"pip install -e '\.\[faster-fifo\]'"):
        queues.check_transport("faster_fifo")


@pytest.fixture(scope="module", autouse=True)
def template_of_all_tests():
    with template(["tests.runtime.bodies"], cpu.ONE_THREAD):
        yield


def start(*recipe) -> Child:
    options = ChildOptions(one_shot=True, from_template=True)
    child = Child(recipe[0].__name__, recipe[0], recipe[1:], options)
    child.start()
    return child


@transports
def test_two_writers_and_two_readers_pass_every_message_exactly_once(make):
    source = make(max_bytes=20_000)
    target = make()
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


@transports_that_survive_a_kill
def test_a_full_queue_keeps_every_message_and_the_order_of_each_writer_though_two_of_them_are_killed(make):
    q = make(max_bytes=20_000)
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


@transports_that_survive_a_kill
@pytest.mark.parametrize("writes", [False, True])
def test_a_process_killed_in_the_middle_of_a_call_blocks_no_other(make, writes):
    q = make(max_bytes=20_000)
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
