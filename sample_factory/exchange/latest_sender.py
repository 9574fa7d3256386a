"""Sends the present state of each policy to the processes with envs."""

from collections.abc import Callable, Sequence

from sample_factory.exchange.messages import RolloutMessage
from sample_factory.runtime.clock import Every
from sample_factory.runtime.queues import Queue

SEND_SECONDS = 2.0  # between messages about changes, when limited


class LatestSender:
    """In the main process: sends messages that each contain the whole present state of one policy. Promises:

    1. Every rollout worker and inline sampler gets the present state of all policies.
    2. A full inbox is never waited for: its messages are sent later.
    """

    def __init__(
        self,
        take_changed: Callable[[], set[int]],
        message_about: Callable[[int], RolloutMessage],
        num_policies: int,
        inboxes: Sequence[Queue],
        is_limited: bool,
    ):
        """take_changed: returns the policies whose state has changed since the last call. message_about: of a
        policy. is_limited: whether changes are sent at most once in SEND_SECONDS, or at every call."""
        self._take_changed = take_changed
        self._message_about = message_about
        self._inboxes = inboxes
        self._policies = range(num_policies)
        self._unsent: list[set[int]] = [set() for _ in inboxes]  # policies, by inbox
        self._is_limited = is_limited
        self._time_to_send = Every(SEND_SECONDS, at_first=True)

    def send_all(self, index: int) -> None:
        """Sends the state of all policies to one inbox, whose process is about to start."""
        self._unsent[index] = set(self._policies)
        self._send(index)

    def send_changes(self) -> None:
        """Sends what has changed to all inboxes."""
        changed = self._take_changed()
        for unsent in self._unsent:
            unsent |= changed
        if any(self._unsent) and (not self._is_limited or self._time_to_send()):
            for index in range(len(self._inboxes)):
                self._send(index)

    def _send(self, index: int) -> None:
        unsent = self._unsent[index]
        for policy_id in sorted(unsent):
            if not self._inboxes[index].put(self._message_about(policy_id), keep_waiting=lambda: False):
                return
            unsent.remove(policy_id)
