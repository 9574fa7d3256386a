"""Values of flags that are left out and depend on the machine and the env."""

import dataclasses

import gymnasium.spaces as S
import psutil
import pytest

from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.env_registry import resolve_family
from sample_factory.launch import arrangement
from sample_factory.launch.arrangement import arrange
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import observation_layout
from tests.counting import make_config

SPACE = observation_layout(S.Box(-1, 1, (2,))).space


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Two cores and 64 GB."""
    memory = psutil.virtual_memory()._replace(total=2**36, available=2**36)
    monkeypatch.setattr(arrangement, "num_usable_cores", lambda: 2)
    monkeypatch.setattr(arrangement, "memory_limit_mb", lambda of_machine: of_machine / 2**20)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    return memory


def config_with(past_share=0.0, with_pbt=False, **flags):
    config = make_config(**{"inline_samplers": None, "device": "cpu", "num_workers": 2, **flags})
    selfplay = dataclasses.replace(config.selfplay, selfplay_past_share=past_share)
    population = dataclasses.replace(config.population, with_pbt=with_pbt)
    return dataclasses.replace(config, selfplay=selfplay, population=population)


def samplers_of(**flags):
    """Returns the number of inline samplers."""
    return arrange(config_with(**flags), EnvInfo(AgentKinds.one(SPACE, S.Discrete(2), 1), 1))[1]


@pytest.mark.parametrize("num_workers, samplers", [(1, 0), (2, 2), (5, 2)])
def test_inline_samplers_are_one_per_core_if_the_workers_occupy_all_cores(num_workers, samplers):
    assert samplers_of(num_workers=num_workers) == samplers


@pytest.mark.parametrize(
    "flags",
    [
        {"device": "gpu"},
        {"num_policies": 2},
        {"policy_workers_per_policy": 2},
        {"serial_mode": True},
        {"actor_worker_gpus": (0,)},
        {"past_share": 0.5},
        {"with_pbt": True},
        {"inline_samplers": 0},
    ],
    ids=lambda flags: next(iter(flags)),
)
def test_there_are_no_inline_samplers_where_separate_processes_are_needed_or_asked_for(flags):
    assert samplers_of(**flags) == 0


def test_inline_samplers_need_half_of_the_memory_at_most(monkeypatch, machine):
    monkeypatch.setattr(arrangement, "num_usable_cores", lambda: 64)
    assert samplers_of(num_workers=64) == 64
    monkeypatch.setattr(psutil, "virtual_memory", lambda: machine._replace(total=2**35))
    assert samplers_of(num_workers=64) == 0


def chosen(num_agents=1, step_seconds=None, num_simulators=0, **flags):
    kinds = AgentKinds.one(SPACE, S.Discrete(2), num_agents)
    info = EnvInfo(kinds, 1, step_seconds=step_seconds, num_simulators=num_simulators)
    flags = {"rollout": 32, "batch_size": 1024, **flags}
    config, _, _ = arrange(config_with(**{"num_envs_per_worker": None, **flags}), info)
    return config.sampling.envs_per_worker


@pytest.mark.parametrize(
    "num_agents, splits, expected", [(1, 2, 16), (2, 2, 8), (3, 2, 4), (3, 1, 5), (40, 2, 2), (1, 3, 15)]
)
def test_sixteen_agents_are_divided_by_those_of_an_env_in_equal_splits(num_agents, splits, expected):
    assert chosen(num_agents, worker_num_splits=splits) == expected


@pytest.mark.parametrize("batch_size, num_workers, expected", [(1024, 2, 32), (4096, 2, 64), (1024, 8, 16)])
def test_an_env_that_steps_in_microseconds_gets_more_up_to_two_batches(batch_size, num_workers, expected):
    flags = {"batch_size": batch_size, "num_workers": num_workers, "num_batches_per_iteration": 1}
    assert chosen(step_seconds=2e-5, **flags) == expected
    assert chosen(step_seconds=2e-4, **flags) == 16
    assert chosen(step_seconds=2e-5, serial_mode=True, **flags) == 2, "it depends on no time"


def test_simulators_get_half_of_the_free_memory_at_most(monkeypatch, machine):
    free = machine._replace(available=1200 * 2**20)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    assert chosen(num_simulators=1) == 2  # 3 of 100 MB in each of 2 workers, in 2 splits
    assert chosen() == 16


def test_each_agent_of_a_match_has_a_simulator(monkeypatch, machine):
    free = machine._replace(available=3200 * 2**20)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    assert chosen(num_simulators=1) == 8
    assert chosen(num_agents=4, num_simulators=4) == 2 and chosen(num_agents=4) == 4


@pytest.mark.parametrize("num_workers, expected", [(16, 16), (36, 6), (256, 2)])
def test_all_agents_together_fill_eight_batches_at_most(num_workers, expected):
    assert chosen(num_workers=num_workers, num_batches_per_iteration=1) == expected


@pytest.mark.parametrize("step_seconds, num_batches, expected", [(1e-5, 4, 64), (1e-5, 2, 32), (1.0, 1, 16)])
def test_alternating_with_learning_the_rollouts_of_all_agents_divide_an_iteration(
    step_seconds, num_batches, expected
):
    flags = {"async_rl": False, "num_batches_per_iteration": num_batches}
    num_envs = chosen(step_seconds=step_seconds, **flags)
    assert num_envs == expected and 1024 * num_batches % (2 * num_envs * 32) == 0


def test_a_number_of_envs_that_is_given_stays():
    assert chosen(num_envs_per_worker=6) == 6


@pytest.mark.parametrize("num_workers, is_advised", [(2, True), (12, False)])
def test_copies_in_a_vector_env_are_advised_only_where_that_would_be_another_arrangement(
    tmp_path, num_workers, is_advised
):
    flags = [f"--train_dir={tmp_path}", f"--num_workers={num_workers}", "--rollout=64", "--batch_size=256"]
    flags += ["--num_batches_per_iteration=6", "--async_rl=False"]
    config = parse_config(["--env=gym_Pendulum-v1", *flags], resolve_family)
    info = EnvInfo(AgentKinds.one(SPACE, S.Box(-2, 2, (1,)), 1), 1, step_seconds=2e-5)
    _, _, (note,) = arrange(config, info)
    assert ("--vector_env_copies" in note.text) == is_advised
    assert "--vector_env_copies=1 " not in note.text
