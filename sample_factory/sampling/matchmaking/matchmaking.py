"""The interface of a rule for who plays whom, its registry, and checks of what a user's rule returns."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from sample_factory.checkpoints.milestones import Milestone
from sample_factory.exchange.messages import Opponents
from sample_factory.runtime.failures import Explained, one_line
from sample_factory.runtime.registry import Registry, resolve

RANDOM = "random"
MatchmakingFactory = Callable[["MatchSetup"], Any]  # returns a Matchmaking

_REGISTRY = Registry("matchmaking", {RANDOM: "sample_factory.sampling.matchmaking.matchmaker:Matchmaker"})


class Player(NamedTuple):
    """Identifies who plays an agent: a policy with its current weights ("live"), or one of the policy's past
    selves."""

    policy_id: int
    past_self: Milestone | None = None  # None: live

    @property
    def is_live(self) -> bool:
        return self.past_self is None


class PastSelves:
    """Keeps the past selves that are available as opponents; one object for all envs of a rollout worker."""

    def __init__(self, share: float = 0.0):
        """Starts without past selves. share: probability that a new draw of players is a match against past
        selves."""
        self._share = share
        self._opponents: dict[int, Opponents] = {}  # by policy

    def update(self, opponents: Opponents) -> None:
        """Replaces the past selves of policy `opponents.policy_id` by those that the message contains."""
        self._opponents[opponents.policy_id] = opponents

    @property
    def exist(self) -> bool:
        """Whether any policy has a past self."""
        return any(opponents.past_selves for opponents in self._opponents.values())

    def of(self, policy: int) -> tuple[Milestone, ...]:
        """Returns the past selves of a policy that may be drawn at present, the oldest first."""
        opponents = self._opponents.get(policy)
        return () if opponents is None else opponents.past_selves

    def wants_match(self, rng: np.random.Generator) -> bool:
        """Draws whether the next matches are against past selves; False if no policy has any."""
        return self.exist and rng.random() < self._share

    def draw(self, policy: int, live_policy: int, rng: np.random.Generator) -> Player:
        """Draws a past self of `policy` as opponent of `live_policy`; the live `policy` if it has none."""
        opponents = self._opponents.get(policy)
        if opponents is None or not opponents.past_selves:
            return Player(policy)
        weights = opponents.weights[live_policy].astype(np.float64)
        index = rng.choice(len(weights), p=weights / weights.sum())
        return Player(policy, opponents.past_selves[index])

    def has(self, player: Player) -> bool:
        """Returns whether a player can still play: it is live, or is a past self that may still be drawn."""
        return player.past_self is None or player.past_self in self.of(player.policy_id)


class MatchSetup(NamedTuple):
    """Describes an env to the matchmaking that chooses its players.

    kind_of_agent: kind of each agent; agents of one kind have the same spaces.
    mix_policies: value of --pbt_mix_policies_in_one_env.
    rng: random generator with a seed that follows from --seed.
    past_selves: the past selves that may be drawn, which change during the run; none without
        --selfplay_past_share.
    env_id: number of the env among all envs of the run.
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
        """Returns the ids of the policies that can play an agent; policy p plays kind p % number of kinds."""
        return range(self.kind_of_agent[agent], self.num_policies, max(self.kind_of_agent) + 1)


@runtime_checkable
class Matchmaking(Protocol):
    """In a rollout worker: chooses the players of one env. A match ends when every agent that takes part has
    ended an episode; with one agent, every episode is a match."""

    def next_match(self) -> Sequence[Player | int]:
        """Returns the player of each agent in the next match: a policy id, or a `Player`, which may be a past
        self. Called before the first match and after each match. If envs receive training info, which
        contains the policy of the next match, it is called one match earlier."""


class MatchmakingError(Explained):
    """Raised if a user's matchmaking raises, or does not return a list of players."""


def register_matchmaking(name: str, factory: MatchmakingFactory | str) -> None:
    """Makes a rule for who plays whom available as --matchmaking=name.

    For example, where policy 0 always has the first seat:

        class FirstSeat:
            def __init__(self, setup):
                self.setup = setup

            def next_match(self):
                others = self.setup.rng.integers(1, self.setup.num_policies, self.setup.num_agents - 1)
                return [0, *others]

        sample_factory.register_matchmaking("first_seat", FirstSeat)

    Args:
        name: Value of the flag --matchmaking.
        factory: A class or function factory(setup) that returns a `Matchmaking`. It is called in a rollout
            worker for each of its envs with a `MatchSetup`. A "module:attribute" string is imported there.

    If a match has anything but one player for each agent, the run ends with a MatchmakingError.
    """
    _REGISTRY.register(name, factory)


def registered_matchmaking(name: str) -> MatchmakingFactory | str:
    """Returns the factory that was registered under a name; a name "module:attribute" is returned unchanged.

    Raises ConfigError, which lists the known names, for an unknown name.
    """
    factory: MatchmakingFactory | str = _REGISTRY.find(name)
    return factory


class CheckedMatchmaking:
    """Makes the matchmaking of an env, and checks what it returns: raises MatchmakingError if it cannot be
    made, if it raises, or if it returns anything but one player per agent.

    Converts policy ids to players, and replaces a past self that is no longer available by its live policy.
    """

    def __init__(self, name: str, factory: Any, setup: MatchSetup):
        """Calls `factory` with `setup` to make the matchmaking of one env. name: the value of --matchmaking,
        for messages. factory: a class or function, or its "module:attribute"."""
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
        self._matchmaking = made
        self._setup = setup
        self._name = f"{flag}: {type(made).__name__}.next_match"
        self._drawn: Any = None  # what the rule has returned for a match that has not begun
        self._returned: list[Any] = []  # for the last match that has begun
        self._players: list[Player] = []

    def next_match(self) -> Sequence[Player]:
        """Returns the player of each agent in the next match; the same list as before if none changes."""
        returned = self._draw()
        self._drawn = None
        if list(returned) != self._returned or not all(map(self._setup.past_selves.has, self._players)):
            self._players = [self._player(agent, player, returned) for agent, player in enumerate(returned)]
            self._returned = list(returned)
        return self._players

    def next_policy(self, agent: int) -> int:
        """Returns the policy that plays an agent in the match that `next_match` will return."""
        returned = self._draw()
        return self._player(agent, returned[agent], returned).policy_id

    def _draw(self) -> Any:
        """Returns what the user's rule has returned for the next match; calls the rule once per match."""
        if self._drawn is not None:
            return self._drawn
        try:
            returned = self._matchmaking.next_match()
        except Exception as error:  # any error of a user's code
            raise MatchmakingError(f"{self._name} raised {one_line(error)}") from error
        num_agents = self._setup.num_agents
        if not isinstance(returned, (Sequence, np.ndarray)) or len(returned) != num_agents:
            self._refuse(returned, f"{num_agents} players, one per agent")
        self._drawn = returned
        return returned

    def _player(self, agent: int, player: Any, returned: Any) -> Player:
        if isinstance(player, (int, np.integer)):
            player = Player(int(player))
        policies = self._setup.policies_of(agent)
        if not isinstance(player, Player) or player.policy_id not in policies:
            allowed = ", ".join(map(str, policies))
            expected = f"for agent {agent} one of the policies ({allowed}), or a past self of one"
            self._refuse(returned, expected)
        return player if self._setup.past_selves.has(player) else Player(player.policy_id)

    def _refuse(self, returned: Any, expected: str) -> None:
        raise MatchmakingError(f"{self._name} returned {returned!r}; it should return {expected}")
