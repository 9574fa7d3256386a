import logging

import gymnasium as gym
import pytest

from sample_factory import register_env
from sample_factory.runtime.log import log
from sample_factory.sampling.rollout.env_setup import log_random_steps
from sample_factory.train import main


@pytest.mark.parametrize(
    ("num_taken", "num_wanted", "is_logged"), [(422, 424, False), (40, 424, True), (0, 0, False)]
)
def test_envs_count_as_slow_when_less_than_half_of_their_random_steps_were_taken(
    num_taken, num_wanted, is_logged, caplog, monkeypatch
):
    monkeypatch.setattr(log, "propagate", True)
    with caplog.at_level(logging.INFO, "sample_factory"):
        log_random_steps(num_taken, num_wanted, 10.0)
    assert bool(caplog.messages) == is_logged


class Emulator(gym.Wrapper):
    """A process can have one at a time, as with stable-retro."""

    num_open = 0

    def __init__(self):
        if Emulator.num_open:
            raise RuntimeError("cannot create multiple emulator instances")
        Emulator.num_open += 1
        super().__init__(gym.make("CartPole-v1"))

    def close(self):
        Emulator.num_open -= 1
        super().close()


def test_where_a_process_can_have_one_env_only_the_error_names_the_flags_with_which_it_has_one(
    tmp_path, capsys
):
    register_env("emulator_", lambda full_env_name, cfg: Emulator())
    flags = ["--env=emulator_a", "--serial_mode=True", "--num_workers=1", "--rollout=8", "--recurrence=8"]
    flags += ["--batch_size=64", "--device=cpu", "--train_for_env_steps=64", f"--train_dir={tmp_path}"]
    assert main([*flags, "--num_envs_per_worker=2"]) == 1
    error = capsys.readouterr().err
    one = "--num_envs_per_worker=1 --worker_num_splits=1"
    assert "multiple emulator instances (test_env_setup.py" in error and one in error
    Emulator.num_open = 0
    assert main([*flags, *one.split()]) == 0
