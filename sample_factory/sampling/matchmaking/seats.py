"""The matchmaking of evaluations and matches: each agent has a fixed player, or two teams swap sides."""

from collections.abc import Sequence

from sample_factory.sampling.matchmaking.matchmaking import MatchSetup


class Seats:
    """Assigns policy seats[i] to agent i. With `swap`, policies 0 and 1 exchange their agents after each
    match, and begin exchanged in envs with an odd env_id."""

    def __init__(self, seats: Sequence[int], swap: bool, setup: MatchSetup):
        """seats: policy id of each agent of an env."""
        swapped = [[1 - policy for policy in seats]] if swap else []
        self._orders = [list(seats), *swapped]
        self._number = setup.env_id

    def next_match(self) -> Sequence[int]:
        """Returns the policy id of each agent in the next match."""
        order = self._orders[self._number % len(self._orders)]
        self._number += 1
        return order
