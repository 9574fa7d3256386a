"""Rollout workers get the newest message of each type about each policy."""

import time

import pytest

from sample_factory.exchange.channels import LatestMessages
from sample_factory.exchange.messages import NewShaping
from sample_factory.runtime.queues import SocketQueue


@pytest.fixture
def inboxes():
    return [SocketQueue(), SocketQueue()]


def shaping(policy, value):
    return NewShaping(policy, {"damage": value})


def received(inbox):
    return inbox.get_many(0.0)


def fill(inbox):
    while inbox.put("actions", keep_waiting=lambda: False):
        pass


def test_a_full_inbox_is_not_waited_for_and_gets_the_newest_message_once_it_is_read(inboxes):
    messages = LatestMessages(inboxes)
    fill(inboxes[0])
    began = time.monotonic()
    for value in (1.0, 2.0):
        messages.update(shaping(0, value))
        messages.send()
    assert time.monotonic() - began < 1.0
    assert received(inboxes[1]) == [shaping(0, 1.0), shaping(0, 2.0)]
    while inboxes[0].get_many(0.0):
        pass
    messages.send()
    assert received(inboxes[0]) == [shaping(0, 2.0)] and received(inboxes[1]) == []


def test_a_worker_that_is_replaced_with_a_full_inbox_gets_the_messages_about_all_policies_later(inboxes):
    messages = LatestMessages(inboxes)
    for policy in (0, 1):
        messages.update(shaping(policy, 1.0))
    messages.send()
    received(inboxes[0])
    fill(inboxes[1])
    messages.send_again(1)
    messages.send()
    while inboxes[1].get_many(0.0):
        pass
    messages.send()
    assert received(inboxes[1]) == [shaping(0, 1.0), shaping(1, 1.0)] and received(inboxes[0]) == []
