"""The specifications of a run's processes."""

import pkgutil

import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.launch.checks import check_workers
from sample_factory.launch.workers import FACTORIES, ROLLOUT_WORKER, sampling_specs, training_specs
from sample_factory.mainloop.main_loop import Resources
from tests.counting import CountingEnv, make_config, make_plan, make_shared


def specs_of(**flags):
    config = make_config(**flags)
    env = CountingEnv(0, 1)
    plan = make_plan(config, env)
    learners = training_specs(plan, Resources(*make_shared(config, env)), "module:Ingest")
    return [*learners, *sampling_specs(plan.sampling)]


def test_learners_have_priority_over_policy_workers_and_these_over_rollout_workers():
    specs = specs_of(default_niceness=2)
    assert [spec.options.niceness for spec in specs] == [2, 7, 12]
    # Niceness counts within a session: learner and policy worker share one. A rollout worker has its own, so
    # that its simulators do not keep other programs from the cores.
    assert [spec.options.own_session for spec in specs] == [False, False, True]


def test_the_workers_of_a_run_are_numbered_and_named_by_role():
    specs = specs_of(num_policies=2, num_workers=2, policy_workers_per_policy=2)
    assert [spec.worker_index for spec in specs if spec.role == ROLLOUT_WORKER] == [0, 1]
    assert [spec.name for spec in specs] == [
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
    specs = specs_of(num_workers=5, inline_samplers=2)
    assert [spec.name for spec in specs] == ["learner_0", "sampler_0", "sampler_1"]
    assert [list(spec.rollout_workers) for spec in specs] == [[], [0, 2, 4], [1, 3]]


@pytest.mark.parametrize("factory", FACTORIES.values())
def test_the_names_of_the_workers_classes_are_right(factory):
    assert isinstance(pkgutil.resolve_name(factory), type)


@pytest.mark.parametrize(
    ("visible", "names"),
    [(None, ["0", "1", "0"]), ("5, 7", ["5", "7", "5"]), ("GPU-a,", ["GPU-a"] * 3), ("", [""] * 3)],
)
def test_a_worker_gets_its_gpu_among_those_that_this_process_sees(monkeypatch, visible, names):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    specs = specs_of(num_workers=3, actor_worker_gpus=(0, 1))
    found = [
        spec.options.environment["CUDA_VISIBLE_DEVICES"] for spec in specs if spec.role == ROLLOUT_WORKER
    ]
    assert found == names
    if len({*names}) == 1:  # a training is refused; a node, or an evaluation elsewhere, uses what there is
        with pytest.raises(ConfigError, match="--actor_worker_gpus: there is no GPU . among"):
            check_workers(0, "--actor_worker_gpus", (0, 1))
