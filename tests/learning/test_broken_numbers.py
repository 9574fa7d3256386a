"""What is saved while the numbers of a training are broken, and after they have ended it."""

from dataclasses import replace

import pytest
import torch

from sample_factory.checkpoints.milestones import BEST_SNAPSHOT, DONATION
from sample_factory.checkpoints.store import Checkpoints
from sample_factory.exchange.messages import NewSettings, SnapshotRequest
from sample_factory.learning.gradient_descent import NumericalError
from sample_factory.learning.saver import Saver
from tests.learning.test_learner import make_batch, make_learner

KEEP = 2


def start(folder):
    """Returns a learner and its saver, as a run starts or resumes them; a checkpoint is always due."""
    learner = make_learner()
    config = learner._args.config
    monitoring = replace(config.monitoring, save_every_sec=1e-9, save_milestones_sec=1e-9)
    args = learner._args._replace(config=replace(config, monitoring=monitoring))
    return learner, Saver(learner, Checkpoints(folder, 0, KEEP, learner.check_state), args)


def train(learner, saver, is_finite=True):
    """Trains on one batch, then saves what is due."""
    batch = make_batch(seed=learner.version)
    batch = batch._replace(versions=torch.full_like(batch.versions, learner.version))
    if not is_finite:
        batch = batch._replace(rewards=torch.full_like(batch.rewards, torch.nan))
    learner.train(batch)
    saver.save_when_due(lambda report: None)


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def trained(tmp_path):
    """A learner and its saver, with KEEP checkpoints and milestones."""
    learner, saver = start(tmp_path)
    for _ in range(KEEP):
        train(learner, saver)
    assert len(files(tmp_path)) == 2 * KEEP
    return learner, saver


def test_runs_that_fail_by_their_numbers_leave_all_files_as_they_were_however_often_they_restart(
    trained, tmp_path
):
    before = files(tmp_path)
    learner, saver = trained
    for _ in range(2 * KEEP):
        with pytest.raises(NumericalError, match="not finite for 20 steps in a row"):
            while True:
                train(learner, saver, is_finite=False)
        assert saver.save(), "nothing is lost that was to be saved"
        assert files(tmp_path) == before
        learner, saver = start(tmp_path)


def test_while_the_newest_step_was_not_finite_nothing_is_written(trained, tmp_path, caplog):
    before = files(tmp_path)
    learner, saver = trained
    train(learner, saver, is_finite=False)
    assert all(saver.answer(SnapshotRequest(name)).path is None for name in (BEST_SNAPSHOT, DONATION))
    assert saver.save() and "the newest SGD step has failed" in caplog.text
    assert files(tmp_path) == before
    train(learner, saver)
    assert len(files(tmp_path)) == 2 * KEEP + 1, "one milestone more"
    assert saver.answer(SnapshotRequest(BEST_SNAPSHOT)).path is not None


def test_a_resumed_run_deletes_nothing_before_its_first_finite_step(trained, tmp_path):
    before = files(tmp_path)
    for _ in range(KEEP + 1):
        learner, saver = start(tmp_path)
        learner.version += 1  # as after a step without a valid sample
        saver.save_when_due(lambda report: None)
        assert saver.save() and before.items() < files(tmp_path).items()


def broken_states(learner):
    """Yields a text and a learner's state with one number that no sound training has."""
    for value in (torch.nan, torch.inf, -torch.inf):
        yield f"weight {value}", next(learner.model.parameters()).data, value
    (optimizer,) = learner.descent._optimizers.values()
    moments = next(iter(optimizer.state.values()))
    for name, value in (
        ("exp_avg", torch.inf),
        ("exp_avg_sq", torch.inf),
        ("exp_avg_sq", -1.0),
        ("step", -1.0),
    ):
        yield f"{name} {value}", moments[name], value
    normalizer = learner.model.observation_normalizers.normalizers[0]
    for name, value in (("variance", -1.0), ("count", -1.0), ("mean", torch.nan)):
        yield f"{name} {value}", getattr(normalizer, name), value


def test_states_that_a_reader_would_refuse_are_never_written_and_are_refused_by_a_reader(trained, tmp_path):
    before = files(tmp_path)
    learner, saver = trained
    store = saver._checkpoints
    path = store.folder / "checkpoint_999999999_4.pth"
    for text, tensor, value in broken_states(learner):
        sound = tensor.clone()
        tensor.view(-1)[0] = value
        assert not saver.save() and saver.answer(SnapshotRequest(DONATION)).path is None, text
        assert store.save_milestone(*saver._state()) is None
        assert files(tmp_path) == before
        torch.save({**learner.state_dict(), "train_step": 999_999_999}, path)
        tensor.copy_(sound)
        assert store.load(check=make_learner().load_state_dict)["train_step"] < 999_999_999, text
        path.unlink()
    train(learner, saver)
    assert saver.save()


def test_a_network_whose_buffers_are_infinite_is_saved_and_resumed(tmp_path):
    learner, saver = start(tmp_path)
    learner.model.register_buffer("bounds", torch.tensor([-torch.inf, torch.inf]))
    train(learner, saver)
    assert saver.save()
    assert saver._checkpoints.load(check=learner.load_state_dict)["model"]["bounds"].isinf().all()


def test_weights_taken_over_delete_no_checkpoint_before_a_finite_step_and_their_file_goes(trained, tmp_path):
    donation = trained[1].answer(SnapshotRequest(DONATION)).path
    learner, saver = start(tmp_path)
    train(learner, saver)
    checkpoints = {name for name in files(tmp_path) if name.match("*/checkpoint_*.pth")}
    learner.version += 1
    assert not saver.answer(NewSettings({}, donation)).error
    assert checkpoints < set(files(tmp_path)) and not list(tmp_path.rglob(DONATION))
