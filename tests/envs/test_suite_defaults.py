"""Flags by suite: which ids belong to one."""

import pytest

from sample_factory.config.parsing import parse_config
from sample_factory.envs import gym_family
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.gym_family import CONTROL_SUITE, MEMORY, ROADS, ROBOTS, suite_defaults


@pytest.mark.parametrize(
    ("env_id", "flags"),
    [
        ("popgym-RepeatPreviousEasy-v0", MEMORY),
        ("FetchReachDense-v4", ROBOTS),
        ("MetaWorld/Reach-v3", ROBOTS),
        ("parking-v0", ROBOTS),
        ("CartpoleSwingup-v1", CONTROL_SUITE),
        ("dm_control/cartpole-swingup-v0", CONTROL_SUITE),
        ("highway-fast-v0", ROADS),
        ("CartPole-v1", {}),
        ("Acrobot-v1", {}),
        ("Pendulum-v1", {}),
        ("HumanoidStandup-v5", {}),
        ("ALE/Pong-v5", {}),
    ],
)
def test_an_id_has_the_flags_of_its_suite(env_id, flags):
    assert suite_defaults(env_id) == flags


@pytest.mark.parametrize("flags", [MEMORY, ROBOTS, CONTROL_SUITE, ROADS])
def test_the_flags_of_a_suite_are_consistent(flags, tmp_path):
    def family(name):
        resolved = resolve_family("gym_CartPole-v1")
        return resolved.__class__(name, resolved.make_env, resolved.flags, {**resolved.defaults, **flags})

    config = parse_config(["--env=gym_CartPole-v1", f"--train_dir={tmp_path}", "--num_workers=2"], family)
    assert config.unknown == {}


@pytest.mark.parametrize("name", ["gym_popgym-RepeatFirstEasy-v0", "gym_popgym:popgym-RepeatFirstEasy-v0"])
def test_a_suite_is_found_by_the_id_after_the_module(name, monkeypatch):
    any_module = ("any", "")
    monkeypatch.setattr(
        gym_family, "parse_name", lambda name: any_module
    )  # whether or not its package is here
    assert resolve_family(name).defaults["use_rnn"]
    assert not resolve_family("gym_CartPole-v1").defaults["use_rnn"]


@pytest.mark.parametrize(("task_id", "flags"), [("FetchReachDense-v4", ROBOTS), ("highway-fast-v0", ROADS)])
def test_envpool_has_the_flags_of_a_suite_too(task_id, flags):
    assert flags.items() <= resolve_family(f"envpool_{task_id}").defaults.items()
