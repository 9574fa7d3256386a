import functools
import itertools
import json

import gymnasium as gym
import pytest

from sample_factory.config.algorithms import registered_algorithm
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import named_folder
from sample_factory.envs.env_registry import register_env, resolve_family
from sample_factory.envs.protocol import EnvConfig
from sample_factory.launch import objects_of_call
from sample_factory.launch.exit_codes import run_command
from sample_factory.launch.objects_of_call import keep_objects, with_names
from sample_factory.mainloop.observer import Observer, selected_observers
from sample_factory.models.network_registry import ENCODER, resolve_factory
from sample_factory.sampling.matchmaking import matchmaking


class Maze(gym.Env):
    def __init__(self, size=4):
        self.size = size


class Watcher(Observer):
    pass


def made(given):
    return resolve_family(with_names({"env": given})["env"]).make(None, EnvConfig(0, 0, 0))


@pytest.fixture(autouse=True)
def nothing_given_yet(monkeypatch):
    for memory in ("_OF_TRAININGS", "_OF_OTHERS", "_LAST_REGISTERED"):
        monkeypatch.setattr(objects_of_call, memory, {})


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
    assert named["observers"] == ("Watcher", "pkg.module:Other")
    assert resolve_factory(ENCODER, named["encoder_custom"]) is encoder
    assert selected_observers(("Watcher",)) == {"Watcher": watcher}
    assert "Watcher" not in selected_observers(()), "the next run has not asked for it"


def test_each_observer_of_a_call_has_a_name_of_its_own():
    first, second, third = Watcher(), Watcher(), Watcher()
    given = [first, "Watcher_2", second, lambda: first, lambda: second, third]
    names = with_names({"observers": given})["observers"]
    assert names == ("Watcher", "Watcher_2", "Watcher_3", "lambda", "lambda_2", "Watcher_4")
    own = [name for name in names if name != "Watcher_2"]
    factories = [factory for factory in given if factory != "Watcher_2"]
    assert list(selected_observers(tuple(own)).values()) == factories
    assert with_names({"observers": second})["observers"] == ("Watcher",), "a call has names of its own"


def trained(keywords):
    """Returns the names in a call that trains, whose flags were accepted."""
    named = with_names(keywords, trains=True)
    keep_objects(named_folder([], named), keywords)
    return named


def same_named_class(size):
    return type("Maze", (Maze,), {"first_size": size})


# Flag -> the object that is registered under a name.
FIND = {
    "env": lambda name: resolve_family(name).make_env,
    "encoder_custom": lambda name: resolve_factory(ENCODER, name),
    "algo": registered_algorithm,
    "matchmaking": lambda name: matchmaking._REGISTRY.find(name),
    "observers": lambda name: selected_observers((name,))[name],
}
SAME_NAMED = [
    lambda size: lambda: Maze(size),
    lambda size: functools.partial(Maze, size=size),
    same_named_class,
]


@pytest.mark.parametrize("make", SAME_NAMED)
@pytest.mark.parametrize("flag", FIND)
def test_later_calls_for_an_experiment_find_its_own_object_whatever_others_have_the_same_name(
    flag, make, tmp_path
):
    """In a call for each of three experiments, of which two have the same name in another folder; then in
    calls in every order, of functions and of commands."""
    folders = [("maze", "one"), ("maze", "two"), ("other", "one")]
    given = {place: make(size) for size, place in enumerate(folders)}
    names = set()
    for (experiment, root), value in given.items():
        keywords = {"experiment": experiment, "train_dir": str(tmp_path / root), flag: value}
        names.add(str(trained(keywords)[flag]))
    assert len(names) == 1, "cfg.json of each has the plain name"
    name = names.pop().strip("()',")
    for order in itertools.permutations(folders):
        for experiment, root in order:
            flags = [f"--experiment={experiment}", f"--train_dir={tmp_path / root}"]
            if order[0] == folders[0]:
                run_command(lambda arguments: None, flags)
            else:
                with_names({"experiment": experiment, "train_dir": tmp_path / root})
            assert FIND[flag](name) is given[experiment, root]


def test_what_an_experiment_was_trained_with_stays_its_own():
    small, large, again = (lambda size=size: Maze(size) for size in (1, 100, 2))

    def found(trains=False, **env):
        (trained if trains else with_names)({"experiment": "maze", **env})
        return resolve_family("lambda").make_env

    assert found(env=large) is large and found() is large
    assert found(trains=True, env=small) is small and found() is small
    assert found(env=large) is large, "an evaluation in another env"
    assert found() is small
    assert found(trains=True, env=again) is again and found() is again
    register_env("lambda", large)
    assert found() is large, "what is registered later replaces it"


def test_the_folder_of_a_call_may_be_named_by_its_file_of_flags(tmp_path):
    file = tmp_path / "flags.json"
    file.write_text(json.dumps({"experiment": "maze", "train_dir": str(tmp_path)}))
    first, second = (lambda size=size: Maze(size) for size in (1, 2))
    trained({"env": first, "cfg": str(file)})
    trained({"env": second, "experiment": "other"})
    with_names({"experiment": "maze", "train_dir": str(tmp_path)})
    assert resolve_family("lambda").make_env is first


def test_a_call_that_is_refused_changes_no_trained_experiment():
    small, large = (lambda size=size: Maze(size) for size in (1, 100))
    trained({"experiment": "maze", "env": small})
    with_names({"experiment": "maze", "env": large, "typo": 1}, trains=True)  # its flags are refused later
    with_names({"experiment": "maze"})
    assert resolve_family("lambda").make_env is small
