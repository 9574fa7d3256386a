import pytest

from sample_factory.learning import algorithm_registry
from sample_factory.learning.algorithm_registry import (
    PPO,
    register_algorithm,
    registered_algorithm,
)
from sample_factory.runtime.registry import Registry, resolve


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.setattr(algorithm_registry, "_REGISTRY", Registry("algo", {"APPO": PPO}))


def test_an_unknown_algorithm_is_refused_with_the_nearest_and_all_known_names():
    register_algorithm("MINE", "my.module:Mine")
    with pytest.raises(ValueError, match="--algo=APO: did you mean APPO\\? known: APPO, MINE"):
        registered_algorithm("APO")


def test_a_registered_algorithm_is_found_without_importing_it():
    register_algorithm("MINE", "my.missing_module:Mine")
    assert registered_algorithm("MINE") == "my.missing_module:Mine"
    assert resolve(registered_algorithm("APPO")).__name__ == "PPO"


def test_an_algorithm_may_be_named_by_its_module():
    assert registered_algorithm("my.module:Mine") == "my.module:Mine"
