"""The specifications of a run's processes."""

import pkgutil
import subprocess
import sys
import types

import pytest
from sample_factory.launch.parts import Parts
from sample_factory.launch.wiring import (
    WorkerId,
    learner_spec,
    policy_worker_spec,
    rollout_worker_spec,
    worker_specs,
)

from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_info import env_info
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.launch import wiring
from tests.counting import CountingEnv, make_config, make_shared


def make_parts(**flags):
    config = make_config(**flags)
    env = CountingEnv(0, 1)
    info = env_info(adapt(env), types.SimpleNamespace(env_frameskip=None))
    family = EnvFamily("counting", CountingEnv, None, {})
    return Parts(config, family, info, *make_shared(config, env), seed=1)


def test_learners_have_priority_over_policy_workers_and_these_over_rollout_workers():
    parts = make_parts(default_niceness=2)
    specs = learner_spec(parts, 0), policy_worker_spec(parts, 0, 0), rollout_worker_spec(parts, 0)
    assert [spec.options.niceness for spec in specs] == [2, 7, 12]
    # Niceness counts within a session: learner and policy worker share one. A rollout worker has its own, so
    # that its simulators do not keep other programs from the cores.
    assert [spec.options.own_session for spec in specs] == [False, False, True]


def test_the_workers_of_a_run_are_numbered_and_named_by_role():
    specs = worker_specs(make_parts(num_policies=2, num_workers=2, policy_workers_per_policy=2))
    assert [spec.worker_id for spec in specs.rollout_workers] == [
        WorkerId("rollout_worker", i) for i in (0, 1)
    ]
    assert [spec.worker_id.name for spec in specs.all] == [
        "learner_0",
        "learner_1",
        "policy_worker_0_0",
        "policy_worker_0_1",
        "policy_worker_1_0",
        "policy_worker_1_1",
        "rollout_worker_0",
        "rollout_worker_1",
    ]


def test_inline_samplers_hold_all_rollout_workers_once():
    specs = worker_specs(make_parts(num_workers=5, inline_samplers=2))
    assert not specs.policy_workers and not specs.rollout_workers
    held = [[args.worker_index for args in spec.args.rollout_workers] for spec in specs.inline_samplers]
    assert held == [[0, 2, 4], [1, 3]]
    assert [spec.rollout_workers for spec in specs.inline_samplers] == held


@pytest.mark.parametrize("factory", ["ROLLOUT_WORKER", "POLICY_WORKER", "INLINE_SAMPLER", "LEARNER_WORKER"])
def test_the_names_of_the_workers_classes_are_right(factory):
    assert isinstance(pkgutil.resolve_name(vars(wiring)[factory]), type)


def test_no_process_of_a_run_on_one_machine_loads_ray():
    code = (
        "import sys\n"
        "import sample_factory.launch.run\n"
        "from sample_factory.launch import wiring\n"
        "from sample_factory.runtime.registry import import_attribute\n"
        "workers = ['ROLLOUT_WORKER', 'POLICY_WORKER', 'INLINE_SAMPLER', 'LEARNER_WORKER', 'OTHER_LEARNER']\n"
        "for name in workers:\n"
        "    import_attribute(getattr(wiring, name))\n"
        "assert not {'ray', 'zstandard'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
