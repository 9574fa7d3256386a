"""Ids that a script registers with Gymnasium are registered in child processes, too."""

import functools
import sys
import threading
import warnings
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig
from sample_factory.runtime.child import call_in_child

CFG = SimpleNamespace(vector_env_copies=1, env_frameskip=None, env_kwargs="{}")


def sizes_in_child(*names):
    def make(families, cfg):
        return [family.make(cfg, EnvConfig(0, 0, 0)).unwrapped.size for family in families]

    return call_in_child("make", make, ([resolve_family(name) for name in names], CFG))


def script_env():
    """Returns a class such as one that is defined in the main script: a child cannot import it."""

    class ScriptEnv(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gym.spaces.Discrete(2)

        def __init__(self, size=1):
            self.size = size

    return ScriptEnv


@pytest.fixture
def registry(monkeypatch):
    """Gymnasium's registry; it is restored after the test."""
    before = dict(gym.registry)
    yield gym.registry
    gym.registry.clear()
    gym.registry.update(before)


def test_what_the_main_script_registers_reaches_children_unless_it_cannot_be_pickled(registry, monkeypatch):
    ScriptEnv = script_env()
    monkeypatch.setattr(sys.modules["__main__"], "ScriptEnv", ScriptEnv, raising=False)

    def make():
        return ScriptEnv(7)

    make.__module__, make.__qualname__ = "gymnasium.envs.classic_control", "CartPoleEnv"  # another object
    gym.register("Class-v0", ScriptEnv, kwargs={"size": 3})
    gym.register("Lambda-v0", lambda: ScriptEnv(4))
    gym.register("Partial-v0", functools.partial(ScriptEnv, 5))
    gym.register("Path-v0", "__main__:ScriptEnv", kwargs={"size": 6})
    gym.register("Replaced-v0", make)
    gym.register("Locked-v0", ScriptEnv, kwargs={"size": threading.Lock()})  # stops no run on other ids
    names = ("gym_Class-v0", "gym_Lambda-v0", "gym_Partial-v0", "gym_Path-v0", "gym_Replaced-v0")
    assert sizes_in_child(*names) == [3, 4, 5, 6, 7]


def test_an_id_that_is_registered_by_an_import_of_the_script_needs_no_import_in_the_child(registry):
    gym.register("Module-v0", "tests.envs.adapters.countdown:Countdown")
    gym.register("ModuleClass-v0", CartPoleEnv)

    def imported_modules(family):
        return [name in sys.modules for name in ("tests.envs.adapters.countdown", "gymnasium.envs.mujoco")]

    assert call_in_child("imports", imported_modules, (resolve_family("gym_Module-v0"),)) == [False, False]
    # Pickled as a reference, the class would be imported when the child receives it.
    _, (specs,) = resolve_family("gym_ModuleClass-v0").registrations.__reduce__()
    assert b"cartpole:CartPoleEnv" in specs["ModuleClass-v0"]


def test_a_package_that_registers_in_the_child_what_the_script_has_registered_prints_no_warning(registry):
    gym.register("Again-v0", script_env())

    def register_again(family):
        with warnings.catch_warnings(record=True) as caught:
            gym.register("Again-v0", CartPoleEnv)
        return [str(warning.message) for warning in caught]

    assert call_in_child("register", register_again, (resolve_family("gym_Again-v0"),)) == []
