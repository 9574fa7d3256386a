"""Generals, beside the package's own Game."""

import numpy as np
import pytest
from generals.core.game import Game
from generals.core.grid import GridFactory

from tests.conformance.ledger import Plain, assert_equal
from tests.conformance.product import adapted_by_name, train_on

PLAYERS = ["red", "blue"]
SIDE, LIMIT = 4, 150


def to_move(action: int) -> tuple[int, int, int, int, int]:
    """Returns (pass, row, column, direction, split) of an action: 2 moves in a direction from each field."""
    if action == 8 * SIDE**2:
        return 1, 0, 0, 0, 0
    plane, row, column = (int(part) for part in np.unravel_index(action, (8, SIDE, SIDE)))
    return 0, row, column, plane // 2, plane % 2


@pytest.mark.parametrize("seed", [1, 2])
def test_duels(seed, count):
    env = adapted_by_name(f"generals_{SIDE}x{SIDE}", generals_shaping=0.0, generals_time_limit=LIMIT)
    trained = train_on(env, 9_000, seed=seed)
    rng = np.random.default_rng(seed)
    factory = GridFactory("uniform", (SIDE, SIDE), (SIDE, SIDE), 0.15, 0.04)
    factory.set_rng(rng)
    plain, ends = Plain(), {}
    game = Game(factory.generate(), PLAYERS)
    for step, row in enumerate(trained.actions[:, :, 0].astype(int)):
        _, stats = game.step({name: to_move(action) for name, action in zip(PLAYERS, row)})
        is_won = game.winner is not None
        is_cut = not is_won and game.time == LIMIT
        rewards = [(game.winner == name) - (game.loser == name) for name in PLAYERS]
        plain.add(rewards, is_won, is_cut)
        if is_won or is_cut:
            for agent, name in enumerate(PLAYERS):
                ends[step, agent] = ((1 + rewards[agent]) / 2, game.time, int(stats[name]["land"]))
            game = Game(factory.generate(), PLAYERS)
    tally = assert_equal(trained, plain)
    assert trained.terminated.any() and trained.truncated.any()
    for episode in trained.episodes:
        known = (episode.objective, episode.stats["turns"], episode.stats["land"])
        assert known == ends[episode.step, episode.agent]
    count("generals-bots", tally)
