"""Levels of --levels and register_env: what they set, and what is refused; the trial covers all of them."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest

from sample_factory import register_env
from sample_factory.config.flags import ConfigError, flag
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.levels import Level, at_level, find_levels
from sample_factory.envs.protocol import EnvConfig
from sample_factory.runtime.failures import Failure
from tests.envs.made import cfg_of, probe


class Room(gym.Env):
    """Its episodes have `size` steps, each with the reward 1."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, size=3, name="room", entries=1):
        self.size, self.name = size, name
        self.observation_space = gym.spaces.Box(0, 99, (entries,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.left = self.size
        return np.full(self.observation_space.shape, self.size, np.float32), {}

    def step(self, action):
        self.left -= 1
        observation = np.full(self.observation_space.shape, self.size, np.float32)
        return observation, 1.0, self.left == 0, False, {}


@dataclasses.dataclass(frozen=True)
class MazeFlags:
    width: int = flag(5, "width", between=(1, 9))
    is_dark: bool = flag(False, "without light")
    height: int | None = flag(None, "height; any if left out")


def make_maze(full_env_name, cfg, depth=1):
    return full_env_name, cfg.width, cfg.is_dark, depth


register_env("room", Room, levels={"small": {"size": 1}, "large": {"size": 5, "name": "hall"}})
register_env("maze_", make_maze, flags=MazeFlags)


def levels_of(env, *argv):
    config = parse_config([f"--env={env}", *argv], resolve_family)
    return find_levels(resolve_family(env), config.namespace())


def made(env, *argv):
    """Returns what make_env returns for each level."""
    family, cfg = resolve_family(env), parse_config([f"--env={env}", *argv], resolve_family).namespace()
    return {
        level.name: at_level(family, cfg, level)[0].make(at_level(family, cfg, level)[1], EnvConfig(0, 0, 0))
        for level in find_levels(family, cfg)
    }


def test_a_level_sets_flags_of_the_family_and_parameters_of_make_env_by_their_types():
    levels = made("maze_a", "--is_dark=True", "--levels", "width=3", "is_dark=false,depth=7", "maze_b")
    assert levels == {
        "width=3": ("maze_a", 3, True, 1),
        "is_dark=false,depth=7": ("maze_a", 5, False, 7),
        "maze_b": ("maze_b", 5, True, 1),
    }


def test_each_level_has_a_value_for_every_flag_in_which_levels_differ():
    levels = levels_of("maze_a", "--levels", "width=3", "is_dark=True")
    assert [level.flags for level in levels] == [
        {"width": 3, "is_dark": False},
        {"width": 5, "is_dark": True},
    ]


def test_a_registered_level_may_leave_out_what_the_run_sets():
    register_env("hut", make_maze, flags=MazeFlags, levels={"any": {"height": None}, "low": {"height": 2}})
    levels = levels_of("hut", "--height=9")
    assert [level.flags for level in levels] == [{"height": None}, {"height": 2}]


def test_all_registered_levels_are_played_unless_some_are_named():
    assert levels_of("room") == (
        Level("small", "room", {}, {"size": 1}),
        Level("large", "room", {}, {"size": 5, "name": "hall"}),
    )
    assert [level.name for level in levels_of("room", "--levels", "large", "size=2,name=/a/b.map")] == [
        "large",
        "size=2,name=b",
    ]
    assert levels_of("maze_a") == ()


def test_arguments_of_a_gymnasium_env_are_added_to_its_env_kwargs():
    cfg = cfg_of(
        "gym_FrozenLake-v1", levels=("map_name=8x8", "is_slippery=False"), env_kwargs='{"desc": null}'
    )
    family = resolve_family("gym_FrozenLake-v1")
    kwargs = [at_level(family, cfg, level)[1].env_kwargs for level in find_levels(family, cfg)]
    assert kwargs == ['{"desc": null, "map_name": "8x8"}', '{"desc": null, "is_slippery": false}']


@pytest.mark.parametrize(
    ("env", "levels", "message"),
    [
        ("maze_a", "width=x", "level width=x: --width: 'x' is not an integer"),
        ("maze_a", "width=10", "level width=10: --width=10: must be at most 9"),
        ("maze_a", "breadth=1", "no parameter, breadth; it has width, is_dark, height, depth"),
        ("maze_a", "cave_b", "no level of maze_a; use FLAG=VALUE, or an env that begins with maze_"),
        ("room", "tiny", "tiny is no level of room; use one of small, large, FLAG=VALUE"),
        ("room", "size=1" + "0" * 80, "is no name of a level"),
        ("room", "name=/a/b name=/c/b.map", "two levels are called name=b"),
    ],
)
def test_what_is_no_level_is_refused_with_what_would_be_one(env, levels, message):
    with pytest.raises(ConfigError) as refused:
        levels_of(env, "--levels", *levels.split())
    assert message in str(refused.value)


def probed(*levels):
    return probe(resolve_family("room"), cfg_of("room", levels=levels))


def test_the_trial_names_a_level_that_cannot_be_made_or_has_other_spaces():
    assert probed("small", "large").levels == ("small", "large")
    with pytest.raises(Failure, match="level small has .*and level entries=2 has .*the same spaces"):
        probed("small", "entries=2")
    with pytest.raises(Failure, match="level entries=-1: env 'room': make raised"):
        probed("small", "large", "entries=-1")
