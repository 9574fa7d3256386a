import logging
import zipfile
from dataclasses import replace

import pytest

from sample_factory.config.config import Change, Resumed
from sample_factory.config.flags import ConfigError
from sample_factory.launch.start_from import (
    describe_last_checkpoints,
    has_checkpoints,
    log_resumed,
    transfer_files,
    why_done,
)
from tests.counting import make_config


@pytest.fixture
def make(tmp_path):
    """Returns a function that makes the configuration of an experiment."""

    def make(experiment="new", **flags):
        return make_config(train_dir=str(tmp_path), experiment=experiment, **flags)

    return make


def checkpoint(config, name, policy_id=0):
    path = config.experiment_dir / f"checkpoint_p{policy_id}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:  # as torch writes it
        archive.writestr("data", "weights")
    return path


def test_each_policy_starts_with_the_newest_checkpoint_of_its_counterpart_or_of_policy_0(make):
    old = make("old")
    checkpoint(old, "checkpoint_000000008_100.pth")
    best = checkpoint(old, "best_000000008_100_reward_1.pth")
    newest = checkpoint(old, "checkpoint_000000010_200.pth")
    other = checkpoint(old, "checkpoint_000000009_150.pth", policy_id=1)
    new = make(transfer_from="old")
    assert transfer_files(replace(new, sampling=replace(new.sampling, num_policies=3))) == (
        newest,
        other,
        newest,
    )
    assert transfer_files(make(transfer_from="old", load_checkpoint_kind="best"))[0] == best


def test_a_source_is_a_name_a_folder_or_a_file(make, tmp_path):
    path = checkpoint(make("old", experiments_root="group"), "checkpoint_000000010_200.pth")
    assert transfer_files(make(transfer_from="group/old"))[0] == path
    assert transfer_files(make(transfer_from=str(tmp_path / "group" / "old")))[0] == path
    assert transfer_files(make(transfer_from=str(path)))[0] == path
    assert transfer_files(make(transfer_from="old", experiments_root="group"))[0] == path


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("none", "no experiment"),
        ("empty", "empty/checkpoint_p0"),
        ("new", "of the experiment itself"),
    ],
)
def test_a_source_without_checkpoints_is_refused(make, source, message):
    for name in ("empty", "new"):
        make(name).experiment_dir.mkdir()
    with pytest.raises(ConfigError, match=f"--transfer_from={source}.*{message}"):
        transfer_files(make(transfer_from=source))


@pytest.mark.parametrize("restart_behavior", ["restart", "overwrite"])
def test_weights_in_the_folder_that_a_run_replaces_are_refused(make, restart_behavior):
    path = checkpoint(make(), "checkpoint_000000010_200.pth")
    for name in (str(path), str(path.parent), f"{path.parent}/../../new"):
        with pytest.raises(ConfigError, match="of the experiment itself"):
            transfer_files(make(transfer_from=name, restart_behavior=restart_behavior))


def test_a_file_that_was_put_into_the_folder_of_a_new_experiment_is_a_source(make):
    folder = make().experiment_dir
    folder.mkdir()
    (folder / "given.pth").write_text("")
    assert transfer_files(make(transfer_from=str(folder / "given.pth")))[0] == folder / "given.pth"


def test_an_experiment_with_checkpoints_continues_with_its_own_weights_and_says_so(make, caplog):
    config = make(transfer_from="none")
    checkpoint(config, "checkpoint_000000010_182272.pth")
    assert transfer_files(config)[0] is None
    changes = Resumed((Change("batch_size", 512, 1024),), (Change("gamma", 0.9, 0.99),))
    with caplog.at_level(logging.INFO, "sample_factory"):
        log_resumed(replace(config, resumed=changes, typed={"transfer_from": "none"}))
    resumed, ignored, transfer = caplog.messages
    assert resumed == "Resuming new at 182,272 env frames; changed: batch_size 512 -> 1024"
    assert ignored.startswith("gamma = 0.99 in --cfg") and transfer.startswith("--transfer_from=none has no")


@pytest.mark.parametrize("kind", ["checkpoint_000000010_182272", "best_000000010_182272_reward_1"])
@pytest.mark.parametrize("resumed", [(), (0,), (1,), (0, 2), (0, 1, 2)])
def test_a_resumed_policy_without_checkpoints_starts_with_the_transferred_weights(
    make, caplog, resumed, kind
):
    path = checkpoint(make("old"), "checkpoint_000000010_200.pth")
    config = make(transfer_from="old", num_policies=3)
    config = replace(config, resumed=Resumed(), typed={"transfer_from": "old"})
    for policy_id in resumed:
        checkpoint(config, f"{kind}.pth", policy_id)
    assert transfer_files(config) == tuple(None if policy in resumed else path for policy in range(3))
    with caplog.at_level(logging.INFO, "sample_factory"):
        log_resumed(config)
    assert ("--transfer_from=old has no effect" in caplog.text) == (len(resumed) == 3)


def test_the_last_checkpoints_are_listed(make):
    config = make(num_policies=2)
    assert "there is no checkpoint" in describe_last_checkpoints(config)
    paths = [checkpoint(config, "checkpoint_000000010_182272.pth", policy_id) for policy_id in range(2)]
    assert describe_last_checkpoints(config).endswith(
        f"the last checkpoint is {paths[0]} (182,272 env frames), {paths[1]} (182,272 env frames)"
    )


def test_a_run_whose_limit_is_reached_has_nothing_to_train(make):
    config = replace(make("a", train_for_env_steps=200, num_policies=2), resumed=Resumed())
    checkpoint(config, "checkpoint_000000010_200.pth")
    assert why_done(config) is None, "policy 1 has no checkpoint"
    checkpoint(config, "checkpoint_000000009_199.pth", policy_id=1)
    assert why_done(config) is None
    checkpoint(config, "checkpoint_000000010_250.pth", policy_id=1)
    done = why_done(config)
    assert done is not None and "each have at least 200 env frames" in done
    assert done.endswith("train for longer with --train_for_env_steps=400")
    assert why_done(replace(config, resumed=None)) is None, "a new experiment"


@pytest.mark.parametrize("num_policies", [1, 2])
def test_the_advised_limit_is_larger_than_what_is_done_also_after_a_smaller_one(make, num_policies):
    frames = (8192, 9000)[:num_policies]
    config = replace(make("a", train_for_env_steps=2000, num_policies=num_policies), resumed=Resumed())
    for policy_id, of_policy in enumerate(frames):
        checkpoint(config, f"checkpoint_000000010_{of_policy}.pth", policy_id)
    done = why_done(config)
    assert done is not None and "8,192 env frames" in done and "17,192" not in done
    advised = int(done.rpartition("=")[2])
    again = replace(config, monitoring=replace(config.monitoring, train_for_env_steps=advised))
    assert why_done(again) is None


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-10], lambda data: data.replace(b"weights", b"Weights")]
)
def test_a_damaged_checkpoint_is_no_progress(make, damage, caplog):
    config = replace(make("a", train_for_env_steps=200), resumed=Resumed())
    checkpoint(config, "checkpoint_000000009_150.pth")
    newest = checkpoint(config, "checkpoint_000000010_200.pth")
    assert why_done(config) is not None
    newest.write_bytes(damage(newest.read_bytes()))
    assert why_done(config) is None
    with caplog.at_level(logging.INFO, "sample_factory"):
        log_resumed(config)
    assert caplog.messages == ["Resuming a at 150 env frames"]
    checkpoint(config, "checkpoint_000000009_150.pth").unlink()
    assert why_done(config) is None and has_checkpoints(config, 0), (
        "the learner refuses to start from scratch"
    )
