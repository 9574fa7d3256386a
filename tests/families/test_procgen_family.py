"""Procgen in EnvPool: names, levels, pictures."""

import numpy as np
import pytest

pytest.importorskip("envpool")

import envpool

from sample_factory.config.flags import ConfigError
from sample_factory.families.envpool_engine import import_procgen
from sample_factory.families.procgen_family import (
    MODES,
    PROCGEN_ENVS,
    find_task_id,
)
from tests.envs.made import make_env

try:
    import_procgen()
except ImportError as error:
    pytest.skip(f"Procgen needs Qt 5: {error}", allow_module_level=True)


def first_observation(seed=0, **flags):
    env = make_env("procgen_coinrun", **{"vector_env_copies": 2, **flags})
    observations, infos = env.reset(seed=seed)
    env.close()
    return observations, infos["level_seed"]


def test_games_and_modes_are_those_of_envpool():
    found = set()
    for name in PROCGEN_ENVS:
        for mode in MODES:
            try:
                found.add(find_task_id(name.removeprefix("procgen_"), mode))
            except ConfigError:
                continue
    module = "envpool.procgen"
    known = {name for name, spec in envpool.registration.registry.specs.items() if spec[0] == module}
    assert found == known


def test_a_mode_that_a_game_does_not_have_gets_those_that_it_has():
    with pytest.raises(ConfigError, match="bigfish has easy, hard"):
        make_env("procgen_bigfish", procgen_distribution_mode="memory")


def test_a_limit_of_levels_with_a_start_gives_exactly_that_level_in_every_copy():
    observations, levels = first_observation(vector_env_copies=3, procgen_num_levels=1, procgen_start_level=7)
    assert (levels == 7).all()
    assert (observations == observations[0]).all()


def test_the_modes_are_different_levels():
    easy, _ = first_observation(procgen_num_levels=1)
    hard, _ = first_observation(procgen_num_levels=1, procgen_distribution_mode="hard")
    assert easy.shape == hard.shape == (2, 3, 64, 64)
    assert (easy != hard).any()


def test_the_picture_is_that_of_the_first_copy():
    env = make_env("procgen_starpilot", "rgb_array")
    observations, _ = env.reset(seed=0)
    np.testing.assert_equal(env.render()[0], observations[0].transpose(1, 2, 0))
    env.close()
