"""A place for a node keeps the messages that its next node needs."""

from sample_factory.cluster.ingest import Place
from sample_factory.exchange.messages import NewShaping
from sample_factory.runtime.queues import LocalQueue


def test_a_new_node_gets_the_last_message_about_each_policy_also_those_sent_while_there_was_none():
    inbox = LocalQueue()
    place = Place(1, inbox)
    inbox.put(NewShaping(0, {"damage": 1.0}))
    inbox.put(NewShaping(1, {"damage": 2.0}))
    inbox.put(NewShaping(0, {"damage": 3.0}))
    place.receive()
    place.connect(link="a link")
    newest = [NewShaping(0, {"damage": 3.0}), NewShaping(1, {"damage": 2.0})]
    assert place.take_messages() == newest
    assert place.take_messages() == []
    inbox.put(NewShaping(1, {"damage": 4.0}))
    place.receive()
    assert place.take_messages() == [NewShaping(1, {"damage": 4.0})]
    place.connect(link="its successor")
    assert place.take_messages() == [newest[0], NewShaping(1, {"damage": 4.0})]
