import pytest

from sample_factory.benchmarking.advice import Situation, advice
from sample_factory.monitoring.bottleneck import PARTS, EnvCounts

SITUATION = Situation(
    2, 16, 1, 0, 2048, 1, "auto", (128, 72), on_gpu=False, cores=8, busy_cores=4.0, envs=EnvCounts(2, 8, 1)
)


@pytest.mark.parametrize(
    "limiting, changes, words, not_words",
    [
        (["learner"], {}, ["learner: try a GPU", "--batch_size (now 2,048)", "128x72"], ["bf16", "cores:"]),
        (["learner"], {"on_gpu": True}, ["--batch_size"], ["a GPU"]),
        (["learner"], {"precision": "fp32", "ppo_epochs": 4}, ["bf16", "--ppo_epochs (now 4)"], []),
        (["learner"], {"resolution": None}, ["--batch_size"], ["--res_w"]),
        (["policy_worker"], {}, ["--num_envs_per_worker (now 16)", "--policy_workers_per_policy"], []),
        (
            ["policy_worker"],
            {"busy_cores": 7.9},
            ["--num_envs_per_worker", "cores: 7.9 of 8"],
            ["--policy_w"],
        ),
        (["rollout_worker"], {}, ["simulation: try a larger --num_workers (now 2)"], ["cores:"]),
        (["rollout_worker"], {"busy_cores": 8.0}, ["more cores"], ["--num_workers"]),
        (
            ["rollout_worker"],
            {"num_workers": 4, "inline_samplers": 2},
            ["a larger --inline_samplers (now 2)"],
            ["num_workers"],
        ),
        (
            ["policy_worker"],
            {"inline_samplers": 2},
            ["--num_workers (now 2) and as many --inline_samplers"],
            ["--policy_w"],
        ),
        (["rollout_worker", "learner"], {"busy_cores": None}, ["simulation: ", "learner: "], ["cores:"]),
        ([], {}, ["--sweep"], ["learner:"]),
        (["rollout_worker", "policy_worker", "learner"], {"busy_cores": 8.0}, ["cores: 8.0 of 8"], ["try"]),
    ],
)
def test_advice_names_the_flag_that_helps_here(limiting, changes, words, not_words):
    shares = {part: 0.0 if part in limiting else 0.6 for part in PARTS}
    text = "\n".join(advice(shares, SITUATION._replace(**changes)))
    assert all(word in text for word in words), text
    assert not [word for word in not_words if word in text], text


@pytest.mark.parametrize(
    "waits, is_advised",
    [
        ({"rollout_worker": 0.7, "policy_worker": 0.1, "learner": 0.9}, True),
        ({"rollout_worker": 0.7, "policy_worker": 0.6, "learner": 0.9}, True),  # all wait for messages
        ({"rollout_worker": 0.0, "policy_worker": 0.6, "learner": 0.9}, False),  # for the simulators
        ({"rollout_worker": 0.7, "policy_worker": 0.6, "learner": 0.0}, False),
    ],
)
@pytest.mark.parametrize("busy_cores", [4.0, 8.0, None])
def test_the_default_of_two_envs_per_worker_is_advised_against_first(waits, is_advised, busy_cores):
    few = SITUATION._replace(num_envs_per_worker=2, envs=EnvCounts(2, 1, 1), busy_cores=busy_cores)
    lines = advice(waits, few)
    words = "few envs per worker: first try --num_envs_per_worker=16 (now 2)"
    assert lines[0].startswith(words) == is_advised
    assert not is_advised or len(lines) == 1
    assert not any(line.startswith(words) for line in advice(waits, SITUATION))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vector_env_copies": 1}, ["--vector_env_copies=20", "--inline_samplers=1"]),
        ({"vector_env_copies": 20}, ["--inline_samplers=1"]),
        ({"vector_env_copies": 20, "inline_samplers": 1}, []),
        ({"vector_env_copies": 1, "step_microseconds": 300.0}, []),
        ({"vector_env_copies": None}, []),
    ],
)
def test_for_envs_that_step_in_microseconds_it_names_copies_and_inline_samplers(changes, words):
    situation = SITUATION._replace(**{"step_microseconds": 12.0, **changes})
    text = "\n".join(advice({"learner": 0.0, "policy_worker": 0.6, "rollout_worker": 0.6}, situation))
    flags = ["--vector_env_copies=20", "--inline_samplers=1"]
    assert [flag for flag in flags if flag in text] == words
    assert ("takes 12 us" in text) == bool(words)
