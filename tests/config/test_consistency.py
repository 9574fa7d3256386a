import re

import pytest

from sample_factory.config.consistency import check_training
from sample_factory.config.flags import ConfigError
from tests.counting import make_config

# Flags that contradict each other, and the flags that the message names.
REFUSED = [
    ({"recurrence": 5}, "recurrence rollout"),
    ({"batch_size": 17}, "batch_size rollout"),
    ({"use_cpc": True, "cpc_forward_steps": 33}, "cpc_forward_steps rollout"),
    ({"num_envs_per_worker": 3, "worker_num_splits": 2}, "num_envs_per_worker worker_num_splits"),
    ({"sampler_only": True, "async_rl": False}, "sampler_only async_rl"),
    ({"max_policy_lag": 16, "forced_policy_lag": 16}, "forced_policy_lag max_policy_lag"),
    ({"rnn_type": "gtrxl", "use_rnn": True, "gtrxl_heads": 3}, "gtrxl_heads hidden_size"),
    ({"critic_only_keys": "place", "actor_critic_custom": "a:B"}, "critic_only_keys actor_critic_custom"),
    (
        {"critic_only_keys": "place", "actor_critic_share_weights": True},
        "critic_only_keys actor_critic_share_weights",
    ),
    ({"centralized_critic": True, "actor_critic_custom": "a:B"}, "centralized_critic actor_critic_custom"),
    (
        {"centralized_critic": True, "actor_critic_share_weights": True},
        "centralized_critic actor_critic_share_weights",
    ),
    ({"actor_critic_custom": "a:B", "use_cpc": True}, "actor_critic_custom use_cpc"),
    ({"actor_critic_custom": "a:B", "compile": True}, "actor_critic_custom compile"),
    ({"lr_schedule": "kl_adaptive_epoch", "async_rl": False}, "lr_schedule async_rl"),
    ({"lr_adaptive_min": 0.5, "lr_adaptive_max": 0.1}, "lr_adaptive_min lr_adaptive_max"),
    ({"with_pbt": True}, "with_pbt num_policies"),
    (
        {"with_pbt": True, "num_policies": 2, "pbt_perturb_min": 3.0, "pbt_perturb_max": 2.0},
        "pbt_perturb_min pbt_perturb_max",
    ),
    ({"save_best_metric": "eval_reward"}, "save_best_metric eval_every_env_steps"),
]
REFUSED_IN_A_TRAINING = [
    ({"inline_samplers": 2}, "inline_samplers num_workers"),
    ({"async_rl": False, "num_policies": 2}, "async_rl num_policies"),
    ({"learners_per_policy": 2, "batch_size": 24}, "learners_per_policy batch_size rollout"),
    ({"learners_per_policy": 2, "serial_mode": True}, "learners_per_policy serial_mode"),
    ({"learners_per_policy": 2, "sampler_only": True}, "learners_per_policy sampler_only"),
    ({"learners_per_policy": 2, "use_cpc": True}, "learners_per_policy use_cpc"),
    (
        {"learners_per_policy": 2, "num_policies": 2, "with_pbt": True, "pbt_optimize_batch_size": True},
        "learners_per_policy pbt_optimize_batch_size",
    ),
    ({"num_nodes": 3, "serial_mode": True}, "num_nodes serial_mode"),
    ({"num_nodes": 3, "async_rl": False}, "num_nodes async_rl"),
    ({"num_nodes": 3, "selfplay_past_share": 0.5}, "num_nodes selfplay_past_share"),
    ({"num_nodes": 3, "worker_num_splits": 2}, "num_nodes node_envs_per_worker worker_num_splits"),
]


def named(error):
    return set(re.findall(r"--(\w+)", str(error.value)))


@pytest.mark.parametrize(("flags", "names"), REFUSED)
def test_flags_that_contradict_each_other_are_refused_in_one_line_that_names_them(flags, names):
    with pytest.raises(ConfigError) as error:
        make_config(**flags)
    assert named(error) >= {*names.split()} and "\n" not in str(error.value)


@pytest.mark.parametrize(("flags", "names"), REFUSED_IN_A_TRAINING)
def test_what_no_training_can_do_is_refused_there_and_left_to_other_commands(flags, names):
    config = make_config(**{"num_envs_per_worker": 2, "node_envs_per_worker": 1, **flags})
    with pytest.raises(ConfigError) as error:
        check_training(config)
    assert named(error) >= {*names.split()} and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"learners_per_policy": 2},
        {"num_nodes": 2, "worker_num_splits": 2, "num_envs_per_worker": 2, "node_envs_per_worker": 4},
        {"num_policies": 2, "with_pbt": True, "pbt_optimize_batch_size": True},
    ],
)
def test_a_training_with_flags_that_fit_is_not_refused(flags):
    check_training(make_config(**flags))
