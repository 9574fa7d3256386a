"""Checkpoints that a stranger has made: refused before they fill the memory, wait, or break the training."""

import os
import zipfile

import pytest
import torch

from sample_factory.checkpoints.checkpoint_error import CheckpointError, is_damaged
from sample_factory.checkpoints.milestones import find_checkpoints, find_milestones
from sample_factory.checkpoints.store import Checkpoints, read_checkpoint
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.optimizers import check_optimizer, make_optimizer

HUGE = 2**40
GOOD = {"train_step": 1, "env_steps": 4, "model": {"w": torch.ones(3)}}


def nested(depth):
    """Returns a list whose elements are its neighbours twice: 2^depth values in a few bytes."""
    value = [0]
    for _ in range(depth):
        value = [value, value]
    return value


def containing_itself():
    value = []
    value.append(value)
    return value


CONTENTS = {
    "strides": {"model": {"w": torch.ones(1).expand(HUGE)}},
    "many views of a storage": {"model": dict.fromkeys(range(1000), torch.ones(2**20))},
    "sparse": {"model": {"w": torch.sparse_coo_tensor([[0]], [1.0], (HUGE,))}},
    "compressed": {"model": {"w": torch.eye(3).to_sparse_csr()}},
    "quantised": {"model": {"w": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)}},
    "meta": {"model": {"w": torch.empty(HUGE, device="meta")}},
    "NaN": {"model": {"w": torch.tensor([1.0, float("nan"), 1.0])}},
    "complex NaN": {"model": {"w": torch.tensor([complex(float("nan"), 1.0)])}},
    "a negative variance": {"model": {"observation_normalizers.normalizers.0.variance": -torch.ones(2)}},
    "a negative count": {"model": {"returns_normalizer.count": torch.tensor(-1.0)}},
    "a weight that is a number": {"model": {"w": 1.0}},
    "a model that is a tensor": {"model": torch.ones(3)},
    "a model that is a list": {"model": [torch.ones(3)]},
    "negative steps": {"train_step": -1},
    "more steps than versions in the buffers have": {"train_step": 2**31},
    "many frames": {"env_steps": 10**18},
    "a flag as a count": {"samples": True},
    "a text as a count": {"skipped_steps": "1"},
    "a fraction of a step": {"train_step": 1.5},
    "a tensor as a count": {"train_step": torch.tensor(1)},
    "infinite reward": {"best_performance": float("inf")},
    "a text as a rate": {"curr_lr": "0.1"},
    "shared lists": {"more": nested(60)},
    "a list in itself": {"more": containing_itself()},
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("contents", CONTENTS.values(), ids=CONTENTS)
def test_contents_that_no_training_writes_are_refused_at_once_and_an_older_file_is_used(tmp_path, contents):
    store = Checkpoints(tmp_path, 0, keep=3)
    assert store.save(GOOD, 1, 4)
    newest = store.folder / "checkpoint_000000002_8.pth"
    torch.save({**GOOD, **contents}, newest)
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(newest)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600
    assert store.load()["train_step"] == 1


def test_a_state_that_a_training_writes_is_accepted(tmp_path):
    transposed = torch.arange(6.0).reshape(2, 3).T
    of_own_networks = {
        "causal mask": torch.full((3, 3), -torch.inf).triu(1),
        "bounds": torch.tensor([-torch.inf, torch.inf]),
        "rotary frequencies": torch.ones(3, dtype=torch.complex64),
        "repeated": torch.ones(1).expand(100),
    }
    model = {"w": transposed, "none": torch.empty(0), "scalar": torch.tensor(1), **of_own_networks}
    torch.save({**GOOD, "model": model}, tmp_path / "a")
    assert torch.equal(read_checkpoint(tmp_path / "a")["model"]["w"], transposed)


def test_files_of_another_kind_than_torch_writes_are_refused(tmp_path):
    torch.save(GOOD, tmp_path / "a")
    with (
        zipfile.ZipFile(tmp_path / "a") as archive,
        zipfile.ZipFile(tmp_path / "b", "w", zipfile.ZIP_DEFLATED) as small,
    ):
        for name in archive.namelist():
            small.writestr(name, archive.read(name))
    with pytest.raises(CheckpointError, match="compressed"):
        read_checkpoint(tmp_path / "b")
    assert is_damaged(tmp_path / "b")


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_or_a_device_in_place_of_a_checkpoint_is_not_opened(tmp_path, put):
    store = Checkpoints(tmp_path, 0, keep=3)
    assert store.save(GOOD, 1, 4)
    for name in ("checkpoint_000000009_9.pth", "best_000000009_9_reward_1.000.pth", "donation.pth"):
        put(store.folder / name)
        assert is_damaged(store.folder / name)
        with pytest.raises(CheckpointError, match="named pipe|device"):
            read_checkpoint(store.folder / name)
    assert store.load()["train_step"] == 1


def test_a_pipe_or_a_link_with_the_name_of_an_unfinished_file_is_replaced(tmp_path):
    (tmp_path / "own").write_text("text")
    store = Checkpoints(tmp_path, 0, keep=3)
    store.folder.mkdir()
    for put in (os.mkfifo, lambda path: path.symlink_to(tmp_path / "own")):
        put(store.folder / ".temp_checkpoint")
        assert read_checkpoint(store.save(GOOD, 1, 4))["train_step"] == 1
    assert (tmp_path / "own").read_text() == "text"


def test_names_with_impossible_counts_are_no_checkpoints(tmp_path):
    folder = tmp_path / "checkpoint_p0"
    (folder / "milestones").mkdir(parents=True)
    for count in (str(10**18), "9" * 200):
        for name in (
            f"checkpoint_{count}_1.pth",
            f"checkpoint_000000001_{count}.pth",
            f"best_{count}_1_a_1.0.pth",
        ):
            (folder / name).touch()
            (folder / "milestones" / f"{name}.milestone").touch()
    assert not find_checkpoints(tmp_path, 0, "latest") and not find_checkpoints(tmp_path, 0, "best")
    assert not find_milestones(tmp_path, 0)


@pytest.mark.parametrize("optimizer", ["adam", "lamb", "rmsprop"])
def test_moments_of_other_shapes_than_the_weights_not_finite_or_negative_are_refused(optimizer):
    flags = LearningFlags(optimizer=optimizer)

    def made():
        weight = torch.nn.Parameter(torch.ones(64))
        return weight, make_optimizer(flags, [weight])

    weight, source = made()
    weight.grad = torch.ones(64)
    source.step()
    saved = source.state_dict()
    check_optimizer(made()[1], saved)
    for name, moment in saved["state"][0].items():
        below = () if name == "exp_avg" else (-moment.abs(),)
        for wrong in (torch.ones(1), torch.ones(65), "1", None, moment + torch.inf, *below):
            changed = {**saved, "state": {0: {**saved["state"][0], name: wrong}}}
            with pytest.raises(ValueError, match="optimizer does not fit"):
                check_optimizer(made()[1], changed)
        missing = {key: value for key, value in saved["state"][0].items() if key != name}
        with pytest.raises(ValueError, match="optimizer does not fit"):
            check_optimizer(made()[1], {**saved, "state": {0: missing}})
