"""Runs one after another in one Python process, as in a notebook."""

import threading

from sample_factory import register_env
from sample_factory.train import main
from tests.system.running import SMALL, newest_state

FLAGS = ["--env=gym_CartPole-v1", "--experiment=a", *SMALL]


def make_env(full_env_name, cfg, env_config):
    raise LookupError("level 7 is missing")


def test_a_run_follows_another_a_refusal_a_failure_and_a_run_in_a_thread(tmp_path, capfd):
    """No run may keep the folder locked, or anything else that the next one needs."""

    def run(*flags):
        return main([*FLAGS, f"--train_dir={tmp_path}", *flags])

    def frames():
        return newest_state(tmp_path / "a")["env_steps"]

    assert run("--serial_mode=True", "--train_for_env_steps=500") == 0
    assert run("--env=gym_Cart-v1") == run("--batch_size=7") == 2
    register_env("missing_", make_env)
    assert run("--env=missing_level", "--experiment=b") == 1
    [line] = [line for line in capfd.readouterr().err.splitlines() if "ERROR" in line]
    assert "missing_level" in line and "LookupError: level 7 is missing (test_runs_in_one_process.py:" in line
    assert not (tmp_path / "b").exists()
    assert run("--serial_mode=False", "--train_for_env_steps=1500") == 0
    after_processes = frames()
    assert after_processes >= 1500
    codes = []
    flags = ["--serial_mode=True", "--train_for_env_steps=5000"]
    thread = threading.Thread(target=lambda: codes.append(run(*flags)))
    thread.start()
    thread.join()
    assert codes == [0] and frames() > after_processes
