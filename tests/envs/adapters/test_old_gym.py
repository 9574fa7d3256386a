"""Envs with the API of the old gym package: 4 values from `step`, the observation alone from `reset`.

The package itself has no release for NumPy 2, so a module with the same classes takes its place.
"""

import inspect
import sys
import types

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from sample_factory.envs.abilities import LimitsEpisodes, ScriptedPlayers, find_ability, max_episode_steps
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.adapters.old_gym import to_gymnasium
from sample_factory.envs.protocol import EnvContractError
from sample_factory.spaces.observations import UnsupportedSpace
from tests.envs.adapters.countdown import drive


class Base:
    def __init__(self, **values):
        vars(self).update(values)


@pytest.fixture
def gym(monkeypatch):
    """Returns a module `gym` with the classes of version 0.21."""
    module = types.ModuleType("gym")

    class Env:
        metadata = {"render.modes": ["human", "rgb_array"], "video.frames_per_second": 50}
        spec = None

        def close(self):
            pass

    class Wrapper(Env):
        def __init__(self, env):
            self.env = env

        def __getattr__(self, name):
            return getattr(self.env, name)

        def reset(self, **kwargs):
            return self.env.reset(**kwargs)

        def step(self, action):
            return self.env.step(action)

        def seed(self, seed=None):
            return self.env.seed(seed)

        def render(self, mode="human", **kwargs):
            return self.env.render(mode, **kwargs)

    for name in ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Tuple", "Dict", "Space"):
        setattr(module, name, type(name, (Base,), {"__module__": f"gym.spaces.{name.lower()}"}))
    module.Env, module.Wrapper = Env, Wrapper
    monkeypatch.setitem(sys.modules, "gym", module)
    return module


def box(gym, size=2):
    low = np.full(size, -1, np.float32)
    return gym.Box(low=low, high=low + 101, shape=(size,), dtype=np.dtype(np.float32))


def countdown(gym):
    """Returns an env that ends every episode after 3 steps: odd ones at their end, even ones by time."""

    class Countdown(gym.Env):
        observation_space = box(gym)
        action_space = gym.Discrete(n=3)

        def __init__(self):
            self.episode = 0
            self.seeds = []

        def seed(self, seed=None):
            self.seeds.append(seed)

        def reset(self):
            self.episode += 1
            self.time = 0
            return self.observe()

        def step(self, action):
            assert isinstance(action, int)
            self.time += 1
            done = self.time == 3
            info = {"TimeLimit.truncated": True} if done and self.episode % 2 == 0 else {"time": self.time}
            return self.observe(), 1.0, done, info

        def observe(self):
            return np.float32([self.episode, self.time])

        def render(self, mode="human"):
            return np.zeros((4, 5, 3), np.uint8) if mode == "rgb_array" else None

    return Countdown()


@pytest.mark.parametrize("num_wrappers", [0, 2])
def test_an_env_of_the_old_gym_is_adapted_with_its_seed_and_its_time_limit(gym, num_wrappers):
    innermost = countdown(gym)
    env = innermost
    for _ in range(num_wrappers):
        env = gym.Wrapper(env)
    adapted = adapt(env)
    seen, results = drive(adapted, [0] * 7, seed=3)
    assert innermost.seeds == [3]
    assert [tuple(observed["obs"][0]) for observed in seen] == [
        (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1),
    ]  # fmt: skip
    assert [result.terminated[0] for result in results] == [False, False, True, False, False, False, False]
    assert [result.truncated[0] for result in results] == [False, False, False, False, False, True, False]
    assert results[2].end_infos == {0: {"time": 3}}
    assert adapted.render().shape == (4, 5, 3)
    assert adapted.env.metadata == {"render_modes": ["human", "rgb_array"], "render_fps": 50}
    assert adapted.env.has_old_api
    adapted.close()


def test_gyms_last_version_with_the_api_of_gymnasium_needs_no_conversion(gym):
    class Latest(gym.Env):
        observation_space = box(gym)
        action_space = gym.Discrete(n=2, start=1)
        render_mode = "rgb_array"
        spec = types.SimpleNamespace(max_episode_steps=70)

        def reset(self, *, seed=None, options=None):
            self.given = seed
            return np.zeros(2, np.float32), {}

        def step(self, action):
            return np.ones(2, np.float32), 1.0, False, True, {"time": 1}

        def render(self):
            return np.zeros((4, 5, 3), np.uint8)

    env = Latest()
    adapted = adapt(env)
    _, (result,) = drive(adapted, [0])
    assert (result.terminated[0], result.truncated[0], result.end_infos) == (False, True, {0: {"time": 1}})
    assert not adapted.env.has_old_api
    assert max_episode_steps(adapted.env) == 70 and adapted.render().shape == (4, 5, 3)


def test_the_spaces_of_gym_become_those_of_gymnasium(gym):
    parts = {
        "box": box(gym),
        "choice": gym.Discrete(n=4),
        "later": gym.Discrete(n=4, start=2),
        "choices": gym.MultiDiscrete(nvec=np.array([2, 3])),
        "bits": gym.MultiBinary(n=3),
        "both": gym.Tuple(spaces=[gym.Discrete(n=2), spaces.Discrete(3)]),
    }
    low = np.full(2, -1, np.float32)
    assert to_gymnasium(gym.Dict(spaces=parts)) == spaces.Dict(
        {
            "box": spaces.Box(low, low + 101),
            "choice": spaces.Discrete(4),
            "later": spaces.Discrete(4, start=2),
            "choices": spaces.MultiDiscrete([2, 3]),
            "bits": spaces.MultiBinary(3),
            "both": spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)]),
        }
    )
    with pytest.raises(UnsupportedSpace, match="no space of Gymnasium or gym; supported are Box"):
        to_gymnasium(gym.Space())


class Old:
    """An env that inherits from nothing; `reset` may take a seed."""

    observation_space = spaces.Box(0, 9, (2,), np.float32)
    action_space = spaces.Discrete(2)
    given = None

    def reset(self):
        return np.zeros(2, np.float32)

    def step(self, action):
        return np.ones(2, np.float32), 1.0, True, {}


class OldWithGymnasium(Old, gymnasium.Env):
    pass


class OldWithSeed(OldWithGymnasium):
    def reset(self, seed=None):
        self.given = seed if seed is not None else self.given
        return np.zeros(2, np.float32)


@pytest.mark.parametrize("env_class", [Old, OldWithGymnasium, OldWithSeed])
def test_the_old_api_is_recognised_whatever_the_env_inherits_from(env_class):
    env = env_class()
    adapted = adapt(env)
    _, results = drive(adapted, [0] * 2, seed=3)
    assert [result.terminated[0] for result in results] == [True, True]
    assert adapted.env.has_old_api
    takes_seed = "seed" in inspect.signature(env.reset).parameters
    assert env.given == (3 if takes_seed else None)
    adapted.close()


class Scripted(ScriptedPlayers, LimitsEpisodes):
    def scripted_players(self):
        return ("bot",)

    def max_episode_steps(self):
        return 30


def test_abilities_are_found_inside_an_adapted_env(gym):
    class One(Scripted, Old):
        pass

    class Team(Scripted, OldTeam):
        def reset(self):
            return super().reset()

    for env in (adapt(gym.Wrapper(gym.Wrapper(One()))).env, adapt(Team()).env):
        assert find_ability(env, ScriptedPlayers).scripted_players() == ("bot",)
        assert max_episode_steps(env) == 30


class OldTeam:
    """Two agents in the style of version 1; agent 0 is cut by time, agent 1 reaches its end."""

    num_agents = 2
    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, **kwargs):
        return [np.zeros(1, np.float32)] * 2

    def step(self, actions):
        observations = [np.ones(1, np.float32)] * 2
        return observations, [1.0, 2.0], [True, True], [{"TimeLimit.truncated": True}, {"true_reward": 5}]


def test_a_multi_agent_env_of_version_1_is_adapted():
    adapted = adapt(OldTeam())
    seen, (result,) = drive(adapted, [0])
    assert [observed["obs"].tolist() for observed in seen] == [[[0], [0]], [[1], [1]]]
    assert (list(result.terminated), list(result.truncated)) == ([False, True], [True, False])
    assert result.end_infos[1] == {"true_reward": 5}


def test_the_observations_of_two_agents_may_be_a_tuple():
    class InTuple(OldTeam):
        def reset(self):
            return np.ones(1, np.float32), np.zeros(1, np.float32)

    class OfDicts(OldTeam):
        observation_space = spaces.Dict(x=OldTeam.observation_space)

        def reset(self):
            return {"x": np.ones(1, np.float32)}, {"x": np.zeros(1, np.float32)}

        def step(self, actions):
            return self.reset(), *super().step(actions)[1:]

    for env, key in ((InTuple(), "obs"), (OfDicts(), "x")):
        seen, _ = drive(adapt(env), [0])
        assert seen[0][key].tolist() == [[1], [0]]


def test_a_multi_agent_env_of_version_1_with_one_done_for_all_is_refused():
    class OneDone(OldTeam):
        def step(self, actions):
            observations, rewards, _, infos = super().step(actions)
            return observations, rewards, True, infos

    with pytest.raises(EnvContractError, match="True for done and a list of 2 for the info; each should be"):
        drive(adapt(OneDone()), [0])
