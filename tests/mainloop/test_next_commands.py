"""Commands at the end of a run: only those that work, with the flags that they need."""

import sys

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


def commands(config, is_done=False, least_frames=0, environment=DESKTOP):
    return dict(next_commands(config, is_done, least_frames, environment))


def test_after_a_run_it_can_be_watched_and_continued(config, monkeypatch):
    found = commands(config(env="doom_basic"))
    assert found["watch"].startswith("python -m sample_factory.enjoy '--experiment=my run' ")
    assert found["continue"] == "the same command"
    assert found["curves"].endswith("plot_curves 'train_dir/my run' --out=curves.png")
    assert found["tensorboard"] == "tensorboard --logdir='train_dir/my run' --load_fast=false"
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    without = commands(config(env="doom_basic"), environment=HEADLESS)
    assert without["watch"].endswith("--save_video --no_render")
    assert "curves" not in without and without["tensorboard"] == found["tensorboard"]
    assert commands(config(sampler_only=True)) == {}, "there is nothing to continue"


@pytest.mark.parametrize(
    ("flags", "ending", "changes"),
    [
        ({"train_for_env_steps": 1000}, {}, ""),
        ({"train_for_env_steps": 1000}, {"is_done": True}, " with --train_for_env_steps=2000"),
        # 2000 frames would be done already.
        (
            {"train_for_env_steps": 1000},
            {"is_done": True, "least_frames": 2048},
            " with --train_for_env_steps=4096",
        ),
        ({"restart_behavior": "overwrite"}, {}, " without --restart_behavior"),
    ],
)
def test_a_run_is_continued_without_deleting_it_and_beyond_its_limit(config, flags, ending, changes):
    assert commands(config(**flags), **ending)["continue"] == f"the same command{changes}"


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
def test_a_run_is_watched_by_enjoy_unless_a_program_registers_its_parts(config, env, encoder, is_found):
    import gymnasium  # by now, a run has imported it

    assert "CartPole-v1" in gymnasium.registry
    found = commands(config(env=env, encoder_custom=encoder))
    assert found["watch"].startswith("python -m sample_factory.enjoy") == is_found
    assert found["watch"].startswith("sample_factory.enjoy.main(['--experiment=my run'") != is_found


def test_the_folder_in_the_curves_and_the_files_is_relative_to_the_working_directory(config, tmp_path):
    assert relative_path(config().experiment_dir) == "train_dir/my run"
    assert relative_path(tmp_path.parent) == str(tmp_path.parent)


def test_a_working_directory_that_was_deleted_during_the_run_does_not_fail_it(tmp_path, monkeypatch):
    deleted = tmp_path / "deleted"
    deleted.mkdir()
    monkeypatch.chdir(deleted)
    deleted.rmdir()
    assert relative_path(tmp_path) == str(tmp_path)
