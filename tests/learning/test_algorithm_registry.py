import pytest

from sample_factory.config import algorithm_defaults
from sample_factory.config.algorithms import defaults_of
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.learning import algorithm_registry
from sample_factory.config.algorithms import (
    BUILT_IN,
    PPO,
    register_algorithm,
    registered_algorithm,
)
from sample_factory.runtime.registry import Registry, resolve


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.setattr(algorithm_registry, "_REGISTRY", Registry("algo", {"APPO": PPO}))
    monkeypatch.setattr(algorithm_defaults, "_DEFAULTS", dict(algorithm_defaults._DEFAULTS))


def test_an_unknown_algorithm_is_refused_with_the_nearest_and_all_known_names():
    register_algorithm("MINE", "my.module:Mine")
    with pytest.raises(ValueError, match="--algo=APO: did you mean APPO\\? known: APPO, MINE"):
        registered_algorithm("APO")


def test_the_nearest_name_is_found_in_lower_case():
    with pytest.raises(ValueError, match="did you mean APPO\\?"):
        registered_algorithm("appo")


def test_every_built_in_algorithm_has_its_defaults():
    assert tuple(BUILT_IN) == algorithm_defaults.BUILT_IN
    for name, path in BUILT_IN.items():
        assert resolve(path).__module__.startswith("sample_factory.learning.algorithms"), name
        LearningFlags(**defaults_of(name))


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
