"""Atari games in both engines."""

import itertools
import sys

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("envpool")
pytest.importorskip("ale_py")

from ale_py.env import AtariEnv

from sample_factory.config.flags import ConfigError
from sample_factory.envs.end_infos import true_objective
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import (
    EPISODE_CONTINUES,
    EnvConfig,
    ObservationRows,
)
from sample_factory.families.atari.ale_env import BeginWithNoops, LivesAsEpisodes
from sample_factory.families.atari.atari_family import COMPARED, GAME_OF_ENV, make_atari_env
from tests.envs.adapters.countdown import drive
from tests.envs.made import cfg_of

ENGINES = ("envpool", "gymnasium")
_NAMES = """
    alien amidar assault asterix asteroid atlantis bankheist battlezone beamrider berzerk bowling boxing
    breakout centipede choppercommand crazyclimber defender demonattack doubledunk enduro fishingderby
    freeway frostbite gopher gravitar hero icehockey jamesbond kangaroo krull kongfumaster montezuma
    mspacman namethisgame phoenix pitfall pong privateye qbert riverraid roadrunner robotank seaquest
    skiing solaris spaceinvaders stargunner surround tennis timepilot tutankham upndown venture
    videopinball wizardofwor yarsrevenge zaxxon
"""
V2_NAMES = _NAMES.split()
both_engines = pytest.mark.parametrize("engine", ENGINES)


def make(env_name, engine, copies=1, render_mode=None, **flags):
    """Returns the adapted env."""
    cfg = cfg_of(env_name, env_engine=engine, vector_env_copies=copies, **flags)
    return make_adapted_env(resolve_family(env_name), cfg, EnvConfig(0, 0, 0), render_mode)


def test_the_57_names_of_version_2_are_the_57_games():
    games = [GAME_OF_ENV[f"atari_{name}"] for name in V2_NAMES]
    assert sorted(games) == sorted(COMPARED)
    assert GAME_OF_ENV["atari_asteroids"] == GAME_OF_ENV["atari_asteroid"]


@both_engines
def test_every_game_exists_in_the_engine(engine):
    import envpool
    from ale_py import roms

    task_ids = {"".join(part.capitalize() for part in game.split("_")) for game in GAME_OF_ENV.values()}
    if engine == "envpool":
        assert {f"{name}-v5" for name in task_ids} <= set(envpool.list_all_envs())
    else:
        assert set(GAME_OF_ENV.values()) <= set(roms.get_all_rom_ids())


@both_engines
@pytest.mark.parametrize("copies", [1, 3])
def test_an_observation_is_four_grey_images_of_84_pixels(engine, copies):
    env = make("atari_pong", engine, copies=copies)
    assert env.num_agents == copies
    box = env.kinds.spaces[0].observation["obs"]
    assert (box.shape, box.dtype) == ((4, 84, 84), np.uint8)
    assert env.kinds.spaces[0].action.n == 6
    seen, _ = drive(env, [0] * 15)
    assert (seen[-1]["obs"].std(axis=(2, 3)) > 1).all()


def test_both_engines_show_the_same_pictures_and_rewards_of_a_life():
    """With a single frame before the game, Breakout is not random."""
    envs = [make("atari_breakout", engine, atari_noop_max=1) for engine in ENGINES]
    all_rows = [ObservationRows.allocate(env.kinds) for env in envs]
    for env, rows in zip(envs, all_rows, strict=True):
        env.reset(0, rows)
    total = 0.0
    for action in np.random.default_rng(1).integers(4, size=200):
        pictures = [rows.arrays["obs"].astype(int) for rows in all_rows]
        assert np.abs(pictures[0] - pictures[1]).max() <= 1  # rounding
        first, second = (
            env.step(np.array([[action]], np.float32), rows) for env, rows in zip(envs, all_rows, strict=True)
        )
        assert first.rewards[0] == second.rewards[0]
        assert first.terminated[0] == second.terminated[0]
        total += float(first.rewards[0])
        if first.terminated[0]:
            break
    assert first.terminated[0]
    assert total > 0


def test_games_in_envpool_are_stacked_in_the_background_too():
    env, other = (make("atari_breakout", "envpool", copies=2) for _ in range(2))
    assert env.steps_in_background
    rows, other_rows = (ObservationRows.allocate(env.kinds) for _ in range(2))
    env.reset(3, rows)
    other.reset(3, other_rows)
    actions = np.ones((2, 1), np.float32)
    for _ in range(30):  # a life is lost
        env.send(actions)
        env.receive(rows)
        other.step(actions, other_rows)
        np.testing.assert_array_equal(rows.arrays["obs"], other_rows.arrays["obs"])


@both_engines
@pytest.mark.parametrize("copies", [1, 2])
def test_a_lost_life_ends_an_episode_and_the_game_continues(engine, copies):
    _, results = drive(make("atari_breakout", engine, copies=copies), [0] * 250)
    ends = [result.end_infos[0].get(EPISODE_CONTINUES, False) for result in results if result.terminated[0]]
    assert [bool(continues) for continues in ends[:6]] == [True] * 4 + [False, True]


@both_engines
def test_without_episodic_life_only_the_end_of_the_game_is_an_end(engine):
    env = make("atari_breakout", engine, atari_episodic_life=False)
    _, results = drive(env, [1, *[0] * 40] * 5)
    (end,) = [result for result in results if result.terminated[0]]
    assert not end.end_infos[0].get(EPISODE_CONTINUES)


@both_engines
def test_rewards_are_not_clipped_and_the_score_is_that_of_the_whole_game(engine):
    env = make("atari_spaceinvaders", engine)
    rng = np.random.default_rng(1)
    rows = ObservationRows.allocate(env.kinds)
    env.reset(0, rows)
    total = 0.0
    for _ in range(3000):
        result = env.step(rng.integers(6, size=(1, 1)).astype(np.float32), rows)
        total += float(result.rewards[0])
        if result.terminated[0] and not result.end_infos[0].get(EPISODE_CONTINUES):
            break
    assert total >= 5  # the smallest reward of the game
    assert true_objective(result.end_infos[0], total) == total


@both_engines
def test_the_frameskip_and_the_limit_of_a_game_count_frames(engine, monkeypatch):
    monkeypatch.setattr("sample_factory.families.atari.atari_family.MAX_FRAMES", 120)
    for frameskip, num_steps in ((2, 60), (12, 10)):
        env = make("atari_pong", engine, env_frameskip=frameskip, atari_noop_max=1)
        _, results = drive(env, [0] * 61)
        cut = [bool(result.truncated[0]) for result in results]
        assert cut.index(True) in (num_steps - 1, num_steps - 2)  # ALE also counts the first frames


@both_engines
def test_sticky_actions_make_games_random(engine):
    actions = list(itertools.islice(itertools.cycle([2, 3]), 30))

    def last_pictures(probability):
        flags = {"atari_repeat_action_probability": probability, "atari_noop_max": 1}
        return [
            drive(make("atari_breakout", engine, **flags), actions, seed)[0][-1]["obs"] for seed in (1, 2)
        ]

    assert np.array_equal(*last_pictures(0))
    assert not np.array_equal(*last_pictures(0.25))


@both_engines
def test_a_seed_decides_the_no_ops_of_all_copies(engine):
    def pictures(seed):
        return drive(make("atari_pong", engine, copies=2), [2] * 20, seed)[0][-1]["obs"]

    same, again, other = pictures(1), pictures(1), pictures(2)
    np.testing.assert_array_equal(same, again)
    assert (same != other).any()
    assert (same[0] != same[1]).any()


@both_engines
def test_all_18_actions_are_there_by_a_flag(engine):
    env = make("atari_pong", engine, atari_full_action_space=True)
    assert env.kinds.spaces[0].action.n == 18


@both_engines
def test_an_env_that_draws_is_one_game_in_colour_at_its_own_size(engine):
    env = make("atari_breakout", engine, copies=8, render_mode="rgb_array")
    assert env.num_agents == 1
    rows = ObservationRows.allocate(env.kinds)
    env.reset(0, rows)
    picture = env.render()
    assert picture.shape == (210, 160, 3)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 5
    assert (np.ptp(picture.astype(int), axis=2) > 50).any()


def test_a_missing_package_is_a_line_with_the_extra(monkeypatch):
    cfg = cfg_of("atari_pong")
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[envpool\]'.*--env_engine=gymnasium"):
        make_atari_env("atari_pong", cfg, EnvConfig(0, 0, 0))


@pytest.mark.parametrize(("game", "last"), [("ms_pacman", 0), ("breakout", 1)])
def test_games_begin_with_no_ops_and_fire_where_there_is_fire(game, last, monkeypatch):
    game = AtariEnv(game, frameskip=1)
    env = BeginWithNoops(game, noop_max=5)
    actions = []
    step = game.step
    monkeypatch.setattr(game, "step", lambda action: actions.append(action) or step(action))
    numbers = set()
    for attempt in range(30):
        env.reset(seed=1 if attempt == 0 else None)
        assert actions == [0] * (len(actions) - 1) + [last]
        numbers.add(len(actions))
        actions.clear()
    assert numbers == {1, 2, 3, 4, 5}
    env.close()


class Doomed(gym.Env):
    """A game of two lives, the first of 20 frames and the second of one. Observes the number of the game."""

    observation_space = gym.spaces.Discrete(1000)
    action_space = gym.spaces.Discrete(2)
    game = 0

    def get_action_meanings(self):
        return ["NOOP", "UP"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.game += 1
        self.frame = 0
        return self.game, {"lives": 2}

    def step(self, action):
        self.frame += 1
        return self.game, 1.0, self.frame > 20, False, {"lives": 2 - (self.frame > 19) - (self.frame > 20)}


def test_a_game_that_ends_in_the_first_frames_of_a_life_is_reported():
    env = LivesAsEpisodes(BeginWithNoops(Doomed(), noop_max=5))
    env.reset(seed=0)
    ends = []
    while len(ends) < 4:
        game, _, terminated, _, info = env.step(1)
        if terminated:
            ends.append((game, info.get(EPISODE_CONTINUES, False)))
            env.reset()
    assert ends == [(1, True), (1, False), (2, True), (2, False)]
