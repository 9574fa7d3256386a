"""Bad input to the real commands: one error of one line on stderr, exit code 2, nothing written."""

import runpy
import subprocess
import sys
import warnings

import pytest

from sample_factory.runtime.gpu import why_no_gpu
from tests.mounts import mount_tmpfs
from tests.system.running import SMALL

ENV = "--env=gym_CartPole-v1"


@pytest.fixture
def refused(tmp_path, monkeypatch, capfd):
    """Returns refused(module, train_dir, *flags), which runs a command in this process, as `python -m` does,
    and returns the line with which it refuses."""

    def run(module, train_dir, *flags):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [module, f"--train_dir={train_dir}", *flags])
        with pytest.raises(SystemExit) as ended, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the module may be imported already
            runpy.run_module(f"sample_factory.{module}", run_name="__main__")
        shown = capfd.readouterr()
        assert ended.value.code == 2, shown.err
        lines = [line for line in shown.err.splitlines() if not line.endswith(" ...")]  # "Checking ENV ..."
        assert len(lines) == 1 and lines[0].startswith("error: ") and shown.out == "", shown
        return lines[0]

    return run


@pytest.mark.parametrize(
    ("module", "flags", "message"),
    [
        ("train", [ENV, "--experiment=../a"], "plain folder name"),
        ("train", [ENV, "--experiment=a", *SMALL, "--inline_samplers=3"], "--num_workers=2"),
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
        ("enjoy", [ENV, "--experiment=none"], "no experiment at"),
        ("match", [ENV, "--experiment=none"], "no experiment at"),
        ("dummy_sampler", [ENV, "--timeout_seconds=0"], "at least 1"),
        ("benchmark", [ENV, "--seconds=nan"], "must be a number"),
    ],
)
def test_a_command_refuses_in_one_line_and_writes_nothing(refused, tmp_path, module, flags, message):
    assert message in refused(module, tmp_path / "new", *flags)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("place", "reason"),
    [("file", "Not a directory"), ("file/below", "Not a directory"), ("/proc/none", "No such file")],
    ids=["a file", "below a file", "a file system that takes no folders"],
)
def test_a_train_dir_that_cannot_be_written_to_is_refused(refused, tmp_path, place, reason):
    (tmp_path / "file").write_text("mine")
    line = refused("train", tmp_path / place, ENV, "--experiment=a", *SMALL)
    assert reason in line and f"{tmp_path / place}/a" in line
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_a_read_only_train_dir_is_refused(refused, tmp_path):
    """A file system that is mounted so refuses root, too."""
    folder = tmp_path / "disk"
    mount_tmpfs(folder, "ro")
    try:
        assert "Read-only file system" in refused("train", folder, ENV, "--experiment=a", *SMALL)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(why_no_gpu() is None, reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(refused, tmp_path):
    line = refused("train", tmp_path / "new", ENV, "--experiment=a", "--device=gpu")
    assert "--device=gpu, but " in line and "Use --device=cpu or auto" in line
    assert not list(tmp_path.iterdir())
