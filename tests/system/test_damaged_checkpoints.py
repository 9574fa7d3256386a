"""Real runs that resume from damaged checkpoints, on a full disk, or in a folder that is taken."""

import os
import re
import signal
import subprocess

import psutil
import pytest
import torch

from tests.mounts import mount_tmpfs
from tests.system.running import (
    SMALL,
    adopting_orphans,
    assert_all_gone,
    child,
    descendants,
    interrupt,
    kill,
    run,
    start,
    wait_for_frames,
    wait_for_line,
)

pytestmark = pytest.mark.timeout(120)

FLAGS = ["--env=gym_CartPole-v1", "--experiment=a", *SMALL, "--num_workers=1"]
FOREVER = "--train_for_env_steps=1000000000"


def checkpoints(folder):
    return sorted((folder / "a" / "checkpoint_p0").glob("checkpoint_*.pth"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """An experiment with four checkpoints, made of one that a run has left."""
    folder = tmp_path_factory.mktemp("trained")
    done = run("train", folder, *FLAGS, "--train_for_env_steps=2000")
    assert done.returncode == 0, done.stdout
    (newest,) = checkpoints(folder)
    state = torch.load(newest, weights_only=True)
    for version in (1, 2, 3):
        earlier = {**state, "train_step": version, "env_steps": 100 * version}
        torch.save(earlier, newest.with_name(f"checkpoint_{version:09d}_{100 * version}.pth"))
    return folder


@pytest.fixture
def experiment(trained, tmp_path):
    subprocess.run(["cp", "-r", f"{trained}/a", str(tmp_path)], check=True)
    return tmp_path


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


def test_where_the_newest_is_gone_and_others_are_damaged_the_newest_that_is_whole_is_resumed(experiment):
    first, second, newest, deleted = checkpoints(experiment)
    deleted.unlink()
    flip_a_bit_of_a_weight(newest)
    second.write_bytes(second.read_bytes()[:-100])
    expected = steps(first)
    done = run("train", experiment, *FLAGS, "--train_for_env_steps=1000")
    assert done.returncode == 0, done.stdout
    assert f"{newest}: the file is damaged" in done.stdout and "checksum" in done.stdout
    assert f"{second}: the file is empty, cut off" in done.stdout
    assert f"resumes at {expected} SGD steps" in done.stdout
    assert steps(checkpoints(experiment)[-1]) > expected
    assert {newest.name, second.name} <= {path.name for path in newest.parent.glob("superseded/*")}


@pytest.mark.parametrize("program", ["train", "enjoy"])
def test_when_all_are_damaged_nothing_starts_anew_and_the_message_says_what_to_do(experiment, program):
    *_, newest = checkpoints(experiment)
    newest.unlink()
    first, second, third = checkpoints(experiment)
    put_an_attack(first)
    second.write_bytes(b"")
    flip_a_bit_of_a_weight(third)
    before = {path: path.read_bytes() for path in checkpoints(experiment)}
    own = ["--no_render", "--max_num_episodes=1"] if program == "enjoy" else [FOREVER]
    done = run(program, experiment, *FLAGS, *own)
    assert done.returncode == 1
    assert "none of the 3 checkpoints" in done.stdout and "--restart_behavior=restart" in done.stdout
    assert all(path.name in done.stdout for path in before)
    assert {path: path.read_bytes() for path in checkpoints(experiment)} == before
    assert not (first.parent / "pwned").exists()


def test_checkpoints_of_another_model_name_what_differs_and_stay(experiment):
    before = checkpoints(experiment)
    done = run("train", experiment, *FLAGS, "--encoder_mlp_layers", "32", FOREVER)
    assert done.returncode == 1
    assert re.search(r"size mismatch for \S+weight:.*\[16, 4\].*\[32, 4\]", done.stdout)
    assert checkpoints(experiment) == before


@pytest.fixture
def small_disk(tmp_path):
    """A real one of 1 MB, and what fills it."""
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


def test_a_run_goes_on_while_the_disk_is_full_and_saves_once_there_is_room(small_disk):
    process = start(
        "train", small_disk, *FLAGS, FOREVER, "--save_every_sec=1", "--flush_summaries_interval=1"
    )
    wait_for_line(process, "Saved")
    fill(small_disk)
    first, second = (wait_for_line(process, "COULD NOT SAVE") for _ in range(2))
    assert re.search(r"No space left on device: it needs about \d+\.\d kB, \d\.\d kB are free", first), first
    versions = [re.search(r"checkpoint_\d+", line)[0] for line in (first, second)]
    assert versions[0] < versions[1], "it goes on learning"
    assert checkpoints(small_disk)
    (small_disk / "filler").unlink()
    wait_for_line(process, "Saved")
    interrupt(process)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0 and "Traceback" not in output
    assert "Logging error" not in output
    assert not list(small_disk.glob("a/checkpoint_p0/.temp*"))
    events = list(small_disk.glob("a/.summary/0/events*"))
    assert events and events[0].stat().st_size > 0, "what was pending has been written"
    assert steps(checkpoints(small_disk)[-1]) > 0


def test_a_disk_that_fills_up_before_cfg_json_is_written_does_not_end_the_run(small_disk):
    process = start("train", small_disk, *FLAGS, FOREVER, "--save_every_sec=1")
    wait_for_line(process, "Experiment folder")
    fill(small_disk)
    wait_for_line(process, "a/cfg.json: No space left on device. Training continues")
    wait_for_line(process, "COULD NOT SAVE")
    (small_disk / "filler").unlink()
    wait_for_line(process, "Saved")
    interrupt(process)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0 and "Traceback" not in output, output


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
    assert first.poll() is None and set(descendants(first)) == set(family), "it goes on as if nothing was"

    learner = child(family, "learner_0")
    with adopting_orphans():
        kill(learner, signal.SIGSTOP)  # as if saving took long
        kill(psutil.Process(first.pid))
        first.wait(timeout=10)
        assert_refused(tmp_path, first.pid)
        kill(learner, signal.SIGCONT)
        assert_all_gone(family)
    (saved,) = checkpoints(tmp_path)
    frames = torch.load(saved, weights_only=True)["env_steps"]
    done = run("train", tmp_path, *FLAGS, f"--train_for_env_steps={frames + 1}")
    assert done.returncode == 0 and f"resumes at {steps(saved)} SGD steps" in done.stdout
