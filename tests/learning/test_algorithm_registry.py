"""What algorithms declare, and the names that --algo accepts."""

from dataclasses import dataclass

import pytest

from sample_factory.config import algorithms
from sample_factory.config.algorithms import BUILT_IN, register_algorithm, registered_algorithm
from sample_factory.config.flags import ConfigError, flag
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.config.parsing import parse_config
from sample_factory.config.population_flags import PbtFlags
from sample_factory.envs.env_registry import resolve_family
from sample_factory.population.pbt import tuned_hyperparameters
from sample_factory.runtime.registry import Registry, resolve


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.setattr(algorithms, "_REGISTRY", Registry("algo", BUILT_IN))


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_a_built_in_algorithm_declares_exists(name):
    info = BUILT_IN[name]
    assert resolve(info.factory).__module__.startswith("sample_factory.learning.algorithms")
    LearningFlags(**info.defaults)
    assert {*info.evolves} <= LearningFlags.__dataclass_fields__.keys()
    for name_of_flag in info.refuses:
        with pytest.raises(ConfigError, match=f"--{name_of_flag}=2 does not work with --algo={name}"):
            parse_config(["--env=gym_CartPole-v1", f"--algo={name}", f"--{name_of_flag}=2"], resolve_family)


def test_a_users_algorithm_evolves_the_flags_of_ppo():
    usual = tuned_hyperparameters(PbtFlags(), "APPO")
    assert tuned_hyperparameters(PbtFlags(), "my.module:Mine") == usual
    assert "ppo_clip_ratio" in usual and "ppo_clip_ratio" not in BUILT_IN["VMPO"].evolves


def test_a_registered_algorithm_brings_its_own_defaults():
    register_algorithm("MINE", "my.missing_module:Mine", {"learning_rate": 0.5})
    argv = ["--env=gym_CartPole-v1", "--algo=MINE", "--ppo_clip_value=2"]
    config = parse_config(argv, resolve_family)
    assert config.learning.learning_rate == 0.5
    assert config.learning.ppo_clip_value == 2, "it may use any flag"


def test_a_registered_algorithm_is_found_without_importing_it():
    register_algorithm("MINE", "my.missing_module:Mine")
    assert registered_algorithm("MINE") == "my.missing_module:Mine"
    assert resolve(registered_algorithm("APPO")).__name__ == "PPO"


def test_an_algorithm_may_be_named_by_its_module():
    assert registered_algorithm("my.module:Mine") == "my.module:Mine"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("APO", "--algo=APO is unknown; did you mean APPO.* known: APPO, .*MINE"),
        ("appo", "APPO"),
        ("DUMMY_SAMPLER", ".dummy_sampler"),
        ("MAPPO", "MAPPO is unknown: .*--algo=APPO --centralized_critic=True$"),
        ("ippo", "ippo is unknown: it is --algo=APPO, where each agent"),
        ("SAC", "replay buffer, and there is none here; --algo=APPO"),
        ("PPO", "--algo=APPO is PPO"),
    ],
)
def test_an_unknown_algorithm_is_answered_with_the_nearest_one_and_the_known_ones(name, hint):
    register_algorithm("MINE", "my.module:Mine")
    with pytest.raises(ValueError, match=hint):
        registered_algorithm(name)


def test_a_name_of_another_package_can_be_registered():
    register_algorithm("SAC", "my.module:Soft")
    assert registered_algorithm("SAC") == "my.module:Soft"


@dataclass(frozen=True)
class LimitFlags(LearningFlags):
    """Batches, losses, optimizer; a limit."""

    limit: float = flag(2.5, "a limit", above=0)


def test_an_algorithm_brings_flags_of_its_own():
    register_algorithm("MINE", "my.missing_module:Mine", {"gamma": 0.5}, flags=LimitFlags)
    own = ["--env=gym_CartPole-v1", "--algo=MINE"]
    assert parse_config(own, resolve_family).learning == LimitFlags(gamma=0.5)
    config = parse_config([*own, "--limit=3"], resolve_family)
    assert config.learning.limit == config.flat()["limit"] == config.namespace().limit == 3.0
    with pytest.raises(ConfigError, match="limit=0.0: must be above 0"):
        parse_config([*own, "--limit=0"], resolve_family)
    with pytest.raises(ConfigError, match="unknown flag --limit"):
        parse_config(["--env=gym_CartPole-v1", "--limit=3"], resolve_family)


@pytest.mark.parametrize("flags", [PbtFlags, LimitFlags()])
def test_flags_of_an_algorithm_extend_those_of_learning(flags):
    with pytest.raises(TypeError, match="inherits from LearningFlags"):
        register_algorithm("MINE", "my.missing_module:Mine", flags=flags)
