"""The matchmaking of evaluations and matches: each agent has a fixed player, or two teams swap sides."""

from collections.abc import Sequence

from sample_factory.sampling.matchmaking.matchmaking import MatchSetup


class Seats:
    """Lets policy seats[i] play agent i. With `swap`, policies 0 and 1 swap their agents after each match; in
    envs with an odd env_id, they begin swapped."""

    def __init__(self, seats: Sequence[int], swap: bool, setup: MatchSetup):
        """seats: a policy id for each agent of an env."""
        swapped = [[1 - policy for policy in seats]] if swap else []
        self._orders = [list(seats), *swapped]
        self._number = setup.env_id

    def next_match(self) -> Sequence[int]:
        """Returns the policy of each agent in the next match."""
        order = self._orders[self._number % len(self._orders)]
        self._number += 1
        return order
