"""Each episode plays a level: which one, in which env, and with which seeds."""

import collections

import gymnasium as gym
import numpy as np
import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.envs.abilities import ChangesLevel, RewardShaping
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.levels import Level
from sample_factory.envs.protocol import EnvConfig, ObservationRows
from sample_factory.envs.wrappers.frame_stack import FrameStack
from sample_factory.envs.wrappers.level_switch import LevelSwitch
from sample_factory.sampling.rollout.guarded_env import GuardedEnv


class Room(gym.Env, RewardShaping):
    """Observes (its size, a number that follows from its seed); an episode has `size` steps."""

    observation_space = gym.spaces.Box(0, 99, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    num_open = 0
    num_made = 0

    def __init__(self, size):
        self.size, self.shaping = size, None
        Room.num_open += 1
        Room.num_made += 1
        assert Room.num_open == 1, "one at a time"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.number = self.size, self.np_random.random()
        return np.array([self.size, self.number], np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.array([self.size, self.number], np.float32), 1.0, self.left == 0, False, {"own": 1}

    def set_reward_shaping(self, shaping, agent):
        self.shaping = shaping

    def close(self):
        Room.num_open -= 1


class Changing(Room, ChangesLevel):
    """Changes its size without being made anew."""

    def change_level(self, values):
        self.size = values["size"]
        return True


@pytest.fixture(autouse=True)
def no_rooms():
    Room.num_open = Room.num_made = 0


def switch(choice="uniform", sizes=(1, 2, 3), room=Room, env_id=0, in_turn=0):
    def make(level):
        return FrameStack(adapt(room(level.flags["size"])), 2)

    levels = [Level(f"size {size}", "room", {"size": size}) for size in sizes]
    return LevelSwitch(levels, make, choice, EnvConfig(0, 0, env_id, in_turn))


def episodes(env, count, seed=5, send=lambda: None):
    """Plays, and returns (size, number, length, level) of each episode, as observed, counted and reported."""
    rows = ObservationRows.allocate(env.kinds)
    env.reset(seed, rows)
    played, length, observed = [], 0, rows.view(0)["obs"].copy()
    while len(played) < count:
        result = env.step(np.zeros((1, 1), np.float32), rows)
        length += 1
        if result.terminated[0]:
            info = result.end_infos[0]
            played.append((int(observed[0]), float(observed[1]), length, info["episode_level"]))
            assert info["own"] == 1
            length, observed = 0, rows.view(0)["obs"].copy()
            send()
    return played


@pytest.mark.parametrize("room", [Room, Changing])
def test_each_episode_plays_the_level_that_its_end_info_names(room):
    played = episodes(switch(room=room), 60)
    assert all(level == f"size {size}" and length == size for size, _, length, level in played)
    counts = collections.Counter(level for *_, level in played)
    assert len(counts) == 3 and min(counts.values()) > 8, counts
    assert (Room.num_made == 1) == (room is Changing)
    assert len({number for _, number, *_ in played}) == 60, "no seed is used twice"


def test_levels_and_seeds_follow_from_the_first_seed():
    first, again, other = (episodes(env, 20, seed) for env, seed in _three())
    assert first == again != other


def _three():
    for seed in (5, 5, 6):
        env = switch()
        yield env, seed
        env.close()


def test_a_fixed_env_keeps_the_level_of_its_number():
    assert {level for *_, level in episodes(switch("fixed", env_id=4), 5)} == {"size 2"}
    assert Room.num_made == 1


def test_weights_say_how_often_a_level_is_drawn():
    env = switch()
    env.training_info.put({"level_weights": [0.0, 1.0, 3.0]})
    played = [level for *_, level in episodes(env, 60)]
    assert "size 1" not in played and 5 < played.count("size 2") < 28
    env.training_info.put({"level_weights": [1.0, 0.0, 0.0]})
    assert {level for *_, level in episodes(env, 5)} == {"size 1"}


def test_weights_that_change_count_from_the_next_episode():
    env = switch(sizes=(1, 2))
    env.training_info.put({"level_weights": [1.0, 0.0]})
    sent = []

    def send():
        sent.append(1)
        if len(sent) == 3:  # the fourth episode has begun
            env.training_info.put({"level_weights": [0.0, 1.0]})

    assert [level for *_, level in episodes(env, 6, send=send)] == ["size 1"] * 4 + ["size 2"] * 2


def test_an_evaluation_plays_all_levels_equally_often():
    played = []
    for env_id in range(4):
        env = switch("fixed", sizes=(1, 2, 3, 4, 5, 6), env_id=env_id, in_turn=4)
        played += [level for *_, level in episodes(env, 3)]
        env.close()
    assert set(collections.Counter(played).values()) == {2}


def test_an_env_that_begins_its_episodes_itself_keeps_one_level():
    def make(level):
        size = level.flags["size"]
        return adapt(gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * size))

    levels = [Level(str(size), "carts", {"size": size}) for size in (2, 2)]
    with pytest.raises(ConfigError, match="carts begins its episodes itself.*use --level_choice=fixed"):
        LevelSwitch(levels, make, "uniform", EnvConfig(0, 0, 0))
    with pytest.raises(ConfigError, match="choose one of the 2 levels"):
        LevelSwitch(levels, make, "fixed", EnvConfig(0, 0, 0, 1))
    assert LevelSwitch(levels, make, "fixed", EnvConfig(0, 0, 1)).num_agents == 2


def test_a_seed_for_the_next_episode_is_used_by_the_env_that_is_made_for_it():
    env = switch(sizes=(1, 2))
    seeds = iter(range(100, 200))
    env.next_seeds[:] = [next(seeds)]
    played = episodes(env, 10, send=lambda: env.next_seeds.__setitem__(slice(None), [next(seeds)]))
    expected = [np.float32(np.random.default_rng(seed).random()) for seed in range(100, 109)]
    assert [number for _, number, *_ in played[1:]] == expected


def test_reward_shaping_reaches_an_env_that_is_made_for_another_level():
    guarded = GuardedEnv(lambda: switch(sizes=(1, 2)), "env", 0, np.zeros(1), lambda text, details: None)
    rows = ObservationRows.allocate(guarded.kinds)
    guarded.reset(5, rows)
    guarded.set_reward_shaping({"kills": 3.0}, 0)
    for _ in range(20):
        assert guarded.step(np.zeros((1, 1), np.float32), rows) is not None
        assert guarded._env.env.shaping == {"kills": 3.0}
    assert Room.num_made > 3
