import pytest

from sample_factory.learning import algorithm_registry
from sample_factory.learning.algorithm_registry import (
    PPO,
    register_algorithm,
    registered_algorithm,
    resolve_algorithm,
)


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.setattr(algorithm_registry, "_REGISTERED", {"APPO": PPO})


def test_an_unknown_algorithm_is_refused_with_the_nearest_and_all_known_names():
    register_algorithm("MINE", "my.module:Mine")
    with pytest.raises(ValueError, match="--algo=APO: did you mean APPO\\? registered are APPO, MINE"):
        registered_algorithm("APO")


def test_a_factory_by_name_is_imported_when_it_is_resolved():
    register_algorithm("MINE", "my.missing_module:Mine")
    factory = registered_algorithm("MINE")
    with pytest.raises(ModuleNotFoundError):
        resolve_algorithm(factory)
    with pytest.raises(ValueError, match=r"algorithms\.ppo has no attribute Missing"):
        resolve_algorithm(PPO.replace("PPO", "Missing"))
    assert resolve_algorithm(PPO).__name__ == "PPO"
    assert resolve_algorithm(dict) is dict
