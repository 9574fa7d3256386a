"""Whole runs of the train command on a GPU."""

from importlib.util import find_spec

import pytest

from tests.gpu.devices import NEEDS_GPU
from tests.system.running import SMALL, kill_started, newest_state, run, scalars

pytestmark = NEEDS_GPU

CARTPOLE = ["--env=gym_CartPole-v1", "--experiment=a", *SMALL]
# Both in one process; 128 agents, since each step waits for the device.
FAST = [
    *("--env=gym_CartPole-v1", "--experiment=a", "--serial_mode=True", "--seed=3", "--num_workers=1"),
    *("--num_envs_per_worker=2", "--vector_env_copies=64", "--rollout=32", "--batch_size=2048"),
    *("--encoder_mlp_layers", "32", "--hidden_size=32", "--use_rnn=False", "--learning_rate=0.005"),
    *("--gamma=0.98", "--ppo_epochs=4"),
]


@pytest.fixture(autouse=True)
def no_run_outlives_its_test():
    yield
    kill_started()


def train(train_dir, *flags):
    """Returns the output of a run and its newest checkpoint; fails unless it ends well."""
    done = run("train", train_dir, *flags)
    assert done.returncode == 0, done.stdout
    assert "no CUDA graphs" not in done.stdout and "graphs are switched off" not in done.stdout
    return done.stdout, newest_state(train_dir / "a")


@pytest.mark.parametrize(
    "flags",
    [
        ["--device=cuda", "--precision=fp32", "--policy_workers_per_policy=2"],
        ["--device=gpu", "--precision=bf16", "--inline_samplers=1"],
    ],
)
def test_a_run_acts_by_cuda_graphs(tmp_path, flags):
    output, state = train(tmp_path, *CARTPOLE, "--train_for_env_steps=3000", "--use_rnn=True", *flags)
    assert state["env_steps"] >= 3000
    assert "answers requests on cuda:0 by CUDA graphs" in output


def test_a_run_with_processes_resumes_on_the_other_device_and_in_one_process(tmp_path):
    output, first = train(tmp_path, *CARTPOLE, "--device=gpu", "--train_for_env_steps=2000")
    assert "learns on cuda:0 in fp32" in output
    output, second = train(tmp_path, *CARTPOLE, "--device=cpu", "--train_for_env_steps=4000")
    assert f"{first['train_step']} SGD steps, {first['env_steps']} env frames" in output
    serial = ["--serial_mode=True", "--device=gpu", "--train_for_env_steps=6000"]
    output, third = train(tmp_path, *CARTPOLE, *serial)
    assert f"{second['train_step']} SGD steps, {second['env_steps']} env frames" in output
    assert "learns on cuda:0 in fp32" in output and third["env_steps"] >= 6000
    assert first["train_step"] < second["train_step"] < third["train_step"]


def test_cartpole_is_learned(tmp_path):
    train(tmp_path, *FAST, "--device=gpu", "--train_for_env_steps=100_000")
    rewards = [value for _, value in scalars(tmp_path / "a")["0_aux/avg_reward"]]
    assert rewards[-1] > 100, "random actions get 22"


@pytest.mark.skipif(find_spec("vizdoom") is None, reason="needs vizdoom")
def test_doom_is_trained_on_with_images(tmp_path):
    flags = ["--env=doom_basic", "--experiment=a", "--num_workers=2", "--num_envs_per_worker=4"]
    flags += ["--inline_samplers=0", "--rollout=16", "--batch_size=128", "--hidden_size=64"]
    output, state = train(tmp_path, *flags, "--device=gpu", "--train_for_env_steps=4000")
    assert "learns on cuda:0 in " in output
    assert state["env_steps"] >= 4000 and state["skipped_steps"] == 0


@pytest.mark.skipif(find_spec("envpool") is None, reason="needs the extra envpool")
def test_envpool_steps_on_the_cpu_while_the_device_infers_and_learns(tmp_path):
    pong = ["--env=envpool_Pong-v5", "--experiment=a", "--num_workers=1", "--num_envs_per_worker=2"]
    pong += ["--vector_env_copies=8", "--rollout=8", "--batch_size=128", "--ppo_epochs=1"]
    _, state = train(tmp_path, *pong, "--device=gpu", "--train_for_env_steps=1000")
    assert state["env_steps"] >= 1000 and state["skipped_steps"] == 0


def test_two_learners_of_a_policy_share_the_gpus_of_this_machine(tmp_path):
    flags = ["--learners_per_policy=2", "--device=gpu", "--train_for_env_steps=3000"]
    _, state = train(tmp_path, *CARTPOLE, *flags)
    assert state["env_steps"] >= 3000 and state["train_step"] > 0
