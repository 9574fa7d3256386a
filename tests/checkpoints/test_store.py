import shlex
import subprocess

import pytest
import torch

from sample_factory.checkpoints import file_format, store
from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.checkpoints.file_format import check_fits
from sample_factory.checkpoints.store import Checkpoints
from tests.mounts import mount_tmpfs

SMALL = torch.nn.Sequential(torch.nn.Linear(4, 5))


def state(value):
    return {"train_step": value, "weights": torch.full((3,), float(value))}


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path, 0, keep=2)


def test_nothing_saved_is_nothing_loaded(checkpoints):
    assert checkpoints.load() is None and checkpoints.is_empty()


def test_the_newest_is_not_loaded_as_the_best(checkpoints):
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


def test_copies_that_a_user_made_are_neither_deleted_nor_loaded(checkpoints):
    newest = checkpoints.save(state(9), 1, 4)
    best = checkpoints.save_snapshot(state(9), "best_000000001_4_reward_0.500.pth")
    copies = [path.with_stem(path.stem + end) for path in (newest, best) for end in ("_good", " (copy)")]
    for copy, original in zip(copies, (newest, newest, best, best)):
        copy.write_bytes(original.read_bytes())
    for version in range(2, 5):
        checkpoints.save(state(version), version, version * 4)
    assert all(copy.exists() for copy in copies) and not newest.exists()
    for path in (best, *checkpoints.folder.glob("*_00000000[234]_*")):
        path.unlink()
    assert checkpoints.load() is None and checkpoints.load("best") is None


def test_milestones_and_the_best_outlive_the_others(checkpoints):
    checkpoints.save_milestone(state(1), 1, 4)
    checkpoints.save_snapshot(state(3), "best_000000003_12_reward_0.750.pth")
    for version in range(4, 9):
        checkpoints.save(state(version), version, version)
    assert (checkpoints.folder / "milestones" / "checkpoint_000000001_4.pth.milestone").exists()
    assert [path.name for path in checkpoints.folder.glob("best_*")] == ["best_000000003_12_reward_0.750.pth"]
    assert checkpoints.load("best")["train_step"] == 3


@pytest.mark.parametrize("kind", ["latest", "best"])
def test_a_checkpoint_that_is_replaced_while_it_is_read_is_looked_for_again(checkpoints, kind, monkeypatch):
    def save(version):
        checkpoints.save(state(version), version, version * 4)
        for path in checkpoints.folder.glob("best_*"):
            path.unlink()
        checkpoints.save_snapshot(state(version), f"best_{version:09d}_{version * 4}_reward_1.000.pth")

    def read_late(path):
        if "000000001_" in path.name:
            for version in (2, 3, 4):
                save(version)
        return file_format.read_state(path)

    save(1)
    monkeypatch.setattr(store, "read_state", read_late)
    assert checkpoints.load(kind)["train_step"] == 4


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: b"x" * 500]
)
def test_a_damaged_newest_one_falls_back_to_the_one_before(checkpoints, damage, caplog):
    checkpoints.save(state(1), 1, 4)
    path = checkpoints.save(state(2), 2, 8)
    path.write_bytes(damage(path.read_bytes()))
    assert checkpoints.load()["train_step"] == 1
    assert "CANNOT USE CHECKPOINT" in caplog.text


def test_a_flipped_bit_is_noticed_wherever_it_is(checkpoints):
    """Flips a bit in every seventh byte in turn: whatever loads equals what was saved."""
    path = checkpoints.save(state(2), 2, 8)
    data = path.read_bytes()
    refused = 0
    for position in range(0, len(data), 7):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])
        try:
            loaded = checkpoints.load()
        except CheckpointError:
            refused += 1
            continue
        assert loaded["train_step"] == 2 and torch.equal(loaded["weights"], state(2)["weights"])
    assert refused > 20, "of some 200; most of such a small file is padding"


def test_a_flipped_bit_in_the_middle_of_a_tensor_falls_back_to_the_one_before(checkpoints, caplog):
    """torch.load itself accepts such a file."""
    big = {"train_step": 2, "weights": torch.arange(100_000, dtype=torch.float32)}
    checkpoints.save(state(1), 1, 4)
    path = checkpoints.save(big, 2, 8)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.write_bytes(data)
    assert not torch.equal(torch.load(path, weights_only=True)["weights"], big["weights"])
    assert checkpoints.load()["train_step"] == 1
    assert "checksum" in caplog.text


def test_a_file_that_holds_something_else_is_refused(checkpoints):
    checkpoints.folder.mkdir(parents=True)
    torch.save([1, 2], checkpoints.folder / "checkpoint_000000001_4.pth")
    with pytest.raises(CheckpointError, match="holds a list"):
        checkpoints.load()


@pytest.mark.parametrize(
    ("saved", "difference"),
    [
        ({"0.weight": torch.ones(3, 4), "0.bias": torch.ones(3)}, "0.weight is of shape [3, 4] there and of"),
        ({"old.weight": torch.ones(5, 4)}, "0.weight is missing there and of shape [5, 4] here; 2 more"),
        (
            {**SMALL.state_dict(), "tail": torch.ones(1)},
            "tail is of shape [1] there and missing here",
        ),
        (None, "it has no weights of a model"),
    ],
)
def test_checkpoints_of_another_network_are_one_line_with_what_differs_first(checkpoints, saved, difference):
    for version in (1, 2):
        checkpoints.save({"model": saved}, version, 4)
    with pytest.raises(CheckpointError) as refused:
        checkpoints.load(check=lambda loaded: check_fits(loaded["model"], SMALL))
    message = str(refused.value)
    assert difference in message and "\n" not in message
    assert "checkpoint_000000002_4.pth, checkpoint_000000001_4.pth: " in message, "one reason for both files"
    assert "Sample Factory 1 and 2" in message and "--restart_behavior=restart" in message


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
    with pytest.raises(CheckpointError, match="it holds more than tensors and numbers") as refused:
        checkpoints.load()
    assert "weights_only" not in str(refused.value)
    assert not (tmp_path / "pwned").exists()


def test_where_only_milestones_are_left_the_error_names_a_command_that_mends_it(checkpoints):
    checkpoints.save_milestone(state(1), 1, 4)
    with pytest.raises(CheckpointError, match="has milestones, but no checkpoint") as refused:
        checkpoints.load()
    subprocess.run(shlex.split(str(refused.value).partition("copy one there: ")[2]), check=True)
    assert checkpoints.load()["train_step"] == 1


def test_an_interrupted_save_is_never_loaded(checkpoints):
    checkpoints.save(state(1), 1, 4)
    (checkpoints.folder / ".temp_checkpoint").write_bytes(b"half")
    assert checkpoints.load()["train_step"] == 1


def test_a_save_that_fails_leaves_older_checkpoints_and_is_logged(checkpoints, monkeypatch, caplog):
    checkpoints.save(state(1), 1, 4)

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full_disk)
    assert checkpoints.save(state(2), 2, 8) is None
    assert "No space left on device" in caplog.text
    assert [path.name for path in checkpoints.folder.iterdir()] == ["checkpoint_000000001_4.pth"]


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a file system of 2 MB."""
    folder = tmp_path / "disk"
    mount_tmpfs(folder, "size=2m")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_on_a_full_disk_the_message_says_how_much_is_missing(small_disk, caplog):
    checkpoints = Checkpoints(small_disk, 0, keep=2)
    small = {"train_step": 1, "weights": torch.ones(250_000)}
    large = {"train_step": 2, "weights": torch.ones(250_000), "more": [torch.ones(250_000)]}
    assert checkpoints.save(small, 1, 4) is not None
    assert checkpoints.save(large, 2, 8) is None
    assert "No space left on device: it needs about 2.0 MB, 1.1 MB are free" in caplog.text
    assert [path.name for path in checkpoints.folder.iterdir()] == ["checkpoint_000000001_4.pth"]
    assert checkpoints.load()["train_step"] == 1
    assert checkpoints.save_milestone(large, 2, 8) is None
    assert checkpoints.save_snapshot(large, "evaluated.pth") is None
    (small_disk / "filler").write_bytes(bytes(1_000_000))
    assert checkpoints.save(state(3), 3, 12) is not None, "a smaller one still fits"


def test_a_folder_that_cannot_be_made_is_logged_and_stops_nothing(tmp_path, caplog):
    (tmp_path / "checkpoint_p0").write_text("a file")
    assert Checkpoints(tmp_path, 0, keep=2).save(state(1), 1, 4) is None
    assert "COULD NOT SAVE" in caplog.text


def test_an_old_checkpoint_that_cannot_be_deleted_is_logged_and_stops_nothing(checkpoints, caplog):
    checkpoints.folder.mkdir(parents=True)
    (checkpoints.folder / "checkpoint_000000000_0.pth").mkdir()
    for version in (1, 2):
        assert checkpoints.save(state(version), version, 4 * version) is not None
    assert "Could not delete" in caplog.text


def test_what_was_just_saved_is_never_deleted(checkpoints):
    for version in (5000, 5100):
        checkpoints.save(state(version), version, version)
    path = checkpoints.save(state(1050), 1050, 1050)
    assert path.exists()


def test_later_checkpoints_are_moved_aside_when_training_continues_from_an_earlier_one(checkpoints):
    for version in (1000, 5000):
        checkpoints.save(state(version), version, version)
    checkpoints.supersede(1000)
    checkpoints.save(state(1050), 1050, 1050)
    assert checkpoints.load()["train_step"] == 1050
    assert [path.name for path in (checkpoints.folder / "superseded").iterdir()] == [
        "checkpoint_000005000_5000.pth"
    ]
