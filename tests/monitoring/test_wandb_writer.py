import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
import wandb

from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.config.trust import WANDB_RUN_ID
from sample_factory.envs.env_registry import resolve_family
from sample_factory.monitoring import wandb_writer
from sample_factory.monitoring.wandb_writer import start_wandb
from tests.monitoring.wandb_service import history, own_home, read_records, server

__all__ = ["own_home", "server"]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def config(tmp_path):
    def make(*flags):
        argv = ["--env=gym_CartPole-v1", f"--train_dir={tmp_path}", "--experiment=a:b", *flags]
        return parse_config(["--with_wandb=True", f"--wandb_dir={tmp_path}/own", *argv], resolve_family)

    return make


def service_processes():
    return [child for child in psutil.Process().children() if child.name().startswith("wandb-core")]


@pytest.fixture
def texts(logged, caplog):
    """Returns the lines of this package, without those of wandb."""
    return lambda: [record.message for record in caplog.records if record.name == "sample_factory"]


def hooks():
    signals = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    return [sys.exit, sys.excepthook, sys.stdout, sys.stderr, *signals]


def test_without_the_flag_nothing_is_started(config):
    unused = config("--with_wandb=False")
    assert start_wandb(unused) == (unused, None)
    assert service_processes() == []


def test_an_offline_run_has_all_values_the_flags_and_one_id_and_leaves_nothing_behind(
    own_home, config, tmp_path, monkeypatch, texts
):
    monkeypatch.setenv("WANDB_MODE", "offline")
    before = hooks()
    flags = config("--wandb_tags", "x", "y", "--wandb_group=g")
    started, writer = start_wandb(flags)
    assert len(service_processes()) == 1
    writer.write(0, {"train/loss": 0.5, "mine": 2.0}, 100)
    writer.write(0, {"train/loss": 0.25}, 200)
    writer.close(has_failed=False)
    assert hooks() == before and service_processes() == []
    (file,) = (tmp_path / "own" / "wandb").glob("offline-run-*/*.wandb")
    assert len(texts()) == 1 and f"wandb sync {file.parent}" in texts()[0]
    assert history(file) == [
        {"train/loss": 0.5, "mine": 2.0, "env_frames": 100},
        {"train/loss": 0.25, "env_frames": 200},
    ]
    (run,) = [record.run for record in read_records(file) if record.HasField("run")]
    assert (run.project, run.run_group, run.job_type, list(run.tags)) == (
        "sample_factory",
        "g",
        "SF",
        ["x", "y"],
    )
    assert (
        run.run_id == started.unknown[WANDB_RUN_ID]
        and run.run_id.startswith("a_b_")
        and run.display_name == "a:b"
    )
    assert {"env": '"gym_CartPole-v1"', "gamma": "0.99"}.items() <= {
        item.key: item.value_json for item in run.config.update
    }.items()


def test_an_online_run_that_loses_its_server_continues_and_ends_in_time(server, config, texts, monkeypatch):
    monkeypatch.setenv("WANDB_FINISH_TIMEOUT", "0.5")
    _, writer = start_wandb(config("--num_policies=2"))
    assert server.runs[0]["groupName"] == "gym_CartPole-v1"
    server.shutdown()
    server.server_close()
    writer.write(0, {"train/loss": 0.5}, 100)
    writer.close(has_failed=False)
    assert service_processes() == []
    online, uploading, failed = texts()
    assert online == f"W&B: {server.url}/me/sample_factory/runs/r" and uploading.startswith("Uploading")
    assert "TimeoutError" in failed and "wandb sync /" in failed


def test_a_service_that_dies_is_logged_once_and_training_continues(own_home, config, monkeypatch, texts):
    monkeypatch.setenv("WANDB_MODE", "offline")
    _, writer = start_wandb(config())
    for process in service_processes():
        process.kill()
        process.wait()
    for frames in range(100):
        writer.write(0, {"train/loss": 0.5}, frames)
    writer.close(has_failed=False)
    assert len([text for text in texts() if "Training continues" in text]) == 1


def test_a_run_of_which_a_record_is_refused_is_finished_all_the_same(
    own_home, config, tmp_path, monkeypatch, texts
):
    def refuse(*_):
        raise wandb.Error("no room")

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(wandb.Run, "log", refuse)
    _, writer = start_wandb(config())
    for frames in range(3):
        writer.write(0, {"train/loss": 0.5}, frames)
    writer.close(has_failed=True)
    assert [text for text in texts() if "no room" in text] == texts()[1:]
    (file,) = (tmp_path / "own" / "wandb").glob("offline-run-*/*.wandb")
    assert [record.exit.exit_code for record in read_records(file) if record.HasField("exit")] == [1]


def test_a_service_that_hangs_delays_no_write_and_close_ends_in_time(own_home, config, monkeypatch, texts):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_FINISH_TIMEOUT", "0.5")
    monkeypatch.setattr(wandb_writer, "MAX_PENDING", 100)
    monkeypatch.setattr(wandb_writer, "GRACE_SECONDS", 0.5)
    _, writer = start_wandb(config())
    (service,) = service_processes()

    def train():
        for frames in range(1000):  # more than the buffers of the socket and the queue can take
            writer.write(0, {f"train/{i}": 0.5 for i in range(100)}, frames)
        writer.close(has_failed=False)

    run = threading.Thread(target=train, daemon=True)
    service.suspend()
    try:
        run.start()
        run.join(30)
        assert not run.is_alive()
        assert service_processes() == []
    finally:
        if service.is_running():
            service.kill()
    _, dropped, not_finished = texts()
    assert "Training continues" in dropped and "wandb sync /" in not_finished


def test_a_run_of_other_code_in_the_same_process_is_not_disturbed(own_home, config, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    own = wandb.init(project="own", dir=tmp_path, settings=wandb.Settings(silent=True, console="off"))
    try:
        _, writer = start_wandb(config())
        writer.write(0, {"train/loss": 0.5}, 100)
        writer.close(has_failed=False)
        assert wandb.run is own
        own.log({"mine": 1.0})
        own.finish()
    finally:
        wandb.teardown()
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert history(file) == [{"mine": 1.0}]


@pytest.mark.parametrize(
    "environment, words",
    [
        ({}, "Use `wandb login` to log in"),
        ({"WANDB_API_KEY": "a" * 40, "WANDB_INIT_TIMEOUT": "1"}, "connection refused"),
    ],
)
def test_without_a_key_or_a_network_one_line_says_what_to_do(
    own_home, config, monkeypatch, environment, words
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as raised:
        start_wandb(config())
    text = str(raised.value)
    assert text.startswith("--with_wandb=True: ") and words in text and "\n" not in text
    assert "WANDB_MODE=offline" in text
    assert service_processes() == []


def test_without_the_package_one_line_says_what_to_install(config, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r"needs the package wandb.*pip install -e '\.\[wandb\]'"):
        start_wandb(config())


def test_the_service_ends_when_the_process_of_the_run_is_killed(own_home, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    program = f"""
import os, signal, psutil
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.monitoring.wandb_writer import start_wandb
argv = ["--env=gym_CartPole-v1", "--train_dir={tmp_path}", "--with_wandb=True"]
start_wandb(parse_config(argv, resolve_family))
print([child.pid for child in psutil.Process().children()][0], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == -signal.SIGKILL, result.stderr
    pid = int(result.stdout.split()[-1])
    if psutil.pid_exists(pid):
        psutil.Process(pid).wait(timeout=60)
    assert not psutil.pid_exists(pid)
