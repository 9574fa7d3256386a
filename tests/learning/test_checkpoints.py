import pytest
import torch

from sample_factory.learning.checkpoints import CheckpointError, Checkpoints


def state(value):
    return {"train_step": value, "weights": torch.full((3,), float(value))}


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path, 0, keep=2)


def test_nothing_saved_is_nothing_loaded(checkpoints):
    assert checkpoints.load() is None and checkpoints.is_empty()


def test_the_newest_does_not_stand_for_the_best(checkpoints):
    checkpoints.save(state(1), 1, 4)
    assert checkpoints.load("best") is None and not checkpoints.is_empty()


def test_the_newest_are_kept_by_version_not_by_name(checkpoints):
    for version in (7, 999_999_999, 1_000_000_001):
        checkpoints.save(state(version), version, version * 4)
    assert sorted(path.name for path in checkpoints.folder.glob("*.pth")) == [
        "checkpoint_1000000001_4000000004.pth",
        "checkpoint_999999999_3999999996.pth",
    ]
    assert checkpoints.load()["train_step"] == 1_000_000_001


def test_milestones_and_the_best_outlive_the_others(checkpoints):
    checkpoints.save_milestone(state(1), 1, 4)
    checkpoints.save_best(state(2), 2, 8, "reward", 0.5)
    checkpoints.save_best(state(3), 3, 12, "reward", 0.75)
    for version in range(4, 9):
        checkpoints.save(state(version), version, version)
    assert (checkpoints.folder / "milestones" / "checkpoint_000000001_4.pth.milestone").exists()
    assert [path.name for path in checkpoints.folder.glob("best_*")] == ["best_000000003_12_reward_0.750.pth"]
    assert checkpoints.load("best")["train_step"] == 3


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: b"x" * 500]
)
def test_a_damaged_newest_one_falls_back_to_the_one_before(checkpoints, damage, caplog):
    checkpoints.save(state(1), 1, 4)
    path = checkpoints.save(state(2), 2, 8)
    path.write_bytes(damage(path.read_bytes()))
    assert checkpoints.load()["train_step"] == 1
    assert "CANNOT USE CHECKPOINT" in caplog.text


def test_when_none_is_usable_it_is_an_error_and_no_fresh_start(checkpoints):
    checkpoints.save(state(1), 1, 4)

    def check(loaded):
        raise ValueError("weights have another shape")

    with pytest.raises(CheckpointError, match="another shape"):
        checkpoints.load(check=check)


def test_a_pickle_that_would_run_code_is_refused(checkpoints, tmp_path):
    class Attack:
        def __reduce__(self):
            return (open, (str(tmp_path / "pwned"), "w"))

    checkpoints.folder.mkdir(parents=True)
    torch.save({"train_step": Attack()}, checkpoints.folder / "checkpoint_000000001_4.pth")
    with pytest.raises(CheckpointError):
        checkpoints.load()
    assert not (tmp_path / "pwned").exists()


def test_an_interrupted_save_is_never_loaded(checkpoints):
    checkpoints.save(state(1), 1, 4)
    (checkpoints.folder / ".temp_checkpoint").write_bytes(b"half")
    assert checkpoints.load()["train_step"] == 1


def test_a_save_that_fails_leaves_the_older_ones_and_says_so(checkpoints, monkeypatch, caplog):
    checkpoints.save(state(1), 1, 4)

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full_disk)
    assert checkpoints.save(state(2), 2, 8) is None
    assert "No space left on device" in caplog.text
    assert [path.name for path in checkpoints.folder.iterdir()] == ["checkpoint_000000001_4.pth"]


def test_what_was_just_saved_is_never_deleted(checkpoints):
    for version in (5000, 5100):
        checkpoints.save(state(version), version, version)
    path = checkpoints.save(state(1050), 1050, 1050)
    assert path.exists()


def test_later_checkpoints_are_moved_aside_when_training_goes_on_from_an_earlier_one(checkpoints):
    for version in (1000, 5000):
        checkpoints.save(state(version), version, version)
    checkpoints.supersede(1000)
    checkpoints.save(state(1050), 1050, 1050)
    assert checkpoints.load()["train_step"] == 1050
    assert [path.name for path in (checkpoints.folder / "superseded").iterdir()] == [
        "checkpoint_000005000_5000.pth"
    ]


def test_files_of_the_users_own_are_left_alone(checkpoints):
    checkpoints.save(state(1), 1, 4)
    (checkpoints.folder / "checkpoint_backup.pth").write_text("mine")
    for version in (2, 3, 4):
        checkpoints.save(state(version), version, version)
    assert checkpoints.load()["train_step"] == 4 and (checkpoints.folder / "checkpoint_backup.pth").exists()
