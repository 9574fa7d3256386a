import pytest

from sample_factory.benchmarking.advice import Situation, advice

SITUATION = Situation(2, 16, 1, 0, 2048, 1, "auto", (128, 72), on_gpu=False, cores=8, busy_cores=4.0)


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
    text = "\n".join(advice(limiting, SITUATION._replace(**changes)))
    assert all(word in text for word in words), text
    assert not [word for word in not_words if word in text], text
