"""The past selves of a league are the state that is sent."""

import time

import pytest

from sample_factory.checkpoints.milestones import Milestone
from sample_factory.config.population_flags import SelfplayFlags
from sample_factory.exchange.channels import LatestSender
from sample_factory.exchange.messages import MilestoneSaved
from sample_factory.population.league import League
from sample_factory.runtime.queues import SocketQueue


@pytest.fixture
def inboxes():
    return [SocketQueue(), SocketQueue()]


@pytest.fixture
def league(tmp_path):
    return League(SelfplayFlags(selfplay_past_share=0.5), tmp_path, num_policies=2)


def save(league, policy, frames):
    milestone = Milestone(policy, frames, frames)
    league.handle(MilestoneSaved(milestone))
    return milestone


def received(inbox):
    """Returns (policy, past selves) of each message in an inbox."""
    return [(message.policy_id, message.past_selves) for message in inbox.get_many(0.0)]


def fill(inbox):
    while inbox.put("actions", keep_waiting=lambda: False):
        pass


def test_a_full_inbox_is_not_waited_for_and_gets_the_present_state_once_it_is_read(inboxes, league):
    sender = LatestSender(league.opponents, 2, inboxes, is_limited=False)
    fill(inboxes[0])
    first = save(league, 0, 1)
    began = time.monotonic()
    sender.send_changes(league.take_changed())
    second = save(league, 0, 2)
    sender.send_changes(league.take_changed())
    assert time.monotonic() - began < 1.0
    assert received(inboxes[1]) == [(0, (first,)), (0, (first, second))]
    while inboxes[0].get_many(0.0):
        pass
    sender.send_changes(league.take_changed())
    assert received(inboxes[0]) == [(0, (first, second))] and received(inboxes[1]) == []


def test_many_changes_in_a_row_are_one_message_when_limited(inboxes, league):
    sender = LatestSender(league.opponents, 2, inboxes, is_limited=True)
    for frames in range(100):
        save(league, 0, frames)
        sender.send_changes(league.take_changed())
    assert len(received(inboxes[0])) == 1


def test_a_worker_that_starts_with_a_full_inbox_gets_all_policies_later(inboxes, league):
    sender = LatestSender(league.opponents, 2, inboxes, is_limited=True)
    fill(inboxes[1])
    sender.send_all(1)
    while inboxes[1].get_many(0.0):
        pass
    sender.send_changes(league.take_changed())
    assert received(inboxes[1]) == [(0, ()), (1, ())] and received(inboxes[0]) == []
