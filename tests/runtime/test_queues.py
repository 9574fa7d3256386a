"""Queues: nothing lost, nothing twice, nobody stuck."""

import collections
import pickle
import queue
import threading
import time

import pytest

from sample_factory.runtime import queues
from sample_factory.runtime.child import Child, ChildOptions
from sample_factory.runtime.queues import LocalQueue, Queue
from tests.runtime.bodies import Consumes, Hammers, Produces
from tests.runtime.waiting import eventually, kill_9

both = pytest.mark.parametrize("make", [Queue, LocalQueue])


@both
def test_messages_come_out_whole_and_in_order(make):
    q = make()
    messages = [0, None, "text", (1, [2, {"three": b"4"}]), b"x" * 100_000]
    assert all(q.put(message) for message in messages)
    assert q.get(timeout=0) == 0
    assert q.get_many(timeout=0, max_messages=2) == messages[1:3]
    assert q.get_many(timeout=5) == messages[3:]
    assert q.get_many(timeout=0) == []


@both
def test_an_empty_queue_gives_nothing_after_the_timeout(make):
    q = make()
    begin = time.monotonic()
    assert q.get_many(timeout=0.05) == []
    assert time.monotonic() - begin >= 0.05
    with pytest.raises(queue.Empty):
        q.get(timeout=0)


@both
def test_a_waiting_reader_gets_a_message_that_comes_later(make):
    q = make()
    threading.Timer(0.05, q.put, ["late"]).start()
    assert q.get(timeout=15) == "late"


def fill(q) -> int:
    """How many messages it takes until the queue is full."""
    count = 0
    while q.put(count, keep_waiting=lambda: False):
        count += 1
    return count


@pytest.mark.parametrize("make", [lambda: Queue(max_bytes=10_000), lambda: LocalQueue(max_messages=10)])
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


def test_a_writer_waiting_at_a_full_queue_notices_that_it_should_stop():
    q, asked = Queue(max_bytes=10_000), []
    fill(q)
    assert not q.put("too much", keep_waiting=lambda: len(asked) < 2 and not asked.append(1))
    assert "too much" not in q.get_many(timeout=0)


def test_the_default_queue_holds_the_requests_of_hundreds_of_workers():
    assert fill(Queue()) >= 250


def test_in_serial_mode_a_queue_never_blocks():
    q = LocalQueue(max_messages=1, waits=False)
    assert q.get_many(timeout=600) == []
    q.put("one")
    with pytest.raises(queue.Full):
        q.put("two")


def test_a_message_that_can_never_fit_is_an_error():
    with pytest.raises(ValueError, match="SharedArrays"):
        Queue().put(b"x" * (queues.MAX_MESSAGE_BYTES + 1))
    with pytest.raises(ValueError, match="SharedArrays"):
        Queue(max_bytes=5_000).put(b"x" * 100_000)
    assert Queue().put(b"x" * (queues.MAX_MESSAGE_BYTES - 100))


def test_a_queue_is_pickled_only_for_a_child():
    with pytest.raises(RuntimeError):
        pickle.dumps(Queue())


def start(*recipe) -> Child:
    child = Child(recipe[0].__name__, recipe[0], recipe[1:], ChildOptions(one_shot=True))
    child.start()
    return child


def test_two_writers_and_two_readers_pass_every_message_exactly_once():
    source, target, count = Queue(max_bytes=20_000), Queue(), 3000
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
    q, count = Queue(max_bytes=20_000), 20_000
    waiting, busy, survivor = writers = [start(Produces, q, number, count) for number in range(3)]
    for writer in writers:
        writer.wait_ready(15)
    assert eventually(lambda: not q.put("probe", keep_waiting=lambda: False)), "nobody fills the queue"
    assert not any(writer.finished for writer in writers)
    kill_9(waiting.pid)  # at a full queue
    received = {writer: [] for writer in (0, 1, 2)}
    while len(received[2]) < count:
        messages = q.get_many(timeout=20)
        assert messages, f"only {len(received[2])} of {count} messages came"
        for writer, number in (message for message in messages if message != "probe"):
            received[writer].append(number)
        if len(received[1]) > 100 and busy.is_alive:
            kill_9(busy.pid)  # in full swing
    assert survivor.join(15) and survivor.result
    for numbers in received.values():
        assert numbers == list(range(len(numbers)))
    assert len(received[0]) < count and 100 < len(received[1]) < count


@pytest.mark.parametrize("writes", [False, True])
def test_a_process_killed_in_the_middle_of_a_call_blocks_nobody(writes):
    q = Queue(max_bytes=20_000)
    children = [start(Hammers, q, writes) for _ in range(4)]
    for child in children:
        child.wait_ready(15)
    for child in children:
        kill_9(child.pid)
        # In this thread on purpose: had the queue been left locked, the test would hang here.
        for number in range(200):
            q.put(number, keep_waiting=lambda: bool(q.get_many(timeout=0)))
            q.get_many(timeout=0)
    for child in children:
        child.kill()
    q.get_many(timeout=0)
    assert q.put("still") and q.get(timeout=5) == "still"
