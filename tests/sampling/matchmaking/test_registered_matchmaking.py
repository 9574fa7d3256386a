"""A user's rule for who plays whom: how it is found, and what it may return."""

import numpy as np
import pytest

from sample_factory import register_matchmaking
from sample_factory.checkpoints.milestones import Milestone
from sample_factory.exchange.messages import Opponents
from sample_factory.sampling.matchmaking.matchmaker import PlayerAssignment
from sample_factory.sampling.matchmaking.matchmaking import (
    CheckedMatchmaking,
    MatchmakingError,
    MatchSetup,
    PastSelves,
    Player,
    registered_matchmaking,
)

A, B = (Milestone(0, version, 10 * version) for version in (1, 2))


class Given:
    """Returns the given players, one list for each match."""

    def __init__(self, *matches):
        self.matches = list(matches)

    def next_match(self):
        match = self.matches.pop(0)
        if isinstance(match, Exception):
            raise match
        return match


def setup(num_policies=4, kinds=(0, 0), past_selves=None):
    rng = np.random.default_rng(0)
    return MatchSetup(num_policies, kinds, True, rng, past_selves or PastSelves(), env_id=3)


def given(*matches, **of_setup):
    return CheckedMatchmaking("given", lambda _: Given(*matches), setup(**of_setup))


def test_policies_become_players_and_are_assigned_to_the_agents():
    players = PlayerAssignment([given([0, 3], (np.int64(2), Player(1)))], 2)
    assert players.policies.tolist() == [0, 3]
    players.next_episodes([0, 1], [0], np.zeros(2, bool))
    assert players.policies.tolist() == [2, 1] and players.is_live.all()


def test_a_rule_may_change_the_list_that_it_returned_before():
    players = [0, 1]
    matchmaking = given(players, players, players)
    first = matchmaking.next_match()
    assert matchmaking.next_match() is first, "nothing is assigned for the same players"
    players[0] = 2
    assert matchmaking.next_match() == [Player(2), Player(1)]


def test_the_rule_knows_its_env_and_the_policies_that_fit_each_agent():
    known = []
    CheckedMatchmaking("noted", lambda setup: known.append(setup) or Given(), setup(kinds=(0, 1)))
    assert known[0].env_id == 3 and known[0].num_agents == 2
    assert [list(known[0].policies_of(agent)) for agent in (0, 1)] == [[0, 2], [1, 3]]


def test_a_past_self_plays_while_it_is_in_use_and_its_policy_afterwards():
    past_selves = PastSelves()
    past_selves.update(Opponents(0, (A, B), np.ones((1, 2), np.float32)))
    matchmaking = given([0, Player(0, A)], [0, Player(0, A)], num_policies=1, past_selves=past_selves)
    assert past_selves.of(0) == (A, B)
    assert matchmaking.next_match() == [Player(0), Player(0, A)]
    past_selves.update(Opponents(0, (B,), np.ones((1, 1), np.float32)))
    assert matchmaking.next_match() == [Player(0), Player(0)]


@pytest.mark.parametrize(
    ("match", "kinds", "expected"),
    [
        ([0], (0, 0), r"Given.next_match returned \[0\]; it should return 2 players, one per agent"),
        (None, (0, 0), "returned None; it should return 2 players"),
        ([0, 4], (0, 0), r"it should return for agent 1 one of the policies \(0, 1, 2, 3\), or a past"),
        ([0, -1], (0, 0), r"for agent 1 one of the policies \(0, 1, 2, 3\)"),
        ([0, 2], (0, 1), r"for agent 1 one of the policies \(1, 3\)"),
        ([0, "b"], (0, 0), "for agent 1"),
        ([Player(7, A), 1], (0, 0), "for agent 0"),
        (KeyError("level"), (0, 0), "Given.next_match raised KeyError: 'level'"),
    ],
)
def test_whatever_cannot_play_is_an_error_of_one_line_that_names_the_rule(match, kinds, expected):
    with pytest.raises(MatchmakingError, match=f"--matchmaking=given: .*{expected}") as caught:
        given(match, kinds=kinds).next_match()
    assert "\n" not in str(caught.value)
    assert caught.value.permanent, "a replaced worker would meet it again"


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        (lambda setup: 3, "the registered function returned int; it should return an object with the method"),
        (lambda setup: 1 / 0, "cannot be made: ZeroDivisionError"),
        (lambda: Given(), "cannot be made: TypeError"),
        ("math:nothing", "cannot be made: .*math has no attribute nothing"),
        ("no_such_module:Rule", "cannot be made: ModuleNotFoundError"),
    ],
)
def test_a_rule_that_cannot_be_made_is_an_error_of_one_line(factory, expected):
    with pytest.raises(MatchmakingError, match=f"--matchmaking=bad.*{expected}"):
        CheckedMatchmaking("bad", factory, setup())


def test_the_flag_names_a_registered_rule_or_the_built_in_one():
    register_matchmaking("given_rule", Given)
    assert registered_matchmaking("given_rule") is Given
    assert registered_matchmaking("my.module:Rule") == "my.module:Rule"
    built_in = CheckedMatchmaking("random", registered_matchmaking("random"), setup())
    assert {player.policy_id for _ in range(100) for player in built_in.next_match()} == {0, 1, 2, 3}
    with pytest.raises(ValueError, match="--matchmaking=given_rul .* given_rule.*module:attr"):
        registered_matchmaking("given_rul")
