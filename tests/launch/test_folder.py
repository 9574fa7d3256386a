import json
import os
import shutil
from dataclasses import replace

import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.launch import folder
from sample_factory.launch.folder import prepare_folder
from tests.counting import make_config
from tests.system.running import train


@pytest.fixture
def config(tmp_path):
    """The configuration of an experiment that exists and is to be overwritten."""
    config = make_config(
        train_dir=str(tmp_path), experiment="a", restart_behavior="overwrite", log_to_file=False
    )
    config.experiment_dir.mkdir()
    (config.experiment_dir / "cfg.json").write_text("{}")
    return config


def changed(config, **flags):
    return replace(config, run=replace(config.run, **flags))


def test_a_folder_that_cannot_be_deleted_is_an_error_and_is_not_kept_locked(config, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(folder.shutil, "rmtree", refuse)
        for _ in range(2):  # the second one would find the folder in use
            with pytest.raises(
                ConfigError, match="cannot write to the experiment folder .*: Permission denied"
            ):
                prepare_folder(config)
    assert (config.experiment_dir / "cfg.json").exists()
    prepare_folder(config).lock.release()
    assert not (config.experiment_dir / "cfg.json").exists(), "it is overwritten"


def test_a_folder_of_a_run_that_failed_is_removed_with_the_folders_that_were_made_for_it(tmp_path):
    (tmp_path / "mine").mkdir()
    config = make_config(train_dir=str(tmp_path / "mine" / "new"), experiments_root="group", experiment="a")
    made = prepare_folder(config)
    assert (config.experiment_dir / "sf_log.txt").exists()
    made.leave(stays=False)
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


def test_a_folder_that_the_user_has_deleted_needs_no_removal(config):
    prepared = prepare_folder(config)
    shutil.rmtree(prepared.path)
    prepared.leave(stays=False)


def test_the_experiment_that_a_failed_restart_moved_aside_is_restored(config):
    config = changed(config, restart_behavior="restart")
    made = prepare_folder(config)
    assert not (config.experiment_dir / "cfg.json").exists()
    made.leave(stays=False)
    assert (config.experiment_dir / "cfg.json").exists()
    assert [path.name for path in config.experiment_dir.parent.iterdir()] == ["a"]


def test_an_experiment_that_existed_before_the_run_stays(config):
    config = changed(config, restart_behavior="resume")
    for stays in (True, False):
        prepare_folder(config).leave(stays)
        assert (config.experiment_dir / "cfg.json").exists()


def test_files_that_a_killed_run_has_left_unfinished_are_deleted(config):
    folder = config.experiment_dir / "checkpoint_p1"
    folder.mkdir()
    for name in (".temp_checkpoint", "donation.pth", "evaluated.pth", "checkpoint_000000001_4.pth"):
        (folder / name).write_text("")
    prepare_folder(changed(config, restart_behavior="resume")).lock.release()
    assert [path.name for path in folder.iterdir()] == ["checkpoint_000000001_4.pth"]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt(), LookupError()]
)
@pytest.mark.parametrize("function", ["delete_snapshots", "versions"])
@pytest.mark.parametrize("behavior", ["resume", "restart"])
def test_a_start_that_raises_leaves_the_folder_as_it_was_and_unlocked(
    config, monkeypatch, error, function, behavior
):
    def fail(*_):
        raise error

    config = changed(config, restart_behavior=behavior)
    new = changed(config, experiments_root="group", experiment="new")
    before = set(config.experiment_dir.parent.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(folder, function, fail)
        for started in (config, new):
            with pytest.raises(ConfigError if isinstance(error, OSError) else type(error)):
                prepare_folder(started)
    assert set(config.experiment_dir.parent.rglob("*")) - {config.experiment_dir / ".lock"} == before
    prepare_folder(config).lock.release()


@pytest.mark.parametrize("behavior", ["resume", "restart"])
def test_a_full_disk_at_the_start_is_one_line_and_leaves_nothing(config, monkeypatch, behavior):
    def fail(*_):
        raise OSError(28, "No space left on device")

    new = changed(config, restart_behavior=behavior, experiment="new")
    monkeypatch.setattr(os, "pwrite", fail)
    for _ in range(2):
        with pytest.raises(ConfigError, match="cannot write to the experiment folder .*: No space left"):
            prepare_folder(new)
    assert list(config.experiment_dir.parent.iterdir()) == [config.experiment_dir]


def test_a_run_may_be_repeated_from_its_own_saved_flags(tmp_path):
    place = ["--experiment=a", "--serial_mode=True", "--train_for_env_steps=200"]
    small = ["--batch_size=64", "--rollout=8", "--hidden_size=8"]
    train(tmp_path, *place, "--env=gym_CartPole-v1", *small)
    saved = tmp_path / "a" / "cfg.json"
    for behavior in ("restart", "overwrite"):
        train(tmp_path, *place, f"--cfg={saved}", f"--restart_behavior={behavior}")
        assert json.loads(saved.read_text())["hidden_size"] == 8


def test_a_run_with_the_saved_flags_of_one_that_was_overwritten_keeps_its_checkpoints(tmp_path):
    def start(*flags):
        place = [f"--train_dir={tmp_path}", "--log_to_file=False"]
        config = parse_config([*place, *flags], resolve_family)
        prepare_folder(config).lock.release()
        config.save()
        return config.experiment_dir

    source = start("--env=gym_CartPole-v1", "--experiment=a", "--restart_behavior=overwrite")
    again = [f"--cfg={source / 'cfg.json'}", "--experiment=b"]
    checkpoint = start(*again) / "checkpoint_p0" / "checkpoint_000000001_4.pth"
    checkpoint.parent.mkdir()
    checkpoint.write_text("")
    start(*again)
    assert checkpoint.exists()
