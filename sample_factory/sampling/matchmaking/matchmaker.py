"""The built-in matchmaking, and the players of all agents of a split."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from sample_factory.sampling.matchmaking.matchmaking import CheckedMatchmaking, MatchSetup, Player

MATCHES_PER_DRAW = 10


class Matchmaker:
    """Draws a policy for each agent of one env (--matchmaking=random), again after MATCHES_PER_DRAW matches.

    In a match against past selves, one agent, drawn at random, plays with the live policy that was drawn for
    it; every other agent plays with a past self of its policy.

    Policy p plays only agents of kind p % num_kinds, which have its observation and action spaces.
    """

    def __init__(self, setup: MatchSetup):
        self._kinds = np.array(setup.kind_of_agent)
        self._num_kinds = max(setup.kind_of_agent) + 1
        self._num_agents = setup.num_agents
        self._policies_per_kind = setup.num_policies // self._num_kinds
        self._mix_policies = setup.mix_policies
        self._rng = setup.rng
        self._past_selves = setup.past_selves
        self._num_matches = 0  # begun so far
        self._had_opponents = False  # at the last draw
        self._drawn: list[Player] = []

    def next_match(self) -> Sequence[Player]:
        """Returns the player of each agent; the same list as before unless players are drawn again."""
        is_due = self._num_matches % MATCHES_PER_DRAW == 0
        self._num_matches += 1
        has_first_opponents = self._past_selves.exist and not self._had_opponents
        if is_due or has_first_opponents or not all(map(self._past_selves.has, self._drawn)):
            self._drawn = self._draw()
        return self._drawn

    def _draw(self) -> list[Player]:
        self._had_opponents = self._past_selves.exist
        size = self._num_agents if self._mix_policies else 1
        drawn = self._rng.integers(self._policies_per_kind, size=size) * self._num_kinds + self._kinds
        policies = [int(policy) for policy in drawn]
        if not self._past_selves.wants_match(self._rng):
            return [Player(policy) for policy in policies]
        live = int(self._rng.integers(self._num_agents))
        return [
            Player(policy) if agent == live else self._past_selves.draw(policy, policies[live], self._rng)
            for agent, policy in enumerate(policies)
        ]


class PlayerAssignment:
    """Keeps track of which player plays each agent of E envs in its current episode. The matchmaking of each
    env chooses the players.

    policies: [agents] int16, policy ids. is_live: [agents] bool, False for past selves, whose steps are not
        trained on.
    """

    def __init__(self, matchmakings: Sequence[CheckedMatchmaking], agents_per_env: int):
        self._matchmakings = matchmakings
        self._matches: list[Sequence[Player]] = [()] * len(matchmakings)  # the newest of each env
        self._agents_per_env = agents_per_env
        num_agents = len(matchmakings) * agents_per_env
        self._env_of_agent = np.arange(num_agents) // agents_per_env
        self._players: list[Player] = []  # all players so far, by their id here
        self._ids: dict[Player, int] = {}
        self._policy_of_player: np.ndarray = np.zeros(0, np.int16)
        self._player_is_live: np.ndarray = np.zeros(0, bool)
        self._player_ids = np.zeros(num_agents, np.int64)  # by agent, in its current episode
        self._next_ids = np.zeros(num_agents, np.int64)  # by agent, in its next episode
        self.policies = np.zeros(num_agents, np.int16)
        self.is_live = np.ones(num_agents, bool)
        self._begin_matches(range(len(matchmakings)))
        self._assign(np.arange(num_agents))

    def players_of(self, agents: Sequence[int]) -> list[Player]:
        """Returns the player of each of the given agents in its current episode."""
        return [self._players[player_id] for player_id in self._player_ids[agents].tolist()]

    def next_policy(self, env: int) -> int:
        """Returns the policy that plays the first agent of an env in its next match."""
        return self._matchmakings[env].next_policy(0)

    def next_episodes(self, ended: Sequence[int], over: Sequence[int], begun: np.ndarray) -> np.ndarray:
        """Assigns players to the agents that may begin an episode, and returns these agents, [n] int64.

        These are the agents in `ended`, and all agents between two episodes in the envs `over`. No player
        changes within an episode.

        ended: agents whose episode ended in this step. over: envs whose match ended in this step.
        begun: [agents] bool, agents within an episode.
        """
        self._begin_matches(over)
        starting = np.asarray(ended, np.int64)
        if over:
            is_waiting = ~begun & np.isin(self._env_of_agent, over)
            starting = np.union1d(starting, np.flatnonzero(is_waiting))
        self._assign(starting)
        return starting

    def groups(self, active: np.ndarray) -> Iterator[tuple[Player, np.ndarray]]:
        """Yields (player, mask of the active agents that it plays, [agents] bool), sorted by policy, the live
        policy before its past selves. active: [agents] bool."""
        # Several times as fast as numpy.unique for these short arrays of small numbers.
        present = np.flatnonzero(np.bincount(self._player_ids[active])).tolist()

        def order(player_id: int) -> tuple[int, ...]:
            player = self._players[player_id]
            return player.policy_id, *(player.past_self or ())

        for player_id in sorted(present, key=order):
            yield self._players[player_id], (self._player_ids == player_id) & active

    def _begin_matches(self, envs: Iterable[int]) -> None:
        """Asks the matchmaking of each given env for the players of its next match."""
        for env in envs:
            players = self._matchmakings[env].next_match()
            if players is not self._matches[env]:
                self._matches[env] = players
                first = env * self._agents_per_env
                self._next_ids[first : first + len(players)] = [self._id_of(player) for player in players]

    def _assign(self, agents: np.ndarray) -> None:
        ids = self._next_ids[agents]
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


class Seats:
    """Assigns policy seats[i] to agent i. With `swap`, policies 0 and 1 exchange their agents after each
    match, and begin exchanged in envs with an odd env_id."""

    def __init__(self, seats: Sequence[int], swap: bool, setup: MatchSetup):
        """Prepares the assignment for one env. seats: policy id of each agent. setup: describes the env."""
        swapped = [[1 - policy for policy in seats]] if swap else []
        self._orders = [list(seats), *swapped]
        self._number = setup.env_id

    def next_match(self) -> Sequence[int]:
        """Returns the policy id of each agent in the next match."""
        order = self._orders[self._number % len(self._orders)]
        self._number += 1
        return order
