from pathlib import Path

import pytest
import torch

from sample_factory.checkpoints.milestones import DONATION
from sample_factory.checkpoints.store import Checkpoints
from sample_factory.exchange.messages import NewSettings, SettingsTaken, SnapshotRequest
from sample_factory.learning import gradient_descent
from sample_factory.learning.saver import Saver
from tests.learning.test_learner import B, T, make_batch, make_learner, weights

LR = {"learning_rate": 0.5}


@pytest.fixture
def donor_and_receiver(tmp_path):
    donor, receiver = make_learner(), make_learner()
    donor.train(make_batch(seed=1))
    receiver.train(make_batch(seed=2))
    return [
        (learner, Saver(learner, Checkpoints(tmp_path, policy, 2), learner._args))
        for policy, learner in enumerate((donor, receiver))
    ]


def donate(giving):
    """Returns the path of the donor's snapshot."""
    return giving.answer(SnapshotRequest(DONATION)).path


def moments(learner):
    state = learner.state_dict()["optimizer"]["state"]
    return torch.cat([part["exp_avg"].reshape(-1) for part in state.values()])


def test_the_receiver_has_the_donors_weights_and_moments_and_its_own_counters(donor_and_receiver):
    (donor, giving), (receiver, taking) = donor_and_receiver
    receiver.train(make_batch(seed=3))
    samples, frames = receiver.samples, receiver.env_frames
    version = receiver.version
    answer = taking.answer(NewSettings(LR, donate(giving)))
    assert receiver.version == version, "it counts SGD steps only"
    assert answer == SettingsTaken("")
    assert torch.equal(weights(receiver), weights(donor)) and torch.equal(moments(receiver), moments(donor))
    assert (receiver.samples, receiver.env_frames) == (samples, frames) != (donor.samples, donor.env_frames)


def test_a_run_that_ends_right_after_a_takeover_resumes_from_the_donors_weights(donor_and_receiver, tmp_path):
    (donor, giving), (receiver, taking) = donor_and_receiver
    taking.answer(NewSettings(LR, donate(giving)))
    resumed = make_learner()
    assert Checkpoints(tmp_path, 1, 2).load(check=resumed.load_state_dict) is not None
    assert torch.equal(weights(resumed), weights(donor)) and resumed.version == receiver.version
    assert (resumed.samples, resumed.env_frames) == (receiver.samples, receiver.env_frames)


def test_the_donation_is_the_donors_state_at_the_time_of_the_request(donor_and_receiver):
    (donor, giving), (receiver, taking) = donor_and_receiver
    donation = donate(giving)
    then = weights(donor).clone()
    donor.train(make_batch(seed=4))
    taking.answer(NewSettings({}, donation))
    assert torch.equal(weights(receiver), then)


def test_samples_of_the_former_weights_are_no_longer_trained_on(donor_and_receiver):
    (_, giving), (receiver, taking) = donor_and_receiver
    in_flight = make_batch(seed=5)._replace(versions=torch.full((T, B), receiver.version, dtype=torch.int32))
    taking.answer(NewSettings({}, donate(giving)))
    before, samples = weights(receiver).clone(), receiver.samples
    receiver.train(in_flight)
    assert receiver.samples == samples and torch.equal(weights(receiver), before)
    assert receiver.weights().stamp.generation == 1
    fresh = in_flight._replace(generations=torch.ones(T, B, dtype=torch.int32))
    summaries = receiver.train(fresh, want_summaries=True)
    assert receiver.samples == samples + T * B
    # The version does not jump, so that the lag is the number of SGD steps since these samples.
    assert summaries["version_diff_max"] == 1


def flip_a_bit(file, learner):
    weight = next(iter(learner.state_dict()["model"].values()))
    place = file.read_bytes().index(weight.numpy().tobytes())
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(bytes([file.read_bytes()[place] ^ 1]))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda file, donor: file.unlink(), "No such file"),
        (lambda file, donor: file.write_bytes(file.read_bytes()[:-100]), "cut off"),
        (flip_a_bit, "the checksum"),
        (lambda file, donor: torch.save({"model": {}}, file), "another network"),
    ],
)
def test_a_file_that_is_damaged_or_missing_is_refused_and_nothing_changes(donor_and_receiver, damage, reason):
    (donor, giving), (receiver, taking) = donor_and_receiver
    donation = donate(giving)
    damage(Path(donation), donor)
    before, version = weights(receiver).clone(), receiver.version
    answer = taking.answer(NewSettings(LR, donation))
    assert reason in answer.error
    assert torch.equal(weights(receiver), before) and receiver.version == version


def test_a_donor_that_cannot_write_answers_without_a_path(donor_and_receiver, monkeypatch):
    (_, giving), _ = donor_and_receiver

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    assert donate(giving) is None


def test_new_settings_apply_from_the_next_step_on(donor_and_receiver):
    _, (receiver, taking) = donor_and_receiver
    taking.answer(NewSettings({"learning_rate": 0.0, "batch_size": 2 * T}, None))
    before = weights(receiver).clone()
    receiver.train(make_batch(seed=6))
    assert torch.equal(weights(receiver), before), "a rate of 0 moves nothing"
    assert receiver.trajectories_per_batch == 2


def test_every_learner_of_a_policy_waits_for_samples_of_the_new_weights(donor_and_receiver, monkeypatch):
    (_, giving), (receiver, taking) = donor_and_receiver
    monkeypatch.setattr(gradient_descent, "MAX_EMPTY_STEPS_IN_A_ROW", 3)
    second = make_learner()
    second.share_state(receiver.shared_state())
    taking.answer(NewSettings({}, donate(giving)))
    second.share_state(receiver.shared_state())
    stale = make_batch(seed=5)
    for learner in (receiver, second):
        for _ in range(2 * 3):
            learner.train(stale._replace(versions=torch.full_like(stale.versions, learner.version)))
        assert learner.weights().stamp.generation == 1
