import functools
from dataclasses import dataclass

import gymnasium as gym
import pytest

from sample_factory import train
from sample_factory.config.flags import ConfigError, flag
from sample_factory.config.parsing import parse_config
from sample_factory.envs import env_registry
from sample_factory.envs.env_family import UnknownEnvError
from sample_factory.envs.env_registry import (
    global_env_registry,
    register_env,
    resolve_family,
    resolve_trained_family,
)
from sample_factory.envs.protocol import EnvConfig
from sample_factory.evaluation import env_choice
from tests.envs.made import probe
from tests.envs.simulators import TorchCrowd


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    monkeypatch.setattr(env_registry, "_FAMILIES", dict(env_registry._FAMILIES))


@dataclass(frozen=True)
class Flags:
    size: int = flag(3, "size")


def test_the_longest_prefix_wins_and_a_name_is_exact_unless_an_underscore_or_a_star_ends_it():
    names = ("toy", "toy_", "toy_large_", "plough*", "harvest")
    for name in names:
        register_env(name, lambda name=name: name)
    found = {"toy": "toy", "toy_x": "toy_", "toy_large_x": "toy_large_", "harvest": "harvest"}
    found |= {"plough": "plough*", "plough2": "plough*"}
    assert {name: resolve_family(name).make(None, EnvConfig(0, 0, 0)) for name in found} == found
    with pytest.raises(
        UnknownEnvError, match=r"'harvest' is registered as one name: register_env\('harvest\*'"
    ):
        resolve_family("harvest2")


class Field:
    def __init__(self, size=3, render_mode=None):
        self.made = size, render_mode


def test_make_env_gets_only_the_parameters_it_asks_for():
    register_env("a_", lambda name: name)
    register_env("b_", lambda name, cfg, render_mode=None: (name, cfg, render_mode))
    register_env("c_", lambda name, **rest: sorted(rest))
    register_env("d", lambda: "nothing")
    register_env("e", lambda cfg: cfg)
    register_env("f", lambda size=3: size)
    register_env("g", lambda *args, **rest: (args, sorted(rest)))
    config = EnvConfig(1, 2, 3)
    assert resolve_family("a_1").make("cfg", config) == "a_1"
    assert resolve_family("b_1").make("cfg", config, "rgb_array") == ("b_1", "cfg", "rgb_array")
    assert resolve_family("c_1").make("cfg", config) == ["cfg", "env_config", "render_mode"]
    assert [resolve_family(name).make("cfg", config) for name in "def"] == ["nothing", "cfg", 3]
    assert resolve_family("g").make("cfg", config) == (("g",), ["cfg", "env_config", "render_mode"])
    register_env("field", Field)
    assert resolve_family("field").make("cfg", config, "rgb_array").made == (3, "rgb_array")


class Handing:
    def __init__(self, *args, **kwargs):
        self.made = args, kwargs


def hand_on(**kwargs):
    return Handing(**kwargs)


def hand_all_on(*args, **kwargs):
    return Handing(*args, **kwargs)


@pytest.mark.parametrize(
    "make_env",
    [
        Handing,
        functools.partial(Handing, size=3),
        functools.partial(functools.partial(Handing), size=3),
        hand_on,
        functools.partial(hand_on, size=3),
        lambda **kwargs: hand_on(**kwargs),
    ],
)
def test_what_only_hands_its_arguments_on_gets_a_render_mode_and_no_other(make_env):
    register_env("on", make_env)
    config = EnvConfig(1, 2, 3)
    own = resolve_family("on").make("cfg", config).made[1]
    assert own.keys() <= {"size"}
    drawn = resolve_family("on").make("cfg", config, "rgb_array").made
    assert drawn == ((), {**own, "render_mode": "rgb_array"})


@pytest.mark.parametrize(
    "make_env",
    [
        hand_all_on,
        functools.partial(hand_all_on),
        lambda name, **kwargs: hand_on(**kwargs),
        lambda cfg, **kwargs: hand_on(cfg=cfg, **kwargs),
    ],
)
def test_a_function_that_asks_for_the_name_or_the_flags_gets_all_by_its_kwargs(make_env):
    register_env("on", make_env)
    assert resolve_family("on").make("cfg", EnvConfig(1, 2, 3), "human").made[1] == {
        "cfg": "cfg",
        "env_config": EnvConfig(1, 2, 3),
        "render_mode": "human",
    }


def test_gymnasium_s_make_with_its_arguments_makes_the_env():
    for make_env in (
        functools.partial(gym.make, "CartPole-v1"),
        functools.partial(gym.make, id="CartPole-v1"),
    ):
        register_env("pole", make_env)
        made = resolve_family("pole").make("cfg", EnvConfig(1, 2, 3), "rgb_array")
        assert made.spec.id == "CartPole-v1" and made.render_mode == "rgb_array"


def test_defaults_may_depend_on_the_env():
    register_env("toy_", lambda name: None, Flags, lambda name: {"size": len(name)})
    assert resolve_family("toy_12345").defaults == {"size": 9}


def test_v1s_registration_gives_flags_and_defaults(tmp_path):
    def add_params(env, parser):
        parser.add_argument("--toy_size", default=5, type=int, help="how large")
        parser.add_argument("--toy_name", default=None, type=str)
        parser.add_argument("--toy_on", default=False, type=lambda text: text == "True")
        parser.set_defaults(toy_size=4, gamma=0.7)  # the other function is called later

    def override(env, parser):
        parser.set_defaults(gamma=0.5, toy_size=6)

    global_env_registry().register_env(
        env_name_prefix="toy_",
        make_env_func=lambda full_env_name, cfg=None, env_config=None: (full_env_name, cfg.toy_size),
        add_extra_params_func=add_params,
        override_default_params_func=override,
    )
    argv = ["--env=toy_a", f"--train_dir={tmp_path}", "--toy_name=b", "--toy_on=True"]
    config = parse_config(argv, resolve_family)
    cfg = config.namespace()
    assert (cfg.gamma, cfg.toy_size, cfg.toy_name, cfg.toy_on) == (0.5, 6, "b", True)
    assert resolve_family("toy_a").make(cfg, EnvConfig(0, 0, 0)) == ("toy_a", 6)


def test_v1s_registration_needs_no_parser_functions():
    global_env_registry().register_env("bare_", lambda name, cfg=None, env_config=None: name)
    assert resolve_family("bare_x").flags is None


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("no_such_module:make", ImportError, r"package that is not installed.*pip install -e .\.\[late\]"),
        ("late_package:make", ImportError, "needs a package that cannot be loaded .libx.so: cannot open"),
        ("pathlib:make_env", ConfigError, "registration of env 'late_x' is wrong: pathlib has no attribute"),
    ],
)
def test_a_registered_string_is_resolved_when_it_is_used(path, error, message, tmp_path, monkeypatch):
    (tmp_path / "late_package.py").write_text("raise ImportError('libx.so: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    register_env("late_", path, extra="late")
    with pytest.raises(error, match=message):
        resolve_family("late_x")


def test_an_env_of_a_script_is_to_be_trained_and_watched_from_that_script(tmp_path, capsys):
    with pytest.raises(UnknownEnvError, match="unknown env 'somebodys_pole'.*sample_factory.enjoy.main"):
        resolve_trained_family("somebodys_pole")
    folder = tmp_path / "harvest"
    folder.mkdir()
    (folder / "cfg.json").write_text('{"env": "somebodys_pole", "experiment": "harvest"}')
    flags = ["--experiment=harvest", f"--train_dir={tmp_path}"]
    assert train.main(flags) == 2 and "start that script" in capsys.readouterr().err
    assert train.main([*flags, "--env=somebodys_pole"]) == 2 and "script" not in capsys.readouterr().err


def test_a_maker_whose_num_envs_is_none_chooses_the_number_itself(tmp_path):
    register_env("optional", lambda num_envs=None: TorchCrowd(5 if num_envs is None else num_envs))
    family = resolve_family("optional")
    for flags, copies in (([], 5), (["--vector_env_copies=9"], 9)):
        config = parse_config(["--env=optional", f"--train_dir={tmp_path}", *flags], resolve_family)
        info = probe(family, config.namespace())
        assert info.num_agents == copies and info.is_simulator
        assert family.make(config.namespace(), EnvConfig(0, 0, 0)).num_envs == copies
    config = parse_config(["--env=optional", f"--train_dir={tmp_path}"], resolve_family)
    played = {
        draws: env_choice.make_env(config, family, draws, EnvConfig(0, 0, 0)) for draws in (True, False)
    }
    assert played[True].num_agents == 1 and played[False].num_agents == 5
