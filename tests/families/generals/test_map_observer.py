"""The planes and masks of Generals, against the package's own observations."""

import numpy as np
import pytest
from generals.core.action import compute_valid_move_mask
from generals.core.game import Game
from generals.core.grid import GridFactory

from sample_factory.families.generals.map_observer import (
    LOG2_SCALE,
    MEMORY_PLANES,
    NUM_DIRECTIONS,
    PASS,
    VISIBLE_PLANES,
    MapObserver,
    num_actions,
    to_action,
    to_move,
)

SIDE = 7  # of the observation; the maps are 6 x 6


def plane(planes: np.ndarray, name: str) -> np.ndarray:
    return planes[(*VISIBLE_PLANES, *MEMORY_PLANES).index(name)]


class Duel:
    """A game in which random allowed moves are made, with the observers of both players."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        factory = GridFactory("uniform", (6, 6), (6, 6), 0.15, 0.1)
        factory.set_rng(self.rng)
        self.game = Game(factory.generate(), ["red", "blue"])
        self.observers = {name: MapObserver(SIDE, True, 100) for name in ("red", "blue")}
        self.moves = {"red": PASS, "blue": PASS}

    def observe(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        enemy = "blue" if name == "red" else "red"
        return self.observers[name].observe(self.game, name, enemy, self.moves[name])

    def play(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Makes a turn; returns what both players have seen before it."""
        seen = {name: self.observe(name) for name in self.moves}
        for name, (_, mask) in seen.items():
            self.moves[name] = to_move(int(self.rng.choice(np.flatnonzero(mask))), SIDE)
        self.game.step(dict(self.moves))
        return seen


def test_every_action_is_another_move_and_back():
    moves = {to_move(action, SIDE) for action in range(num_actions(SIDE))}
    assert len(moves) == num_actions(SIDE) and PASS in moves
    assert [to_action(to_move(action, SIDE), SIDE) for action in range(num_actions(SIDE))] == list(
        range(num_actions(SIDE))
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_planes_and_the_mask_are_those_of_the_packages_observation(seed):
    duel = Duel(seed)
    for _ in range(60):
        theirs = duel.game.agent_observation("red")
        planes, mask = duel.play()["red"]
        on_map = planes[:, :6, :6]
        expected = {
            "own": theirs.owned_cells,
            "enemy": theirs.opponent_cells,
            "neutral": theirs.neutral_cells,
            "mountain": theirs.mountains,
            "city": theirs.cities,
            "fog": theirs.fog_cells,
            "structure_in_fog": theirs.structures_in_fog,
            "own_general": theirs.generals & theirs.owned_cells,
            "enemy_general": theirs.generals & theirs.opponent_cells,
        }
        for name, values in expected.items():
            np.testing.assert_array_equal(plane(on_map, name), values, err_msg=name)
        for name in ("own", "enemy", "neutral"):
            armies = np.log2(1 + theirs.armies * expected[name]) * LOG2_SCALE
            np.testing.assert_allclose(plane(on_map, f"{name}_army"), armies, rtol=1e-6)
        moves = mask[:-1].reshape(NUM_DIRECTIONS, 2, SIDE, SIDE)
        for is_split in range(2):
            allowed = moves[:, is_split, :6, :6].transpose(1, 2, 0)
            np.testing.assert_array_equal(allowed, compute_valid_move_mask(theirs))
        assert mask[-1] == 1 and moves[..., 6, :].sum() == moves[..., 6].sum() == 0
        assert plane(planes, "mountain")[6].all() and not plane(planes, "on_map")[:, 6].any()
        if duel.game.is_done():
            break


def test_memory_holds_what_was_seen_and_forgets_it_in_the_next_game():
    duel = Duel(5)
    ever_seen = np.zeros((6, 6), bool)
    cities = np.zeros((6, 6), bool)
    for _ in range(80):
        theirs = duel.game.agent_observation("red")
        planes = duel.play()["red"][0][:, :6, :6]
        visible = ~(theirs.fog_cells | theirs.structures_in_fog).astype(bool)
        ever_seen |= visible
        cities |= theirs.cities.astype(bool)
        np.testing.assert_array_equal(plane(planes, "seen_before"), ever_seen)
        np.testing.assert_array_equal(plane(planes, "known_city"), cities)
        np.testing.assert_array_equal(
            plane(planes, "last_seen_enemy")[visible], theirs.opponent_cells[visible]
        )
        assert (plane(planes, "time_since_seen")[visible] == 0).all()
    observer = duel.observers["red"]
    observer.reset()
    first = Duel(5)
    first.observers["red"] = observer
    planes = first.observe("red")[0][:, :6, :6]
    fog = plane(planes, "fog") + plane(planes, "structure_in_fog")
    np.testing.assert_array_equal(plane(planes, "seen_before"), 1 - fog)


def test_the_last_move_is_drawn():
    duel = Duel(1)
    while duel.moves["red"].is_pass:
        duel.play()
    planes, _ = duel.observe("red")
    move = duel.moves["red"]
    assert np.argwhere(plane(planes, "last_source")).tolist() == [[move.row, move.column]]
    ((row, column),) = np.argwhere(plane(planes, "last_target"))
    assert abs(row - move.row) + abs(column - move.column) == 1
