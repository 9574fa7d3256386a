"""Commands at the end of a run: only those that work, with the flags that they need."""

import sys
from dataclasses import replace

import pytest

from sample_factory.mainloop.next_commands import next_commands, relative_path
from tests.counting import make_config

HEADLESS: dict[str, str] = {}
DESKTOP = {"DISPLAY": ":0"}


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(**flags):
        return make_config(**{"train_dir": str(tmp_path / "train_dir"), "experiment": "my run", **flags})

    return make


def commands(config, line, is_done=False, least_frames=0, environment=DESKTOP):
    return dict(next_commands(config, line.split("|"), is_done, least_frames, environment))


def test_after_a_command_of_the_package_the_run_can_be_watched_and_continued(config, monkeypatch):
    line = "/usr/bin/python3|-X|dev|-m|sample_factory.train|--restart_behavior=overwrite|--seed=1"
    found = commands(config(), line)
    assert found["watch"].startswith("python -m sample_factory.enjoy '--experiment=my run' ")
    assert found["continue"] == "python -X dev -m sample_factory.train --seed=1", "it deletes no folder"
    assert found["curves"].endswith("plot_curves 'train_dir/my run' --out=curves.png")
    assert found["tensorboard"] == "tensorboard --logdir='train_dir/my run' --load_fast=false"
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    without = commands(config(), line, environment=HEADLESS)
    assert without["watch"].endswith("--save_video --no_render")
    assert "curves" not in without and without["tensorboard"] == found["tensorboard"]
    assert commands(config(sampler_only=True), line) == {}, "there is nothing to continue"


@pytest.mark.parametrize(
    ("flags", "limit"),
    [
        ({}, "--train_for_env_steps 1000 --seed=1"),
        ({"is_done": True}, "--seed=1 --train_for_env_steps=2000"),
        # 2000 frames would be done already.
        ({"is_done": True, "least_frames": 2048}, "--seed=1 --train_for_env_steps=4096"),
    ],
)
def test_a_finished_run_needs_a_larger_limit_to_continue(config, flags, limit):
    line = "python|-m|sample_factory.train|--train_for_env_steps|1000|--seed=1"
    found = commands(config(train_for_env_steps=1000), line, **flags)
    assert found["continue"] == f"python -m sample_factory.train {limit}"


@pytest.mark.parametrize("argv", [("--env=a", "--seed=1"), ("--env=a", "--seed=1", "--seed=2")])
def test_a_script_that_sets_its_flags_itself_is_not_started_with_other_flags(config, argv):
    def own(**flags):
        return replace(config(train_for_env_steps=1000, **flags), argv=argv)

    line = "python|my_env.py|--seed=1"
    assert "continue" not in commands(own(), line, is_done=True)
    assert "continue" not in commands(own(restart_behavior="overwrite"), line)
    assert commands(own(), line)["continue"] == "python my_env.py --seed=1"
    from_command_line = replace(config(train_for_env_steps=1000), argv=("--seed=1",))
    found = commands(from_command_line, line, is_done=True)
    assert found["continue"] == "python my_env.py --seed=1 --train_for_env_steps=2000"


@pytest.mark.parametrize(
    "line, expected",
    [
        ("python|my_env.py|--experiment=my run", {"watch", "continue", "curves", "tensorboard"}),
        ("/venv/bin/python|/venv/bin/sample-factory-train", {"watch", "continue", "curves", "tensorboard"}),
        ("python|-m|sample_factory|train|--seed=1", {"watch", "continue", "curves", "tensorboard"}),
        ("/venv/bin/python|/venv/bin/sample-factory|train", {"watch", "continue", "curves", "tensorboard"}),
        ("python|-c|import sample_factory", {"curves", "tensorboard"}),
        ("python|-m|ipykernel_launcher|-f|kernel.json", {"curves", "tensorboard"}),
    ],
)
def test_commands_that_may_not_work_for_a_program_are_left_out(config, line, expected):
    assert set(commands(config(), line)) == expected


@pytest.mark.parametrize(
    "env, encoder, is_found",
    [
        ("gym_CartPole-v1", None, True),
        ("doom_basic", None, True),
        ("doom_basic", "my_module:Encoder", True),
        ("doom_basic", "registered_by_a_script", False),
        ("gym_OfAScript-v0", None, False),
        ("my_pole", None, False),
    ],
)
def test_after_a_script_a_run_is_watched_by_enjoy_unless_the_script_registers_parts(
    config, env, encoder, is_found
):
    import gymnasium  # by now, a run has imported it

    assert "CartPole-v1" in gymnasium.registry
    found = commands(config(env=env, encoder_custom=encoder), "python|my_env.py|--seed=1")
    assert found["watch"].startswith("python -m sample_factory.enjoy") == is_found
    assert found["watch"].endswith("called in my_env.py in place of the training") != is_found


def test_a_script_that_takes_train_and_enjoy_shows_the_agent_itself(config, tmp_path):
    script = tmp_path / "my_env.py"
    script.write_text("command = {'train': train, 'enjoy': enjoy}")
    line = "python|-u|my_env.py|train|--experiment=my run"
    shown = commands(config(env="my_pole"), line)["watch"]
    assert shown.startswith("python -u my_env.py enjoy '--experiment=my run'")
    script.write_text("command = {'train': train}")
    assert "called in my_env.py" in commands(config(env="my_pole"), line)["watch"]


def test_the_folder_in_the_curves_and_the_files_is_relative_to_the_working_directory(config, tmp_path):
    assert relative_path(config().experiment_dir) == "train_dir/my run"
    assert relative_path(tmp_path.parent) == str(tmp_path.parent)


def test_a_working_directory_that_was_deleted_during_the_run_does_not_fail_it(tmp_path, monkeypatch):
    deleted = tmp_path / "deleted"
    deleted.mkdir()
    monkeypatch.chdir(deleted)
    deleted.rmdir()
    assert relative_path(tmp_path) == str(tmp_path)
