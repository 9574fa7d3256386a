import cv2
import numpy as np
import pytest
import vizdoom

from sample_factory.families.doom import game_configuration
from sample_factory.families.doom.action_spaces import flat
from sample_factory.families.doom.doom_family import SCENARIOS_FOLDER, DoomSpec
from sample_factory.families.doom.observation import NUM_MEASUREMENTS, make_resize, measurement_reader


def read(**known: float) -> list[float]:
    measure = measurement_reader({name: place for place, name in enumerate(known)})
    vector = measure(list(known.values()))
    assert vector.shape == (NUM_MEASUREMENTS,) and vector.dtype == np.float32
    return vector.tolist()


def test_the_order_and_the_scales_are_those_of_the_paper():
    vector = read(
        USER2=20.0,
        HEALTH=60.0,
        ARMOR=15.0,
        SELECTED_WEAPON=3.0,
        SELECTED_WEAPON_AMMO=30.0,
        ATTACK_READY=1.0,
        PLAYER_COUNT=4.0,
        WEAPON0=1.0,
        WEAPON7=2.0,
        AMMO0=15.0,
        AMMO7=45.0,
    )
    expected = [3, 2, 2, 0.5, 2, 1, 0.8, 1, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 3]
    np.testing.assert_allclose(vector, expected, rtol=1e-6)


def test_missing_variables_are_read_as_zero_and_one_player():
    np.testing.assert_allclose(read(), [0] * 6 + [0.2] + [0] * 16, rtol=1e-6)


def test_ammo_is_capped_and_negative_values_are_clipped():
    vector = read(
        SELECTED_WEAPON=-1.0, SELECTED_WEAPON_AMMO=1000.0, HEALTH=-999900.0, WEAPON1=-1.0, AMMO2=999.0
    )
    assert vector[0] == 0 and vector[1] == 5 and vector[2] == 0
    assert vector[8] == 0 and vector[17] == 5


@pytest.mark.parametrize(
    "screen_shape, shape", [((120, 160), (72, 128)), ((144, 256), (72, 128)), ((120, 160), (42, 42))]
)
def test_the_picture_is_resized_to_the_nearest_neighbours(screen_shape, shape):
    screen = np.random.default_rng(0).integers(0, 256, (3, *screen_shape), np.uint8)
    resized = make_resize(screen_shape, shape)(screen)
    expected = [cv2.resize(plane, shape[::-1], interpolation=cv2.INTER_NEAREST) for plane in screen]
    np.testing.assert_array_equal(resized, expected)


POSITION = (vizdoom.GameVariable.POSITION_X, vizdoom.GameVariable.POSITION_Y)


def test_the_flags_choose_what_is_observed_and_the_picture_for_humans_stays(make_env):
    chosen = {"doom_variables": ("HEALTH", "POSITION_Y"), "doom_buffers": ("automap", "depth", "labels")}
    env = make_env("doom_battle", render_mode="rgb_array", doom_grey=True, **chosen)
    observation, _ = env.reset(seed=1)
    assert observation in env.observation_space
    shapes = {key: array.shape for key, array in observation.items()}
    pictures = dict.fromkeys(("obs", "automap", "depth", "labels"), (1, 72, 128))
    assert shapes == {**pictures, "measurements": (NUM_MEASUREMENTS,), "variables": (2,)}
    assert observation["variables"][0] == 100
    assert len({array.tobytes() for key, array in observation.items() if key in pictures}) == 4
    red, green, blue = env.render().transpose(2, 0, 1)
    assert red.shape == (480, 640) and (red != green).any() and (green != blue).any()
    in_colour = make_env("doom_battle", doom_buffers=("automap",))
    assert in_colour.observation_space["automap"].shape == (3, 72, 128)


def test_each_agent_of_a_match_observes_its_own_variables_and_buffers(make_env):
    chosen = {"doom_variables": ("POSITION_X", "POSITION_Y"), "doom_buffers": ("labels",), "doom_grey": True}
    env = make_env("doom_duel", render_mode="rgb_array", timelimit=0.1, **chosen)
    observations, _ = env.reset(seed=1)
    for agent, observation in zip(env.agents, observations, strict=True):
        assert observation in env.observation_space
        positions = [agent.engine.game.get_game_variable(variable) for variable in POSITION]
        np.testing.assert_allclose(observation["variables"], positions, rtol=1e-6)
    first, second = observations
    assert (first["variables"] != second["variables"]).any() and (first["labels"] != second["labels"]).any()
    assert env.render().shape == (480, 2 * 640 + 4, 3)


def test_what_a_cfg_switches_on_in_vain_is_switched_off_with_one_line(make_env, tmp_path, caplog):
    switched_on = [f"{name}_buffer_enabled = true\n" for name in ("depth", "labels", "audio")]
    scenario = tmp_path / "mine.cfg"
    scenario.write_text((SCENARIOS_FOLDER / "basic.cfg").read_text() + "".join(switched_on))
    game_configuration.warn_once.cache_clear()
    spec = DoomSpec("my_env", str(scenario), flat(4), buffers=("labels",))
    games = [make_env("my_env", spec=spec)._engine.game for _ in range(2)]
    (line,) = caplog.messages
    assert line.startswith("mine.cfg switches on what costs time and the policy does not observe")
    assert "switched off: depth_buffer, audio_buffer." in line
    for game in games:
        assert game.is_labels_buffer_enabled()
        assert not game.is_depth_buffer_enabled() and not game.is_audio_buffer_enabled()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"doom_buffers": ("labels", "dept")}, "the buffers are depth, labels, automap; there is no dept"),
        ({"doom_variables": ("HEALTH", "USER61")}, "ViZDoom has no game variable USER61; did you mean USER6"),
    ],
)
def test_an_observation_that_there_is_not_is_refused(make_env, chosen, message):
    with pytest.raises(ValueError, match=f"^doom_basic: {message}"):
        make_env("doom_basic", **chosen)
