"""Runs that resume from damaged checkpoints, on a full disk, or in a folder that another run uses."""

import os
import re
import signal
import subprocess

import psutil
import pytest
import torch

from tests.mounts import mount_tmpfs
from tests.system.running import (
    FOREVER,
    SMALL,
    adopting_orphans,
    assert_all_gone,
    checkpoints,
    child,
    descendants,
    kill,
    run,
    start,
    stop,
    wait_for_frames,
    wait_for_line,
)

FLAGS = ["--env=gym_CartPole-v1", "--experiment=a", *SMALL, "--num_workers=1"]
SERIAL = "--serial_mode=True"  # where it is not about processes: their start takes most of the time


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with an experiment of four checkpoints, made of the one that a run has left."""
    folder = tmp_path_factory.mktemp("trained")
    done = run("train", folder, *FLAGS, SERIAL, "--train_for_env_steps=1000")
    assert done.returncode == 0, done.stdout
    (newest,) = checkpoints(folder / "a")
    state = torch.load(newest, weights_only=True)
    for version in (1, 2, 3):
        earlier = {**state, "train_step": version, "env_steps": 100 * version}
        torch.save(earlier, newest.with_name(f"checkpoint_{version:09d}_{100 * version}.pth"))
    return folder


@pytest.fixture
def experiment(trained, tmp_path):
    """A copy of that experiment."""
    subprocess.run(["cp", "-r", f"{trained}/a", str(tmp_path)], check=True)
    return tmp_path / "a"


def steps(path):
    return torch.load(path, weights_only=True)["train_step"]


def flip_a_bit_of_a_weight(path):
    data, weights = bytearray(path.read_bytes()), torch.load(path, weights_only=True)["model"]
    largest = max(weights.values(), key=lambda tensor: tensor.nbytes)
    data[data.index(largest.numpy().tobytes()) + largest.nbytes // 2] ^= 0x01
    path.write_bytes(data)


def put_an_attack(path):
    class Attack:
        def __reduce__(self):
            return os.mkdir, (str(path.parent / "pwned"),)

    torch.save({"train_step": Attack()}, path)


def test_where_the_newest_is_gone_and_others_are_damaged_the_newest_whole_one_is_resumed(experiment):
    first, second, newest, deleted = checkpoints(experiment)
    deleted.unlink()
    flip_a_bit_of_a_weight(newest)
    second.write_bytes(second.read_bytes()[:-100])
    expected = steps(first)
    # Those that are damaged have reached the limit, by their names: 200 and 300 env frames.
    done = run("train", experiment.parent, *FLAGS, SERIAL, "--train_for_env_steps=150")
    assert done.returncode == 0, done.stdout
    assert f"{newest}: the file is damaged" in done.stdout and "checksum" in done.stdout
    assert f"{second}: the file is empty, cut off" in done.stdout
    assert f"resumes at {expected} SGD steps" in done.stdout
    assert steps(checkpoints(experiment)[-1]) > expected
    assert {newest.name, second.name} <= {path.name for path in newest.parent.glob("superseded/*")}


def test_when_all_are_damaged_nothing_starts_from_scratch_and_the_message_says_what_to_do(experiment):
    *_, newest = checkpoints(experiment)
    newest.unlink()
    first, second, third = checkpoints(experiment)
    put_an_attack(first)
    second.write_bytes(b"")
    flip_a_bit_of_a_weight(third)
    before = {path: path.read_bytes() for path in checkpoints(experiment)}
    done = run("train", experiment.parent, *FLAGS, FOREVER)
    assert done.returncode == 1
    assert "none of the 3 checkpoints" in done.stdout and "--restart_behavior=restart" in done.stdout
    assert all(path.name in done.stdout for path in before)
    assert {path: path.read_bytes() for path in checkpoints(experiment)} == before
    assert not (first.parent / "pwned").exists()


def test_flags_that_do_not_fit_are_refused_and_leave_the_experiment_unchanged(experiment):
    before = {path: path.read_bytes() for path in (*checkpoints(experiment), experiment / "cfg.json")}
    done = run("train", experiment.parent, *FLAGS, "--encoder_mlp_layers", "32", SERIAL, FOREVER)
    assert done.returncode == 1
    assert re.search(r"\S+weight is of shape \[16, 4\] there and of shape \[32, 4\] here", done.stdout)
    alternating = ["--async_rl=False", "--batch_size=144", "--restart_behavior=overwrite"]
    done = run("train", experiment.parent, *FLAGS, SERIAL, *alternating)
    assert done.returncode == 2 and "the nearest that works is" in done.stdout
    assert {path: path.read_bytes() for path in before} == before


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 1 MB."""
    folder = tmp_path / "disk"
    mount_tmpfs(folder, "size=1m")
    yield folder
    # Lazily: if the test has failed, its processes may still be there.
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk):
    with open(disk / "filler", "ab", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                return


def test_a_run_continues_while_the_disk_is_full_and_saves_once_there_is_room(small_disk):
    experiment, filler = small_disk / "a", small_disk / "filler"
    often = ["--save_every_sec=1", "--flush_summaries_interval=1"]
    process = start("calm_envs.py", small_disk, "--env=calm_pole", *FLAGS[1:], FOREVER, *often)
    wait_for_line(process, "Experiment folder")
    fill(small_disk)  # before cfg.json is written
    wait_for_line(process, "a/cfg.json: No space left on device. Training continues")
    wait_for_line(process, "COULD NOT SAVE")
    filler.unlink()
    wait_for_line(process, "Saved")
    fill(small_disk)
    first, second = (wait_for_line(process, "COULD NOT SAVE") for _ in range(2))
    assert re.search(r"No space left on device: it needs about \d+\.\d kB, \d+\.\d kB are free", first), first
    versions = [re.search(r"checkpoint_\d+", line)[0] for line in (first, second)]
    assert versions[0] < versions[1], "it continues to learn"
    assert checkpoints(experiment)
    filler.unlink()
    wait_for_line(process, "Saved")
    output = stop(process)
    assert "Traceback" not in output and "Logging error" not in output
    assert not list(experiment.glob("checkpoint_p0/.temp*"))
    events = list(experiment.glob(".summary/0/events*"))
    assert events and events[0].stat().st_size > 0, "what was pending has been written"
    assert steps(checkpoints(experiment)[-1]) > 0


def test_an_experiment_on_a_full_disk_is_refused_in_one_line(small_disk):
    fill(small_disk)
    done = run("train", small_disk, *FLAGS, FOREVER)
    assert done.returncode == 2
    assert done.stdout.startswith("error: ") and "No space left on device" in done.stdout
    assert done.stdout.count("\n") == 1


def assert_refused(folder, pid):
    done = run("train", folder, *FLAGS, FOREVER)
    assert done.returncode == 2, done.stdout
    assert done.stdout.count("\n") == 1 and done.stdout.startswith("error: process ")
    assert f"{pid} or one of its children is training in {folder / 'a'}; stop that run" in done.stdout


def test_a_folder_is_locked_until_the_learner_of_a_killed_run_has_saved_and_then_resumed(tmp_path):
    first = start("train", tmp_path, *FLAGS, FOREVER)
    wait_for_frames(first, 0)
    family = descendants(first)
    before = (tmp_path / "a" / "cfg.json").read_text()
    assert_refused(tmp_path, first.pid)
    assert (tmp_path / "a" / "cfg.json").read_text() == before
    assert first.poll() is None and set(descendants(first)) == set(family), "the first run is not disturbed"

    learner = child(family, "learner_0")
    with adopting_orphans():
        kill(learner, signal.SIGSTOP)  # as if saving took long
        kill(psutil.Process(first.pid))
        first.wait(timeout=10)
        assert_refused(tmp_path, first.pid)
        kill(learner, signal.SIGCONT)
        assert_all_gone(family)
    (saved,) = checkpoints(tmp_path / "a")
    state = torch.load(saved, weights_only=True)
    done = run("train", tmp_path, *FLAGS, SERIAL, f"--train_for_env_steps={state['env_steps'] + 1}")
    assert done.returncode == 0 and f"resumes at {state['train_step']} SGD steps" in done.stdout
