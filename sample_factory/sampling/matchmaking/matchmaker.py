"""Which policy plays which agent, and as what it is now or as what it was."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sample_factory.exchange.messages import LIVE, Opponents

MATCHES_PER_DRAW = 10


class Player(NamedTuple):
    """Who plays an agent. past_self: the file of a frozen past self of the policy, or LIVE."""

    policy_id: int
    past_self: str = LIVE


class PastSelves:
    """The past selves that there are to play against; one object for all envs of a rollout worker."""

    def __init__(self, share: float = 0.0):
        """share: of the draws, that are matches against past selves."""
        self._share = share
        self._opponents: dict[int, Opponents] = {}  # by policy

    def take(self, opponents: Opponents) -> None:
        """What the main process says, in place of what it said before."""
        self._opponents[opponents.policy_id] = opponents

    @property
    def exist(self) -> bool:
        """Whether any policy has any."""
        return any(opponents.past_selves for opponents in self._opponents.values())

    def wants_match(self, rng: np.random.Generator) -> bool:
        return self.exist and rng.random() < self._share

    def draw(self, policy: int, live_policy: int, rng: np.random.Generator) -> Player:
        """A past self of `policy` for the live policy to play against; `policy` itself if it has none."""
        opponents = self._opponents.get(policy)
        if opponents is None or not opponents.past_selves:
            return Player(policy)
        weights = opponents.weights[live_policy].astype(np.float64)
        index = rng.choice(len(weights), p=weights / weights.sum())
        return Player(policy, opponents.past_selves[index])

    def has(self, player: Player) -> bool:
        """Whether it is still in use; live policies always are."""
        if player.past_self == LIVE:
            return True
        return player.past_self in self._opponents[player.policy_id].past_selves


class Matchmaker:
    """Draws a random policy for each agent of one env, anew every MATCHES_PER_DRAW matches. A match is over
    when all who take part in it have ended an episode.

    In a match against past selves, one agent, drawn at random, is played by its policy as it is now, and each
    of the others by a past self of the policy that was drawn for it.

    Policy p plays agents of kind p % number of kinds only: those are the ones with its spaces.
    """

    def __init__(
        self,
        num_policies: int,
        kind_of_agent: Sequence[int],
        mix_policies: bool,
        rng: np.random.Generator,
        past_selves: PastSelves | None = None,
    ):
        self._kinds, self._num_kinds = np.array(kind_of_agent), max(kind_of_agent) + 1
        self._policies_per_kind, self._num_agents = num_policies // self._num_kinds, len(kind_of_agent)
        self._mix, self._rng, self._past_selves = mix_policies, rng, past_selves or PastSelves()
        self._matches = 0
        self._drawn = self._draw()

    def player_of(self, agent: int) -> Player:
        """Who plays an agent in its coming episode."""
        return self._drawn[agent]

    def match_ended(self) -> None:
        """To be told before the players of the next one are asked for."""
        self._matches += 1
        is_due = self._matches % MATCHES_PER_DRAW == 0
        has_first_opponents = self._past_selves.exist and not self._knew_opponents
        if is_due or has_first_opponents or not all(map(self._past_selves.has, self._drawn)):
            self._drawn = self._draw()

    def _draw(self) -> list[Player]:
        self._knew_opponents = self._past_selves.exist
        policies = self._draw_policies()
        if not self._past_selves.wants_match(self._rng):
            return [Player(policy) for policy in policies]
        live = int(self._rng.integers(self._num_agents))
        return [
            Player(policy) if agent == live else self._past_selves.draw(policy, policies[live], self._rng)
            for agent, policy in enumerate(policies)
        ]

    def _draw_policies(self) -> list[int]:
        size = self._num_agents if self._mix else 1
        drawn = self._rng.integers(self._policies_per_kind, size=size) * self._num_kinds + self._kinds
        return drawn.tolist()
