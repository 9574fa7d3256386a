import pytest

from sample_factory.benchmarking.advice import advice, advice_for_fast_env
from sample_factory.monitoring.bottleneck import PARTS

FLAGS = {
    "num_workers": 2,
    "num_envs_per_worker": 16,
    "worker_num_splits": 2,
    "async_rl": True,
    "serial_mode": False,
    "policy_workers_per_policy": 1,
    "inline_samplers": 0,
    "batch_size": 2048,
    "ppo_epochs": 1,
    "precision": "auto",
    "res_w": 128,
    "res_h": 72,
}


def advised(limiting, busy_cores=4.0, on_gpu=False, **changes):
    waits = {part: 0.0 if part in limiting else 0.6 for part in PARTS}
    flags = {name: value for name, value in (FLAGS | changes).items() if value is not None}
    return "\n".join(advice(waits, flags, 1, on_gpu, 8, busy_cores))


@pytest.mark.parametrize(
    "limiting, changes, words, not_words",
    [
        (["learner"], {}, ["a GPU", "--batch_size (now 2,048)", "128x72"], ["bf16", "cores:"]),
        (["learner"], {"on_gpu": True}, ["--batch_size"], ["a GPU"]),
        (["learner"], {"precision": "fp32", "ppo_epochs": 4}, ["bf16", "--ppo_epochs (now 4)"], []),
        (["learner"], {"res_w": None}, ["--batch_size"], ["--res_w"]),
        (["policy_worker"], {}, ["--num_envs_per_worker (now 16)", "--policy_workers_per_policy"], []),
        (["policy_worker"], {"busy_cores": 7.9}, ["--num_envs_per_worker", "7.9 of 8"], ["--policy_w"]),
        (["rollout_worker"], {}, ["--num_workers (now 2)"], ["cores:"]),
        (["rollout_worker"], {"busy_cores": 8.0}, ["more cores"], ["--num_workers"]),
        (
            ["rollout_worker"],
            {"num_workers": 4, "inline_samplers": 2},
            ["--inline_samplers"],
            ["num_workers"],
        ),
        (["policy_worker"], {"inline_samplers": 2}, ["--num_workers", "--inline_samplers"], ["--policy_w"]),
        (
            ["rollout_worker", "policy_worker"],
            {"serial_mode": True},
            ["simulation: try --serial_mode=False", "inference: ", "(now 16), for larger batches"],
            ["--num_workers", "--policy_w"],
        ),
        (
            ["rollout_worker"],
            {"serial_mode": True, "busy_cores": 8.0},
            ["more cores"],
            ["--serial", "--num_workers"],
        ),
        (["rollout_worker", "learner"], {"busy_cores": None}, ["simulation: ", "learner: "], ["cores:"]),
        ([], {}, ["no part is the slowest: try a larger --num_envs"], ["learner:"]),
        (list(PARTS), {"busy_cores": 8.0}, ["cores: 8.0 of 8"], ["try"]),
        ([], {"num_envs_per_worker": 2}, ["--num_envs_per_worker=16"], ["no part"]),
        ([], {"num_envs_per_worker": 2, "async_rl": False}, ["no part"], ["--num_envs_per_worker=16"]),
    ],
)
def test_advice_names_the_flag_that_helps_here(limiting, changes, words, not_words):
    text = advised(limiting, **changes)
    assert all(word in text for word in words), text
    assert not [word for word in not_words if word in text], text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vector_env_copies": 1}, ["--vector_env_copies=20", "--inline_samplers=1"]),
        ({"vector_env_copies": 20}, ["--inline_samplers=1"]),
        ({"vector_env_copies": 20, "inline_samplers": 1}, []),
        ({"vector_env_copies": 20, "serial_mode": True}, []),
        ({"vector_env_copies": 1, "env_frameskip": 4}, []),
        ({}, []),  # the env cannot be copied
    ],
)
def test_for_envs_that_step_in_microseconds_it_names_copies_and_inline_samplers(changes, words):
    flags = {**FLAGS, "env_frameskip": None, **changes}
    text = "\n".join(advice_for_fast_env(flags, 12.0))
    assert [flag for flag in ("--vector_env_copies=20", "--inline_samplers=1") if flag in text] == words
    assert advice_for_fast_env(flags, 300.0) == []
