"""Procgen in EnvPool: names, levels, pictures."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("envpool")

import envpool

from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.envpool_engine import import_procgen
from sample_factory.envs.procgen_family import (
    MODES,
    PROCGEN_ENVS,
    ProcgenFlags,
    find_task_id,
    procgen_defaults,
)
from sample_factory.envs.protocol import EnvConfig

try:
    import_procgen()
except ImportError as error:
    pytest.skip(f"Procgen needs Qt 5: {error}", allow_module_level=True)


def make(name, copies=2, render_mode=None, **flags):
    cfg = {
        **vars(ProcgenFlags()),
        "num_workers": 1,
        "serial_mode": False,
        "inline_samplers": 0,
        "env_frameskip": None,
        "vector_env_copies": copies,
    }
    return resolve_family(name).make(SimpleNamespace(**{**cfg, **flags}), EnvConfig(0, 0, 0), render_mode)


def first_observation(seed=0, **flags):
    env = make("procgen_coinrun", **flags)
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
        make("procgen_bigfish", procgen_distribution_mode="memory")


def test_a_limit_of_levels_with_a_start_gives_exactly_that_level_in_every_copy():
    observations, levels = first_observation(copies=3, procgen_num_levels=1, procgen_start_level=7)
    assert (levels == 7).all()
    assert (observations == observations[0]).all()


def test_the_modes_are_different_levels():
    easy, _ = first_observation(procgen_num_levels=1)
    hard, _ = first_observation(procgen_num_levels=1, procgen_distribution_mode="hard")
    assert easy.shape == hard.shape == (2, 3, 64, 64)
    assert (easy != hard).any()


def test_the_picture_is_that_of_the_first_copy():
    env = make("procgen_starpilot", render_mode="rgb_array")
    observations, _ = env.reset(seed=0)
    np.testing.assert_equal(env.render()[0], observations[0].transpose(1, 2, 0))
    env.close()


def test_an_iteration_of_the_defaults_is_a_rollout_of_64_copies_as_in_the_paper():
    flags = {**vars(ProcgenFlags()), **procgen_defaults("procgen_starpilot")}
    num_agents = flags["num_workers"] * flags["num_envs_per_worker"] * flags["vector_env_copies"]
    assert num_agents == 64
    assert flags["batch_size"] * flags["num_batches_per_iteration"] == num_agents * flags["rollout"]
