"""Whole runs with an env whose agents have different spaces: each kind has policies of its own."""

import pytest

from sample_factory.envs.env_registry import register_env
from tests.system.hunters import EPISODE_STEPS, Hunters
from tests.system.running import SMALL, newest_state, run, scalars, train

PARALLEL = "pettingzoo_tests.system.hunters:make_parallel"
FLAGS = [*SMALL, "--num_policies=2", "--seed=1", "--use_rnn=False", "--experiment=hunt"]
FLAGS += ["--ppo_epochs=1", "--adaptive_stddev=True"]


def hunt(train_dir, *flags, env="hunters_x"):
    register_env("hunters_", lambda *args, **kwargs: Hunters())
    train(train_dir, f"--env={env}", "--serial_mode=True", *FLAGS, *flags)


def checkpoint(train_dir, policy):
    return newest_state(train_dir / "hunt", policy)


def rewards(train_dir, policy):
    return [value for _, value in scalars(train_dir / "hunt", policy)["0_aux/avg_reward"]]


LEARN = ["--learning_rate=0.01", "--gamma=0", "--encoder_type=mlp", "--train_for_env_steps=4000"]


@pytest.mark.parametrize("env", ["hunters_x", PARALLEL])
def test_every_kind_learns_its_own_task(tmp_path, env):
    hunt(tmp_path, *LEARN, env=env)
    for policy, (in_size, num_logits) in enumerate([(36, 4), (2, 4)]):
        state = checkpoint(tmp_path, policy)
        weights = state["model"]
        assert weights["towers.0.encoder.encoders.0.layers.0.weight"].shape[1] == in_size
        assert weights["action_head.linear.weight"].shape[0] == num_logits
        assert state["env_steps"] >= 4000
        if env != PARALLEL or policy == 1:
            assert state["samples"] == 128 * state["train_step"], "a batch has no step of another kind"
    right, steering = max(rewards(tmp_path, 0)), max(rewards(tmp_path, 1))
    length = EPISODE_STEPS if env != PARALLEL else EPISODE_STEPS * 3 / 4  # one of two spotters leaves early
    assert right > 0.7 * length, "at random: 0.25"
    assert steering > 0.45 * EPISODE_STEPS, "at random: 0.3"


def test_kinds_of_agents_in_processes(tmp_path):
    flags = [f"--env={PARALLEL}", *FLAGS, "--train_for_env_steps=500", "--encoder_type=mlp"]
    done = run("train", tmp_path, *flags, "--normalize_input_keys", "obs")
    assert done.returncode == 0, done.stdout
    normalized = [
        "observation_normalizers.normalizers.0.mean" in checkpoint(tmp_path, p)["model"] for p in (0, 1)
    ]
    assert normalized == [False, True], "only the driver has the observation obs"
    assert min(checkpoint(tmp_path, policy)["env_steps"] for policy in (0, 1)) >= 500
