"""Which policy plays which agent: its current weights, or those of one of its past selves."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sample_factory.checkpoints.milestones import Milestone
from sample_factory.exchange.messages import Opponents

MATCHES_PER_DRAW = 10


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
        return player.is_live or player.past_self in self._opponents[player.policy_id].past_selves


class Matchmaker:
    """Draws a random policy for each agent of one env, again after every MATCHES_PER_DRAW matches. A match is
    over when every agent that takes part in it has ended an episode.

    In a match against past selves, one agent, drawn at random, is played by a live policy, and each of the
    others by a past self of the policy that was drawn for it.

    Policy p only plays agents of kind p % num_kinds: those have its observation and action spaces.
    """

    def __init__(
        self,
        num_policies: int,
        kind_of_agent: Sequence[int],
        mix_policies: bool,
        rng: np.random.Generator,
        past_selves: PastSelves | None = None,
    ):
        """mix_policies: whether the agents of one env may be played by different policies."""
        self._kinds = np.array(kind_of_agent)
        self._num_kinds = max(kind_of_agent) + 1
        self._num_agents = len(kind_of_agent)
        self._policies_per_kind = num_policies // self._num_kinds
        self._mix_policies = mix_policies
        self._rng = rng
        self._past_selves = past_selves or PastSelves()
        self._num_matches = 0
        self._drawn = self._draw()

    @property
    def drawn(self) -> Sequence[Player]:
        """The players of all agents' next episodes."""
        return self._drawn

    def match_ended(self) -> bool:
        """Draws again if that is due; to be called before the players of the next match are read.

        Returns whether it was due.
        """
        self._num_matches += 1
        is_due = self._num_matches % MATCHES_PER_DRAW == 0
        has_first_opponents = self._past_selves.exist and not self._knew_opponents
        if not (is_due or has_first_opponents or not all(map(self._past_selves.has, self._drawn))):
            return False
        self._drawn = self._draw()
        return True

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
        size = self._num_agents if self._mix_policies else 1
        drawn = self._rng.integers(self._policies_per_kind, size=size) * self._num_kinds + self._kinds
        return [int(policy) for policy in drawn]


class Group(NamedTuple):
    """A player and the agents, [agents] bool, that it acts for."""

    player: Player
    agents: np.ndarray


class PlayerAssignment:
    """The player of each agent of E envs in its current episode, as drawn by the envs' matchmakers.

    policies: [agents] int16. is_live: [agents] bool; only the steps of live policies are trained on.
    """

    def __init__(self, matchmakers: Sequence[Matchmaker], agents_per_env: int):
        self._matchmakers = matchmakers
        self._agents_per_env = agents_per_env
        num_agents = len(matchmakers) * agents_per_env
        self._env_of_agent = np.arange(num_agents) // agents_per_env
        self._players: list[Player] = []  # every player seen so far
        self._ids: dict[Player, int] = {}  # positions in _players
        self._policy_of_player: np.ndarray = np.zeros(0, np.int16)
        self._player_is_live: np.ndarray = np.zeros(0, bool)
        self._player_ids = np.zeros(num_agents, np.int64)  # of each agent
        self._drawn_ids = np.zeros(num_agents, np.int64)  # of each agent in its next episode
        self.policies = np.zeros(num_agents, np.int16)
        self.is_live = np.ones(num_agents, bool)
        self._read_draws(range(len(matchmakers)))
        self._assign(np.arange(num_agents))

    def players_of(self, agents: Sequence[int]) -> list[Player]:
        """Returns the players of some agents' current episodes."""
        return [self._players[player_id] for player_id in self._player_ids[agents].tolist()]

    def next_episodes(self, ended: Sequence[int], over: Sequence[int], begun: np.ndarray) -> np.ndarray:
        """Assigns players to the agents that begin an episode; no player changes within an episode.

        ended: agents whose episodes ended in this step. over: envs whose matches ended with them. begun:
        [agents] bool, True within an episode. Returns the agents assigned, [n] int64: those of `ended`, and
        in envs whose match is over also those whose episode had ended earlier.
        """
        self._read_draws([env for env in over if self._matchmakers[env].match_ended()])
        starting = np.asarray(ended, np.int64)
        if over:
            is_waiting = ~begun & np.isin(self._env_of_agent, over)
            starting = np.union1d(starting, np.flatnonzero(is_waiting))
        self._assign(starting)
        return starting

    def groups(self, active: np.ndarray) -> Iterator[Group]:
        """Yields every player of active agents, [agents] bool: by policy, the live one before past selves."""
        # Several times as fast as numpy.unique for these short arrays of small numbers.
        present = np.flatnonzero(np.bincount(self._player_ids[active])).tolist()
        for player_id in sorted(present, key=lambda player_id: _order(self._players[player_id])):
            yield Group(self._players[player_id], (self._player_ids == player_id) & active)

    def _read_draws(self, envs: Sequence[int]) -> None:
        """Reads the players that the matchmakers of some envs have drawn."""
        for env in envs:
            first = env * self._agents_per_env
            drawn = self._matchmakers[env].drawn
            self._drawn_ids[first : first + len(drawn)] = [self._id_of(player) for player in drawn]

    def _assign(self, agents: np.ndarray) -> None:
        ids = self._drawn_ids[agents]
        self._player_ids[agents] = ids
        self.policies[agents] = self._policy_of_player[ids]
        self.is_live[agents] = self._player_is_live[ids]

    def _id_of(self, player: Player) -> int:
        if player not in self._ids:
            self._ids[player] = len(self._players)
            self._players.append(player)
            self._policy_of_player = np.append(self._policy_of_player, np.int16(player.policy_id))
            self._player_is_live = np.append(self._player_is_live, player.is_live)
        return self._ids[player]


def _order(player: Player) -> tuple[int, ...]:
    return player.policy_id, *(player.past_self or ())
