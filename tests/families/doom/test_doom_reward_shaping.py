import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.families.doom.action_spaces import flat
from sample_factory.families.doom.doom_family import DoomFlags, DoomSpec
from sample_factory.families.doom.player_score import PlayerScore, VariableShaping, scored_variables
from sample_factory.families.doom.shaping_schemes import AGAINST_BOTS, SELF_PLAY, parse_shaping

NAMES = (*AGAINST_BOTS["delta"], "SELECTED_WEAPON", "SELECTED_WEAPON_AMMO", "DEAD")
VARIABLES = {name: place for place, name in enumerate(NAMES)}


def values(**known: float) -> list[float]:
    return [known.get(name, 0.0) for name in NAMES]


def reward_of_change(scheme, before: dict, after: dict) -> float:
    shaping = VariableShaping(scheme, VARIABLES)
    assert shaping.step(values(**before)) == 0
    return shaping.step(values(**after))


@pytest.mark.parametrize(
    "name, before, after, against_bots, self_play",
    [
        ("FRAGCOUNT", 0, 2, 2.0, 2.0),
        ("FRAGCOUNT", 2, 1, -1.5, -0.001),
        ("DEATHCOUNT", 0, 1, -0.75, -1.0),
        ("HITCOUNT", 0, 3, 0.03, 0.0),
        ("HITCOUNT", 0, 9, 0.05, 0.0),
        ("DAMAGECOUNT", 100, 150, 0.15, 0.5),
        ("DAMAGECOUNT", 0, 1000, 0.6, 2.0),
        ("HEALTH", 50, 70, 0.1, 0.2),
        ("HEALTH", 70, 50, -0.06, -0.2),
        ("HEALTH", 100, -999900, -0.6, -2.0),
        ("ARMOR", 0, 100, 0.5, 0.5),
        ("ARMOR", 100, 0, -0.1, -0.1),
        ("WEAPON3", 0, 1, 0.1, 0.1),
        ("WEAPON3", 1, 0, -0.05, -0.05),
        ("AMMO7", 0, 40, 0.08, 0.08),
        ("AMMO7", 40, 0, -0.04, -0.04),
    ],
)
def test_a_change_is_worth_its_weight_up_to_a_maximum(name, before, after, against_bots, self_play):
    assert reward_of_change(AGAINST_BOTS, {name: before}, {name: after}) == pytest.approx(against_bots)
    assert reward_of_change(SELF_PLAY, {name: before}, {name: after}) == pytest.approx(self_play)


def test_nothing_is_paid_for_the_first_step_of_a_new_life():
    dead = {"DEAD": 1, "HEALTH": 0}
    alive = {"DEAD": 0, "HEALTH": 100}
    assert reward_of_change(AGAINST_BOTS, dead, alive) == 0


@pytest.mark.parametrize(
    "slot, bonus", [(0, 0.0002), (2, 0.0002), (3, 0.001), (5, 0.001), (6, 0.002), (7, 0.002)]
)
def test_the_bonus_is_that_of_the_selected_slot_from_the_fifth_reading_on(slot, bonus):
    shaping = VariableShaping(AGAINST_BOTS, VARIABLES)
    in_hand = values(SELECTED_WEAPON=slot, SELECTED_WEAPON_AMMO=10)
    assert [shaping.step(in_hand) for _ in range(6)] == [0, 0, 0, 0, bonus, bonus]


def test_there_is_no_bonus_for_an_empty_or_a_new_weapon():
    shaping = VariableShaping(AGAINST_BOTS, VARIABLES)
    for _ in range(10):
        assert shaping.step(values(SELECTED_WEAPON=3)) == 0
    for _ in range(10):
        shaping.step(values(SELECTED_WEAPON=3, SELECTED_WEAPON_AMMO=10))
    assert shaping.step(values(SELECTED_WEAPON=2, SELECTED_WEAPON_AMMO=10)) == 0


@pytest.mark.parametrize("part, reward", [("delta", -0.3), ("selected_weapon", 0.001)])
def test_either_part_of_a_scheme_may_be_left_out(part, reward):
    shaping = VariableShaping({part: AGAINST_BOTS[part]}, VARIABLES)
    weapon = {"SELECTED_WEAPON": 3, "SELECTED_WEAPON_AMMO": 10}
    for _ in range(5):
        shaping.step(values(HEALTH=100, **weapon))
    assert shaping.step(values(HEALTH=0, **weapon)) == pytest.approx(reward)


def test_each_square_of_the_map_is_paid_for_once_except_the_first():
    shaping = VariableShaping({"first_visit": 0.5}, {"POSITION_X": 0, "POSITION_Y": 1})
    path = [(10, -10), (63, -64), (64, -64), (64, -65), (0, -1), (100, -70), (-0.5, -1)]
    assert [shaping.step([float(x), float(y)]) for x, y in path] == [0, 0, 0.5, 0.5, 0, 0, 0.5]


def test_a_weight_of_the_flag_is_that_of_a_rise_and_with_the_other_sign_of_a_fall_unless_both_are_given():
    assert parse_shaping(("HITCOUNT=200", "DAMAGE_TAKEN=-1e1", "HEALTH=1/-0.5", "AMMO2=5/0")) == {
        "delta": {
            "HITCOUNT": {"gain": 200.0, "loss": -200.0},
            "DAMAGE_TAKEN": {"gain": -10.0, "loss": 10.0},
            "HEALTH": {"gain": 1.0, "loss": -0.5},
            "AMMO2": {"gain": 5.0, "loss": 0.0},
        }
    }
    assert parse_shaping(()) is None and parse_shaping(("none",)) == {}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"doom_shaping": ("HEALTH=1", "HEALTH=2")}, "^--doom_shaping names HEALTH twice"),
        ({"doom_cost": ("HEALTH",)}, "^--doom_cost: HEALTH is not .* like --doom_cost HITCOUNT=200 "),
    ],
)
def test_weights_that_cannot_be_are_refused_by_their_flag(flags, message):
    with pytest.raises(ConfigError, match=message):
        DoomFlags(**flags)


BAD_WEIGHTS = "HITCOUNT HITCOUNT= HITCOUNT=2/ =2 HIT=two HIT=nan HIT=1e99 HIT=1/inf HIT=1,AMMO2=5 H=1/2/3"


@pytest.mark.parametrize("text", BAD_WEIGHTS.split())
def test_a_weight_of_another_form_is_refused_with_an_example(text):
    with pytest.raises(
        ConfigError, match=f"^--doom_shaping: {text} is not .* like --doom_shaping HITCOUNT=200 "
    ):
        DoomFlags(doom_shaping=("HEALTH=1", text))


def test_costs_are_changes_of_variables_from_the_first_step_to_the_last_and_no_rewards():
    cost = parse_shaping(("HEALTH=0/1",), "doom_cost")
    spec = DoomSpec("my_env", "basic.cfg", flat(4), cost=cost)
    assert scored_variables(spec) == ["HEALTH"]
    score = PlayerScore(spec, {"HEALTH": 0})
    for _ in range(2):
        score.start([100.0])
        assert score.step(0.5, [70.0]) == 0.5 and score.costs == {"cost": 30.0}
        assert score.step(0.5, [95.0]) == 0.5 and score.costs == {"cost": 0.0}
        assert score.end(0.0, [0.0]) == (0.0, {"cost": 95.0})
