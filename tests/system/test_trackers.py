"""Whole runs with writers beside TensorBoard's: all of them receive the same summaries."""

import json
import math
from types import SimpleNamespace

import pytest

import sample_factory
from sample_factory import Observer, register_observer
from sample_factory.config.flags import ConfigError
from sample_factory.plotting.metrics import read_policies
from sample_factory.runtime.folder_lock import FolderLock
from tests.monitoring.wandb_service import history, own_home, read_records

__all__ = ["own_home"]

FLAGS = {
    "env": "gym_CartPole-v1",
    "serial_mode": True,
    "num_policies": 2,
    "num_workers": 1,
    "num_envs_per_worker": 8,
    "rollout": 16,
    "batch_size": 64,
    "encoder_mlp_layers": [8],
    "use_rnn": False,
    "device": "cpu",
    "experiment_summaries_interval": 1,
}


class Own(Observer):
    def extra_summaries(self, run, policy_id):
        return {"own/policy": float(policy_id)}


def points_of_tensorboard(folder):
    _, policies = read_policies(folder)
    return {
        (policy, tag, int(step))
        for policy, curves in enumerate(policies)
        for tag, curve in curves.items()
        for step in curve.steps
    }


def points_of_jsonl(folder):
    lines = [json.loads(line) for line in (folder / "summaries.jsonl").read_text().splitlines()]
    keys = ("policy", "env_frames", "time")
    return {
        (line["policy"], tag, line["env_frames"])
        for line in lines
        for tag, value in line.items()
        if tag not in keys and value is not None
    }


def points_of_wandb(files):
    points = set()
    for row in (row for file in files for row in history(file)):
        (prefix,) = {key.partition("/")[0] for key in row}
        frames = row.pop(f"{prefix}/env_frames")
        tags = [key.partition("/")[2] for key, value in row.items() if math.isfinite(float(value))]
        points |= {(int(prefix.removeprefix("policy_")), tag, frames) for tag in tags}
    return points


def test_all_writers_receive_the_same_summaries_and_a_resumed_run_is_one_run_of_wandb(
    own_home, tmp_path, monkeypatch
):
    monkeypatch.setenv("WANDB_MODE", "offline")
    register_observer("own", Own)
    for frames in (400, 800):
        result = sample_factory.run(
            **FLAGS,
            experiment="both",
            train_dir=str(tmp_path),
            observers=["own"],
            train_for_env_steps=frames,
            jsonl_summaries=True,
            with_wandb=True,
            wandb_dir=str(tmp_path),
        )
        assert result.status == "done"
    expected = points_of_tensorboard(tmp_path / "both")
    assert {(0, "own/policy"), (1, "own/policy"), (1, "train/loss")} <= {point[:2] for point in expected}
    assert points_of_jsonl(tmp_path / "both") == expected
    files = list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2
    assert points_of_wandb(files) == expected
    ids = {record.run.run_id for file in files for record in read_records(file) if record.HasField("run")}
    saved = json.loads((tmp_path / "both" / "cfg.json").read_text())
    assert ids == {saved["wandb_unique_id"]}


def test_without_a_key_nothing_is_trained_and_an_existing_run_is_not_touched(own_home, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "cfg.json").write_text('{"env": "gym_CartPole-v1"}')
    flags = {**FLAGS, "experiment": "mine", "train_dir": str(tmp_path), "restart_behavior": "overwrite"}
    with pytest.raises(ConfigError, match=r"No API key configured.*WANDB_MODE=offline"):
        sample_factory.run(**flags, with_wandb=True)
    assert [file.name for file in folder.iterdir()] == ["cfg.json"]


def test_a_run_that_may_not_use_its_folder_ends_its_writers(tmp_path, monkeypatch):
    closed = []
    writer = SimpleNamespace(close=closed.append)
    monkeypatch.setattr("sample_factory.training.run.start_wandb", lambda config: (config, writer))
    (tmp_path / "busy").mkdir()
    lock = FolderLock(tmp_path / "busy")
    place = {"experiment": "busy", "train_dir": str(tmp_path)}
    with pytest.raises(ConfigError, match="is training in"):
        sample_factory.run(**FLAGS, **place)
    assert closed == [True]  # has_failed
    monkeypatch.setattr(
        "sample_factory.training.run.start_wandb", lambda config: pytest.fail("it joins the run")
    )
    with pytest.raises(ConfigError, match="is training in"):
        sample_factory.run(**FLAGS, **place, with_wandb=True)
    lock.release()
