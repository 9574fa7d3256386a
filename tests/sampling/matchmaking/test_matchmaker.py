import numpy as np
import pytest

from sample_factory.checkpoints.milestones import Milestone
from sample_factory.exchange.messages import Opponents
from sample_factory.sampling.matchmaking.matchmaker import MATCHES_PER_DRAW, PlayerAssignment
from sample_factory.sampling.matchmaking.matchmaking import PastSelves, Player
from tests.sampling.matchmaking.matchmakers import random_matchmaker

DRAWS = 400
A, B, *MORE = (Milestone(0, version, 10 * version) for version in range(8))
EIGHT = (A, B, *MORE)
C = Milestone(1, version=1, env_frames=10)


def opponents(policy=0, past_selves=(A, B), weights=None, num_policies=2):
    weights = np.ones((num_policies, len(past_selves))) if weights is None else np.array(weights)
    return Opponents(policy, tuple(past_selves), weights.astype(np.float32))


def make_matchmaker(share, *messages, num_policies=1, num_agents=2, mix=True):
    past_selves = PastSelves(share)
    for message in messages:
        past_selves.update(message)
    rng = np.random.default_rng(0)
    return random_matchmaker(num_policies, [0] * num_agents, mix, rng, past_selves), past_selves


def matches(matchmaker, count=DRAWS):
    """Yields the players of each draw."""
    for _ in range(count):
        yield list(matchmaker.next_match())
        for _ in range(MATCHES_PER_DRAW - 1):
            matchmaker.next_match()


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_of_matches_against_past_selves_is_the_given_one(share):
    matchmaker, _ = make_matchmaker(share, opponents())
    past = [any(not player.is_live for player in players) for players in matches(matchmaker)]
    assert np.mean(past) == pytest.approx(share, abs=0.08)


@pytest.mark.parametrize("num_agents", [2, 4])
def test_one_agent_is_live_in_such_a_match_and_it_is_not_always_the_same_one(num_agents):
    matchmaker, _ = make_matchmaker(1.0, opponents(), num_agents=num_agents)
    live = []
    for players in matches(matchmaker):
        (agent,) = [i for i, player in enumerate(players) if player.is_live]
        live.append(agent)
    assert np.allclose(np.bincount(live) / DRAWS, 1 / num_agents, atol=0.1)


def test_each_of_the_others_is_a_past_self_of_the_policy_that_was_drawn_for_it():
    messages = opponents(0, (A, B)), opponents(1, (C,))
    matchmaker, _ = make_matchmaker(1.0, *messages, num_policies=2)
    seen = {player for players in matches(matchmaker) for player in players}
    assert seen == {Player(0), Player(1), Player(0, A), Player(0, B), Player(1, C)}


def test_agents_of_different_kinds_meet_past_selves_of_policies_of_their_own_kind():
    past_selves = PastSelves(1.0)
    for message in (opponents(0, (A,)), opponents(1, (C,))):
        past_selves.update(message)
    matchmaker = random_matchmaker(2, [0, 1], True, np.random.default_rng(0), past_selves)
    seen = {tuple(players) for players in matches(matchmaker)}
    assert seen == {(Player(0), Player(1, C)), (Player(0, A), Player(1))}


def test_without_mixing_all_agents_of_an_env_are_played_by_one_policy():
    messages = opponents(0), opponents(1, (C,))
    matchmaker, _ = make_matchmaker(1.0, *messages, num_policies=2, mix=False)
    assert all(len({player.policy_id for player in players}) == 1 for players in matches(matchmaker))


def test_opponents_are_drawn_by_the_weights_that_the_live_policy_has_for_them():
    messages = opponents(0, (A, B), [[1, 3], [1, 0]]), opponents(1, ())
    matchmaker, _ = make_matchmaker(1.0, *messages, num_policies=2)
    drawn = {0: [], 1: []}
    for players in matches(matchmaker, count=2000):
        past = [player.past_self for player in players if not player.is_live]
        live = [player.policy_id for player in players if player.is_live]
        if past:
            drawn[live[0]] += past
    assert drawn[0].count(B) / len(drawn[0]) == pytest.approx(0.75, abs=0.06)
    assert set(drawn[1]) == {A}


def test_a_policy_without_past_selves_is_played_live():
    matchmaker, _ = make_matchmaker(1.0, opponents(0, ()))
    assert all(player == Player(0) for players in matches(matchmaker) for player in players)


def test_a_past_self_that_is_no_longer_in_use_is_replaced_in_the_next_match():
    matchmaker, past_selves = make_matchmaker(1.0, opponents(0, (A,)))
    assert A in {player.past_self for player in matchmaker.next_match()}
    past_selves.update(opponents(0, (B,)))
    assert {player.past_self for player in matchmaker.next_match()} == {None, B}


def test_the_first_past_selves_are_met_in_the_next_match():
    matchmaker, past_selves = make_matchmaker(1.0, opponents(0, ()))
    assert set(matchmaker.next_match()) == {Player(0)}
    past_selves.update(opponents(0, (A,)))
    assert set(matchmaker.next_match()) == {Player(0), Player(0, A)}


def test_without_past_selves_the_draws_do_not_depend_on_their_share():
    rng = np.random.default_rng(0)
    plain = random_matchmaker(3, [0, 0], True, rng)
    other, _ = make_matchmaker(0.5, num_policies=3)
    assert list(matches(plain)) == list(matches(other))


NONE_BEGUN = np.zeros(2, bool)  # no agent is within an episode


def test_agents_that_end_together_begin_a_match_together():
    matchmaker, _ = make_matchmaker(1.0, opponents())
    players = PlayerAssignment([matchmaker], 2)
    for _ in range(MATCHES_PER_DRAW * 20):
        players.next_episodes([0, 1], [0], NONE_BEGUN)
        assert players.is_live.tolist().count(True) == 1


def test_an_agent_that_ended_early_begins_the_next_match_with_the_others():
    matchmaker, _ = make_matchmaker(1.0, opponents(0, EIGHT))
    players = PlayerAssignment([matchmaker], 2)
    matches = set()
    for _ in range(MATCHES_PER_DRAW * 20):
        before = players.players_of([0])[0], players.players_of([1])[0]
        assert players.next_episodes([0], [], np.array([False, True])).tolist() == [0]
        assert (players.players_of([0])[0], players.players_of([1])[0]) == before
        assert players.next_episodes([1], [0], NONE_BEGUN).tolist() == [0, 1]
        assert players.is_live.tolist().count(True) == 1
        matches.add((players.players_of([0])[0], players.players_of([1])[0]))
    assert len(matches) > 5


def test_an_agent_changes_its_player_only_where_its_own_episode_ends():
    matchmaker, _ = make_matchmaker(1.0, opponents(0, EIGHT))
    players = PlayerAssignment([matchmaker], 2)
    changes = 0
    for _ in range(MATCHES_PER_DRAW * 100):
        before = players.players_of([0])[0], players.players_of([1])[0]
        players.next_episodes([1], [0], np.array([True, False]))
        assert players.players_of([0])[0] == before[0]
        changes += players.players_of([1])[0] != before[1]
    assert changes > 10


def test_groups_are_the_active_agents_of_each_player():
    past_selves = PastSelves(1.0)
    past_selves.update(opponents(0, (A,)))
    matchmakers = [
        random_matchmaker(1, [0, 0], True, np.random.default_rng(i), past_selves) for i in range(3)
    ]
    players = PlayerAssignment(matchmakers, 2)
    active = np.array([True, True, True, True, False, False])
    (live, of_live), (past, of_past) = players.groups(active)
    assert (live, past) == (Player(0), Player(0, A))
    assert np.array_equal(of_live, players.is_live & active)
    assert np.array_equal(of_past, ~players.is_live & active)
