"""Training by `sample_factory.run`, as scripts and notebooks call it."""

import contextlib
import gc
import json
import logging
import math
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

import sample_factory
from sample_factory import ConfigError, TrainingFailed, register_env
from sample_factory.runtime.log import current_settings

TINY = {
    "num_workers": 1,
    "num_envs_per_worker": 4,
    "rollout": 16,
    "batch_size": 128,
    "device": "cpu",
    "encoder_mlp_layers": (16,),
    "rnn_size": 16,  # an alias
}
POLE = {"env": "gym_CartPole-v1", "experiment": "pole", **TINY}


def open_files() -> set[tuple[str, str]]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
    return found


def state_of_process():
    """Returns what a run must not change: open files, children, threads, log and signal handlers."""
    gc.collect()
    logger = logging.getLogger("sample_factory")
    return {
        "files": open_files(),
        "children": {*psutil.Process().children(recursive=True)},
        "threads": {*threading.enumerate()},
        "log": (list(logger.handlers), logger.level, logger.propagate, current_settings()),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
    }


def assert_nothing_left(before, after):
    """Fails if something is new since `before`. What earlier tests have left may have ended meanwhile."""
    for name in ("files", "children", "threads"):
        assert not after[name] - before[name]
    assert (after["log"], after["signals"]) == (before["log"], before["signals"])


def no_level(full_env_name):
    raise LookupError("level 7 is missing")


def test_runs_in_one_process_resume_each_other_after_failures_and_in_threads_and_leave_nothing(tmp_path):
    """No run may keep the folder locked, or anything else that the next one needs."""

    def run(frames, **flags):
        return sample_factory.run(**POLE, train_dir=tmp_path, train_for_env_steps=frames, **flags)

    first = run(500, serial_mode=True)  # in this process: the libraries that it loads open files
    assert (first.status, first.reason, first.experiment_dir) == ("done", "", tmp_path / "pole")
    before = state_of_process()
    with pytest.raises(ConfigError):
        run(1000, worker_num_splits=3)
    register_env("missing_", no_level)
    with pytest.raises(TrainingFailed, match="level 7 is missing") as failed:
        sample_factory.run(**{**POLE, "env": "missing_level", "experiment": "other"}, train_dir=tmp_path)
    assert failed.value.result.status == "failed" and failed.value.result.env_frames == 0
    assert not (tmp_path / "other").exists()
    second = run(1000, serial_mode=False)
    assert second.env_frames >= 1000 > first.env_frames >= 500
    assert second.fps > 0 and second.seconds > 0
    [policy] = second.policies
    assert policy.num_episodes > 0 and policy.reward == policy.length == second.reward > 5
    with ThreadPoolExecutor(1) as thread:
        third = thread.submit(run, 1500, serial_mode=True).result()
    again = run(1500, serial_mode=True)
    assert again.status == "done" and again.env_frames == third.env_frames and math.isnan(again.reward)
    assert "train_for_env_steps=1500 is reached" in again.reason
    assert_nothing_left(before, state_of_process())


class Interrupting:
    """Interrupts the process that trains, as a notebook does, when its serial run asks for an env."""

    def __init__(self):
        self.num_calls = 0

    def __call__(self, full_env_name):
        import gymnasium as gym

        class Pole(gym.Wrapper):
            def step(env, action):
                self.num_calls += 1
                if self.num_calls == 1000:
                    os.kill(os.getpid(), signal.SIGINT)
                return super().step(action)

        return Pole(gym.make("CartPole-v1"))


def test_an_interrupt_saves_and_stops_and_the_result_says_so(tmp_path):
    register_env("interrupting", Interrupting())
    flags = {**POLE, "env": "interrupting", "train_dir": tmp_path, "serial_mode": True}
    result = sample_factory.run(**flags)
    assert (result.status, result.reason) == ("stopped", "SIGINT received")
    assert result.env_frames > 0 and list((tmp_path / "pole" / "checkpoint_p0").glob("*.pth"))


def test_a_run_that_has_learned_nothing_in_its_time_has_failed_and_its_result_says_so(tmp_path):
    flags = {**POLE, "train_dir": tmp_path, "serial_mode": True, "train_for_seconds": 1}
    with pytest.raises(TrainingFailed, match="^nothing was learned within --train_for_seconds=1: ") as failed:
        sample_factory.run(**{**flags, "batch_size": 2**20})
    written = json.loads((tmp_path / "pole" / "result.json").read_text())
    assert (written["status"], written["reason"]) == ("failed", failed.value.result.reason)


class PoleUntil:
    """Makes a pole, as long as there is no such file."""

    def __init__(self, file):
        self.file = file

    def __call__(self, full_env_name):
        import gymnasium as gym

        return no_level(full_env_name) if self.file.exists() else gym.make("CartPole-v1")


def test_a_resumed_run_that_fails_before_it_trains_has_the_frames_of_the_experiment(tmp_path):
    register_env("until_", PoleUntil(tmp_path / "broken"))
    flags = {**POLE, "env": "until_broken", "train_dir": tmp_path, "serial_mode": True}
    done = sample_factory.run(**{**flags, "train_for_env_steps": 1000})
    (tmp_path / "broken").touch()
    with pytest.raises(TrainingFailed, match="level 7 is missing") as failed:
        sample_factory.run(**{**flags, "train_for_env_steps": 100_000})
    assert failed.value.result.env_frames == done.env_frames >= 1000
    written = json.loads((done.experiment_dir / "result.json").read_text())
    assert (written["status"], written["env_frames"]) == ("failed", done.env_frames)
