"""The interface of a rule for who plays whom, and the checks of what a user's rule returns."""

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from sample_factory.checkpoints.milestones import Milestone
from sample_factory.exchange.messages import Opponents
from sample_factory.runtime.failures import PermanentFailure, one_line
from sample_factory.runtime.registry import resolve


class Player(NamedTuple):
    """Plays an agent: a policy with its current weights ("live"), or with those of a past self."""

    policy_id: int
    past_self: Milestone | None = None  # None: live

    @property
    def is_live(self) -> bool:
        return self.past_self is None


class PastSelves:
    """The past selves that can be played against; one object for all envs of a rollout worker."""

    def __init__(self, share: float = 0.0):
        """share: probability that a draw is a match against past selves."""
        self._share = share
        self._opponents: dict[int, Opponents] = {}  # by policy

    def update(self, opponents: Opponents) -> None:
        """Replaces what an earlier message said about the same policy."""
        self._opponents[opponents.policy_id] = opponents

    @property
    def exist(self) -> bool:
        """Whether any policy has a past self."""
        return any(opponents.past_selves for opponents in self._opponents.values())

    def of(self, policy: int) -> tuple[Milestone, ...]:
        """Returns the past selves of a policy that are in use now, by their env frames."""
        opponents = self._opponents.get(policy)
        return () if opponents is None else opponents.past_selves

    def wants_match(self, rng: np.random.Generator) -> bool:
        """Draws whether the next matches are against past selves; False while there are none."""
        return self.exist and rng.random() < self._share

    def draw(self, policy: int, live_policy: int, rng: np.random.Generator) -> Player:
        """Draws a past self of `policy` as an opponent of the live policy; `policy` itself if it has none."""
        opponents = self._opponents.get(policy)
        if opponents is None or not opponents.past_selves:
            return Player(policy)
        weights = opponents.weights[live_policy].astype(np.float64)
        index = rng.choice(len(weights), p=weights / weights.sum())
        return Player(policy, opponents.past_selves[index])

    def has(self, player: Player) -> bool:
        """Whether the player is still in use; live policies always are."""
        return player.past_self is None or player.past_self in self.of(player.policy_id)


class MatchSetup(NamedTuple):
    """An env whose agents need players.

    kind_of_agent: agents of one kind have the same spaces.
    mix_policies: --pbt_mix_policies_in_one_env.
    rng: random numbers that --seed determines.
    past_selves: those in use now, `past_selves.of(policy)`; with --selfplay_past_share above 0.
    env_id: of the env among all envs of the run, 0, 1, ...
    cfg: all flags, as attributes.
    """

    num_policies: int
    kind_of_agent: Sequence[int]
    mix_policies: bool
    rng: np.random.Generator
    past_selves: PastSelves
    env_id: int = 0
    cfg: argparse.Namespace | None = None

    @property
    def num_agents(self) -> int:
        return len(self.kind_of_agent)

    def policies_of(self, agent: int) -> range:
        """Returns the policies that can play an agent: those of its kind, p % number of kinds."""
        return range(self.kind_of_agent[agent], self.num_policies, max(self.kind_of_agent) + 1)


@runtime_checkable
class Matchmaking(Protocol):
    """In a rollout worker: chooses the players of one env. A match is over when every agent that takes part
    in it has ended an episode; an env with one agent plays a match in each episode."""

    def next_match(self) -> Sequence[Player | int]:
        """Returns for each agent of the env its player in the next match: a policy, by its number, or a
        `Player` that may be one of its past selves. Called before the first match, and after each."""


class MatchmakingError(PermanentFailure):
    """A user's matchmaking raised, or returned what is no list of players."""


def make_matchmaking(name: str, factory: Any, setup: MatchSetup) -> "CheckedMatchmaking":
    """Returns the matchmaking of an env. Raises MatchmakingError if it cannot be made.

    name: the value of --matchmaking, for messages. factory: what was registered under it.
    """
    flag = f"--matchmaking={name}"
    try:
        made = resolve(factory)(setup)
    except Exception as error:  # any error of a user's code
        raise MatchmakingError(f"{flag} cannot be made: {one_line(error)}") from error
    if not isinstance(made, Matchmaking):
        raise MatchmakingError(
            f"{flag}: the registered function returned {type(made).__name__}; it should return an object "
            "with the method next_match()"
        )
    return CheckedMatchmaking(made, setup, flag)


class CheckedMatchmaking:
    """A matchmaking whose results are checked. Policies become players; a past self that is no longer in use
    is replaced by its policy.

    Raises MatchmakingError, in one line, for whatever cannot play.
    """

    def __init__(self, matchmaking: Matchmaking, setup: MatchSetup, flag: str):
        """flag: e.g. "--matchmaking=pairs", for messages."""
        self._matchmaking = matchmaking
        self._setup = setup
        self._name = f"{flag}: {type(matchmaking).__name__}.next_match"
        self._returned: list[Any] = []  # in the last match
        self._players: list[Player] = []

    def next_match(self) -> Sequence[Player]:
        """Returns the player of each agent; the same object as before if they are the same."""
        try:
            returned = self._matchmaking.next_match()
        except Exception as error:  # any error of a user's code
            raise MatchmakingError(f"{self._name} raised {one_line(error)}") from error
        num_agents = self._setup.num_agents
        if not isinstance(returned, (Sequence, np.ndarray)) or len(returned) != num_agents:
            self._refuse(returned, f"{num_agents} players, one per agent")
        if list(returned) != self._returned or not all(map(self._setup.past_selves.has, self._players)):
            self._players = [self._player(agent, player, returned) for agent, player in enumerate(returned)]
            self._returned = list(returned)
        return self._players

    def _player(self, agent: int, player: Any, returned: Any) -> Player:
        if isinstance(player, (int, np.integer)):
            player = Player(int(player))
        policies = self._setup.policies_of(agent)
        if not isinstance(player, Player) or player.policy_id not in policies:
            allowed = ", ".join(map(str, policies))
            self._refuse(
                returned, f"for agent {agent} one of the policies ({allowed}), or a past self of one"
            )
        return player if self._setup.past_selves.has(player) else Player(player.policy_id)

    def _refuse(self, returned: Any, expected: str) -> None:
        raise MatchmakingError(f"{self._name} returned {returned!r}; it should return {expected}")
