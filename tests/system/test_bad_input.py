"""Bad input to the real commands: one error of one line on stderr, exit code 2, nothing written."""

import subprocess

import pytest

from sample_factory.runtime.gpu import why_no_gpu
from tests.mounts import mount_tmpfs
from tests.system.running import SMALL, command, environment

ENV = "--env=gym_CartPole-v1"


def run(module, train_dir, *flags, cwd):
    """Runs a command; stdout and stderr of the result are separate."""
    return subprocess.run(
        command(module, train_dir, *flags),
        env=environment(),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
    )


def assert_refused(done, message):
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.endswith(" ...")]  # "Checking ENV ..."
    assert len(lines) == 1 and lines[0].startswith("error: "), done.stderr
    assert message in lines[0] and done.stdout == ""


@pytest.mark.parametrize(
    ("module", "flags", "message"),
    [
        ("train", [ENV, "--experiment=../a"], "plain folder name"),
        (
            "train",
            [ENV, "--experiment=a", "--normalize_input_keys", "pixels"],
            "no observation pixels; it has obs",
        ),
        ("train", [ENV, "--experiment=a", "--encoder_custom=none:Encoder"], "No module named 'none'"),
        ("train", [ENV, "--experiment=a", "--encoder_custom=json:Encoder"], "json has no attribute Encoder"),
        (
            "train",
            [ENV, "--experiment=a", "--vector_env_copies=2", "--env_frameskip=3"],
            "--env_frameskip=3",
        ),
        (
            "run_algorithm",
            [ENV, "--algo=PPO", "--experiment=a"],
            "--algo=PPO is unknown; did you mean APPO? known: APPO",
        ),
        ("train", [ENV, "--algo=json:VTrace"], "--algo=json:VTrace: json has no attribute VTrace"),
        ("enjoy", [ENV, "--experiment=none"], "no experiment at"),
        ("match", [ENV, "--experiment=none"], "no experiment at"),
        ("dummy_sampler", [ENV, "--timeout_seconds=0"], "at least 1"),
        ("benchmark", [ENV, "--seconds=nan"], "must be a number"),
    ],
)
def test_a_command_refuses_in_one_line_and_writes_nothing(tmp_path, module, flags, message):
    assert_refused(run(module, tmp_path / "new", *flags, cwd=tmp_path), message)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("place", "reason"),
    [("file", "Not a directory"), ("file/below", "Not a directory"), ("/proc/none", "No such file")],
    ids=["a file", "below a file", "a file system that takes no folders"],
)
def test_a_train_dir_that_cannot_be_written_to_is_refused(tmp_path, place, reason):
    (tmp_path / "file").write_text("mine")
    done = run("train", tmp_path / place, ENV, "--experiment=a", *SMALL, cwd=tmp_path)
    assert_refused(done, f"{reason}")
    assert f"{tmp_path / place}/a" in done.stderr
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_a_read_only_train_dir_is_refused(tmp_path):
    """A file system that is mounted so refuses root, too."""
    folder = tmp_path / "disk"
    mount_tmpfs(folder, "ro")
    try:
        done = run("train", folder, ENV, "--experiment=a", *SMALL, cwd=tmp_path)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert_refused(done, "Read-only file system")


@pytest.mark.skipif(why_no_gpu() is None, reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(tmp_path):
    done = run("train", tmp_path / "new", ENV, "--experiment=a", "--device=gpu", cwd=tmp_path)
    assert_refused(done, "--device=gpu, but ")
    assert "Use --device=cpu or auto" in done.stderr
    assert not list(tmp_path.iterdir())
