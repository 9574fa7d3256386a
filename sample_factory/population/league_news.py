"""What rollout workers are told of the past selves."""

from collections.abc import Sequence

from sample_factory.population.league import League
from sample_factory.runtime.clock import Every
from sample_factory.runtime.queues import Queue

TELL_SECONDS = 2.0


class LeagueNews:
    """In the main process. Promises:

    1. Every rollout worker learns the newest state of the league, once it takes in its messages.
    2. It never waits for one that does not, and so does not fill its inbox, where actions come in too.
    """

    def __init__(self, league: League, num_policies: int, inboxes: Sequence[Queue], is_limited: bool):
        """is_limited: to once in TELL_SECONDS; a run that is to be repeatable must not depend on time."""
        self._league, self._inboxes = league, inboxes
        self._policies = range(num_policies)
        self._untold: list[set[int]] = [set() for _ in inboxes]  # by worker: policies
        self._is_limited, self._time_to_tell = is_limited, Every(TELL_SECONDS, at_first=True)

    def tell_all(self, index: int) -> None:
        """To a rollout worker that has just been started."""
        self._untold[index] = set(self._policies)
        self._tell(index)

    def tell_changes(self) -> None:
        """To all, what has changed since they were told."""
        changed = self._league.take_changed()
        for untold in self._untold:
            untold |= changed
        if any(self._untold) and (not self._is_limited or self._time_to_tell()):
            for index in range(len(self._inboxes)):
                self._tell(index)

    def _tell(self, index: int) -> None:
        untold = self._untold[index]
        for policy in sorted(untold):
            if not self._inboxes[index].put(self._league.opponents(policy), keep_waiting=lambda: False):
                return
            untold.remove(policy)
