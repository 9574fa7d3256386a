"""ViZDoom's Gymnasium ids and our own scenarios, beside a bare `vizdoom.DoomGame`."""

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import gymnasium as gym
import numpy as np
import pytest
import vizdoom
from gymnasium.utils import seeding

from sample_factory import register_env
from sample_factory.families.doom.action_spaces import Discretized, flat
from sample_factory.families.doom.doom_family import DOOM_SPECS, DoomFlags, DoomSpec, doom_defaults
from sample_factory.families.doom.game_configuration import find_wad
from sample_factory.families.doom.make_doom_env import make_doom_env
from sample_factory.runtime.failures import Failure
from tests.conformance.ledger import Plain, assert_equal
from tests.conformance.product import adapted_by_name, train_on

HEALTH = vizdoom.GameVariable.HEALTH
SCENARIOS = Path(vizdoom.scenarios_path)
FRAMESKIP = 4  # of our scenarios, by default
X, Y = vizdoom.GameVariable.POSITION_X, vizdoom.GameVariable.POSITION_Y


class BareGame:
    """An engine by a .cfg, with the seeds that a Gymnasium env draws for its episodes."""

    def __init__(self, cfg: str | Path, seed: int, screen_format: vizdoom.ScreenFormat):
        self.game = vizdoom.DoomGame()
        self.game.load_config(str(cfg))
        self.game.set_window_visible(False)
        self.game.set_screen_format(screen_format)
        # Otherwise an engine goes on with the settings, e.g. the colour, that an earlier one has saved.
        self.game.set_doom_config_path("/dev/null")
        self._rng = seeding.np_random(seed)[0]

    def next_seed(self) -> int:
        return int(self._rng.integers(2**32))

    def end(self) -> tuple[bool, bool]:
        """Returns (terminated, truncated). A player who is alive at the limit is cut."""
        is_over = self.game.is_episode_finished()
        is_cut = is_over and self.game.is_episode_timeout_reached() and not self.game.is_player_dead()
        return is_over and not is_cut, is_cut


def play_id(env_id: str, actions: np.ndarray, frameskip: int) -> Plain:
    """Plays actions of VizdoomEnv, which has binary buttons only, in its engine."""
    spec = gym.spec(env_id)
    folder = Path(vizdoom.scenarios_path)
    bare = BareGame(folder / spec.kwargs["scenario_config_file"], 1, vizdoom.ScreenFormat.RGB24)
    game = bare.game
    game.set_audio_buffer_size(1)
    game.set_notifications_buffer_size(1)
    plain = Plain()
    # As in VizdoomEnv, of one button at most: nothing, then each button from the last to the first.
    num_buttons = game.get_available_buttons_size()
    buttons = [[0] * num_buttons, *np.eye(num_buttons, dtype=int)[::-1].tolist()]

    def see():
        state = game.get_state()
        variables = state.game_variables.astype(np.float32)[None]
        plain.see(screen=state.screen_buffer[None], gamevariables=variables)

    game.set_seed(bare.next_seed())
    game.init()
    see()
    for action in actions:
        reward, ended, frames = 0.0, (False, False), 0
        while frames < frameskip and not any(ended):
            reward += game.make_action(buttons[int(action[0])], 1)
            ended = bare.end()
            frames += 1
        plain.add(reward, *ended, frames=frames)
        if any(ended):
            game.set_seed(bare.next_seed())
            game.new_episode()
        see()
    game.close()
    return plain


@pytest.mark.parametrize(
    ("env_id", "num_steps", "frameskip"),
    [
        ("VizdoomBasic-v1", 3_000, 1),
        ("VizdoomBasic-v1", 4_500, 4),
        ("VizdoomDefendCenter-v1", 3_000, 4),
        ("VizdoomTakeCover-v1", 1_500, 4),
        ("VizdoomDeadlyCorridor-v1", 1_500, 4),
    ],
)
def test_gymnasium_ids(env_id, num_steps, frameskip, count):
    import vizdoom.gymnasium_wrapper  # noqa: F401  # registers the ids

    env = adapted_by_name(f"gym_{env_id}", env_frameskip=frameskip)
    trained = train_on(env, num_steps, frameskip=frameskip)
    plain = play_id(env_id, trained.actions[:, 0], frameskip)
    count("vizdoom Gymnasium ids", assert_equal(trained, plain))


class Chosen(NamedTuple):
    """What is observed and rewarded in place of a scenario's own. weights: (gain, loss) by variable."""

    size: tuple[int, int] = (128, 72)
    variables: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    grey: bool = False
    weights: Mapping[str, tuple[float, float]] = {}

    def flags(self) -> dict[str, Any]:
        return {
            "res_w": self.size[0],
            "res_h": self.size[1],
            "doom_variables": self.variables,
            "doom_buffers": self.buffers,
            "doom_grey": self.grey,
            "doom_shaping": tuple(f"{name}={gain}/{loss}" for name, (gain, loss) in self.weights.items()),
        }


AS_DEFINED = Chosen()


def play_spec(spec: DoomSpec, actions: np.ndarray, seed: int = 1, chosen: Chosen = AS_DEFINED) -> Plain:
    """Plays actions in the engine of a scenario, by the spec's .cfg, maps, buttons and limit."""
    screen_format = vizdoom.ScreenFormat.GRAY8 if chosen.grey else vizdoom.ScreenFormat.CRCGCB
    bare = BareGame(spec.scenario_path(), seed, screen_format)
    game = bare.game
    game.set_depth_buffer_enabled("depth" in chosen.buffers)
    game.set_labels_buffer_enabled("labels" in chosen.buffers)
    game.set_automap_buffer_enabled("automap" in chosen.buffers)
    game.set_audio_buffer_enabled(False)  # sounds change the picture, not the game
    if spec.name in DOOM_SPECS:
        game.set_doom_scenario_path(str(find_wad(Path(game.get_doom_scenario_path()).name)[0]))
    if spec.wad is not None:
        game.set_doom_scenario_path(str(SCENARIOS / spec.wad))
    if spec.iwad is not None:
        game.set_doom_game_path(spec.iwad)
    if spec.doom_map is not None:
        game.set_doom_map(spec.doom_map)
    if spec.doom_skill is not None:
        game.set_doom_skill(spec.doom_skill)
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
    plain = Plain()
    squares: set[tuple[float, float]] = set()

    def begin(is_first: bool = False) -> None:
        seed = bare.next_seed()
        game.set_seed(seed)
        if is_first:
            game.init()
            game.set_seed(seed)
        game.new_episode()
        squares.clear()
        if spec.shaping and "first_visit" in spec.shaping:
            squares.add(square())

    def square() -> tuple[float, float]:
        return game.get_game_variable(X) // 64, game.get_game_variable(Y) // 64

    def read(names: Iterable[str]) -> list[float]:
        return [game.get_game_variable(getattr(vizdoom.GameVariable, name)) for name in names]

    def see() -> None:
        state = game.get_state()
        pictures = {"obs": state.screen_buffer}
        pictures |= {name: getattr(state, f"{name}_buffer") for name in chosen.buffers}
        seen = {}
        for key, picture in pictures.items():
            planes = picture.reshape(-1, *picture.shape[-2:])
            small = [cv2.resize(plane, chosen.size, interpolation=cv2.INTER_NEAREST) for plane in planes]
            seen[key] = np.stack(small)[None]
        if chosen.variables:
            seen["variables"] = np.array([read(chosen.variables)], np.float32)
        plain.see(**seen)

    begin(is_first=True)
    see()
    tics = 0
    weighed: list[float] = []  # in the last step of the episode, if there was one
    for row in actions:
        health = game.get_game_variable(HEALTH)
        before = game.get_episode_time()
        reward = game.make_action(pressed(spec.actions, row), FRAMESKIP)
        # The time is 0 after an end by the map itself.
        frames = game.get_episode_time() - before if game.get_episode_time() else FRAMESKIP
        tics += frames
        is_limit = spec.time_limit_frames is not None and tics >= spec.time_limit_frames
        terminated, truncated = bare.end()
        truncated |= is_limit and not terminated
        if not terminated and not truncated:
            reward += float(spec.reward_healing and game.get_game_variable(HEALTH) > health)
            if spec.shaping and "first_visit" in spec.shaping and square() not in squares:
                squares.add(square())
                reward += spec.shaping["first_visit"]
            were, weighed = weighed, read(chosen.weights)
            for old, new, (gain, loss) in zip(were, weighed, chosen.weights.values()):
                reward += gain * max(new - old, 0) + loss * max(old - new, 0)
        plain.add(reward * spec.reward_scale, terminated, truncated, frames=frames)
        if terminated or truncated:
            begin()
            tics = 0
            weighed = []
        see()
    game.close()
    return plain


def pressed(groups: tuple, row: np.ndarray) -> list[float]:
    """Returns the values of the buttons: of each group at most one is pressed, and a turn is in degrees."""
    values: list[float] = []
    for group, choice in zip(groups, row):
        if isinstance(group, Discretized):
            values.append(float(np.linspace(group.values[0], group.values[-1], group.n)[int(choice)]))
        else:
            values += [float(int(choice) == button) for button in range(1, int(group.n))]
    return values


@pytest.mark.parametrize(
    ("env_name", "num_steps"),
    [
        ("doom_basic", 5_000),
        ("doom_defend_the_center_flat_actions", 2_500),
        ("doom_defend_the_line", 2_000),
        ("doom_deadly_corridor", 1_500),
        ("doom_health_gathering", 2_000),
        ("doom_health_gathering_supreme", 1_500),
        ("doom_my_way_home", 1_100),
        ("doom_benchmark", 1_100),
    ],
)
def test_own_scenarios(env_name, num_steps, count):
    trained = train_on(adapted_by_name(env_name), num_steps, frameskip=FRAMESKIP)
    plain = play_spec(DOOM_SPECS[env_name], trained.actions[:, 0])
    count("vizdoom own scenarios", assert_equal(trained, plain))


@pytest.mark.parametrize(
    ("env_name", "num_steps", "chosen"),
    [
        (
            "doom_deadly_corridor",
            500,
            Chosen(
                size=(160, 120),
                variables=("AMMO2", "HEALTH", "POSITION_X", "ANGLE", "KILLCOUNT"),
                buffers=("depth", "labels", "automap"),
                weights={"HITCOUNT": (200, -200), "DAMAGE_TAKEN": (-10, 10), "AMMO2": (5, 2)},
            ),
        ),
        # USER1: 100 for each medikit, as a fixed-point number.
        ("doom_health_gathering", 1_000, Chosen(variables=("USER1",), buffers=("labels", "depth"))),
        ("doom_defend_the_line", 500, Chosen(size=(84, 84), buffers=("automap",), grey=True)),
    ],
    ids=["native resolution, shaped", "fixed-point variable", "grey"],
)
def test_chosen_observations_and_rewards(env_name, num_steps, chosen, count):
    trained = train_on(adapted_by_name(env_name, **chosen.flags()), num_steps, frameskip=FRAMESKIP)
    assert set(trained.seen) == {"obs", *chosen.buffers, *(["variables"] if chosen.variables else [])}
    plain = play_spec(DOOM_SPECS[env_name], trained.actions[:, 0], chosen=chosen)
    for key in trained.seen:
        assert len(np.unique(trained.seen[key])) > 1, f"{key} never changes"
    count("vizdoom own scenarios", assert_equal(trained, plain))


# Scenarios of the package: (.cfg, what it needs besides itself or what is changed, number of steps).
PACKAGE = [
    ("basic", {}, 900),
    ("basic_audio", {}, 900),
    ("basic_notifications", {}, 900),
    ("deadly_corridor", {}, 900),
    ("deadly_corridor", {"doom_skill": 1}, 900),
    ("deathmatch", {}, 1_100),
    ("defend_the_center", {}, 900),
    ("defend_the_line", {}, 900),
    ("doom", {"iwad": "freedoom1.wad", "doom_map": "E1M1"}, 200),
    ("doom2", {"iwad": "freedoom2.wad"}, 200),
    ("freedoom1", {"doom_map": "E1M2"}, 200),
    ("freedoom2", {}, 200),
    ("freedoom2", {"doom_map": "map02", "doom_skill": 5}, 200),
    ("health_gathering", {}, 600),
    ("health_gathering_supreme", {}, 600),
    ("learning", {}, 900),
    ("my_way_home", {}, 600),
    ("oblige", {}, 1_100),
    ("oblige", {"wad": "deathmatch.wad"}, 1_100),
    ("predict_position", {}, 900),
    ("rocket_basic", {}, 900),
    ("simpler_basic", {}, 900),
    ("take_cover", {}, 900),
]


def package_spec(name: str, **fields) -> DoomSpec:
    """Returns a registered spec of a .cfg of the package: nothing, or one button at a time."""
    cfg = SCENARIOS / f"{name}.cfg"
    num_buttons = BareGame(cfg, 1, vizdoom.ScreenFormat.RGB24).game.get_available_buttons_size()
    spec = DoomSpec(f"package_{name}", str(cfg), flat(num_buttons + 1), **fields)
    make = functools.partial(make_doom_env, spec=spec)
    register_env(spec.name, make, DoomFlags, doom_defaults, follows_observation=False)
    return spec


def test_every_scenario_of_the_package_is_compared():
    matches = {"cig", "multi", "multi_duel"}  # see test_doom_matches.py
    assert {path.stem for path in SCENARIOS.glob("*.cfg")} == {name for name, *_ in PACKAGE} | matches


@pytest.mark.parametrize(("name", "fields", "num_steps"), PACKAGE)
def test_scenarios_of_the_package(name, fields, num_steps, count):
    spec = package_spec(name, **fields)
    trained = train_on(adapted_by_name(spec.name), num_steps, frameskip=FRAMESKIP)
    plain = play_spec(spec, trained.actions[:, 0])
    count("vizdoom scenarios of the package", assert_equal(trained, plain))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cig", "map01 of .*cig.wad has no start of player 1"),
        ("doom", "doom.wad was not found"),
        ("doom2", "doom2.wad was not found"),
        ("freedoom1", "freedoom1.wad has no map map01; it has E1M1"),
    ],
)
def test_scenarios_of_the_package_that_cannot_be_played_as_they_are_are_one_line(name, message):
    with pytest.raises(Failure, match=message) as error:
        adapted_by_name(package_spec(name).name)
    assert "\n" not in str(error.value)
