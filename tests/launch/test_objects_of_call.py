import functools

import gymnasium as gym
import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig
from sample_factory.launch.exit_codes import run_command
from sample_factory.launch.objects_of_call import with_names
from sample_factory.mainloop.observer import Observer, selected_observers
from sample_factory.models.network_registry import ENCODER, resolve_factory


class Maze(gym.Env):
    def __init__(self, size=4):
        self.size = size


class Watcher(Observer):
    pass


def made(given):
    return resolve_family(with_names({"env": given})["env"]).make(None, EnvConfig(0, 0, 0))


def test_a_class_and_a_function_are_registered_by_their_names():
    assert with_names({"env": Maze, "seed": 1}) == {"env": "Maze", "seed": 1}
    assert made(Maze).size == 4
    assert made(functools.partial(Maze, size=7)).size == 7
    assert made(lambda: Maze(9)).size == 9


def test_the_env_of_a_command_comes_before_its_arguments():
    received = []
    assert run_command(received.extend, ["--seed=1"], Maze) == 0
    assert received == ["--env=Maze", "--seed=1"]


def test_an_id_of_gymnasium_and_a_full_name_are_ids():
    assert with_names({"env": "CartPole-v1"})["env"] == "gym_CartPole-v1"
    assert with_names({"env": "gym_CartPole-v1"})["env"] == "gym_CartPole-v1"
    assert with_names({"env": "doom_basic"})["env"] == "doom_basic"
    assert with_names({"env": "no_such_env"})["env"] == "no_such_env"


def test_an_env_that_is_made_already_is_refused_with_what_to_write():
    with pytest.raises(ConfigError, match="env=lambda: Maze"):
        with_names({"env": Maze()})


def test_parts_and_observers_may_be_objects_of_the_call():
    encoder = functools.partial(dict, a=1)
    watcher = Watcher()
    named = with_names({"encoder_custom": encoder, "observers": [watcher, "pkg.module:Other"]})
    assert named["observers"] == ["Watcher", "pkg.module:Other"]
    assert resolve_factory(ENCODER, named["encoder_custom"]) is encoder
    assert selected_observers(("Watcher",)) == {"Watcher": watcher}
    assert "Watcher" not in selected_observers(()), "the next run has not asked for it"


def test_each_observer_of_a_call_has_a_name_of_its_own():
    first, second, third = Watcher(), Watcher(), Watcher()
    given = [first, "Watcher_2", second, lambda: first, lambda: second, third]
    names = with_names({"observers": given})["observers"]
    assert names == ["Watcher", "Watcher_2", "Watcher_3", "lambda", "lambda_2", "Watcher_4"]
    own = [name for name in names if name != "Watcher_2"]
    factories = [factory for factory in given if factory != "Watcher_2"]
    assert list(selected_observers(tuple(own)).values()) == factories
    assert with_names({"observers": second})["observers"] == ["Watcher"], "a call has names of its own"
