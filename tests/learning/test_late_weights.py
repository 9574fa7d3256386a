"""--forced_policy_lag: the age of the weights that act."""

import numpy as np

from sample_factory.exchange.policy_weights import Stamp
from sample_factory.learning.learner import Learner, Weights
from sample_factory.learning.trainer import LateWeights
from tests.system.running import SMALL, train

LAG = 8


def acting_versions(late, versions, generation=0):
    """Returns the version and the content of the weights that act after each of these versions."""
    shared = np.zeros(2)  # the learner overwrites its weights in place
    found = []
    for version in versions:
        shared[:] = version
        state, stamp = late.newest_to_act(Weights({"weight": shared}, Stamp(version, generation)))
        assert state["weight"].tolist() == [stamp.version] * 2 and stamp.generation == generation
        found.append(stamp.version)
    return found


def test_the_newest_weights_that_are_old_enough_act_and_the_first_ones_until_there_are_any():
    assert acting_versions(LateWeights(5), range(0, 15, 3)) == [0, 0, 0, 3, 6]
    assert acting_versions(LateWeights(3), range(0, 15, 3)) == [0, 0, 3, 6, 9]
    assert acting_versions(LateWeights(0), range(0, 15, 3)) == [0, 3, 6, 9, 12]


def test_weights_that_were_taken_over_act_at_once():
    late = LateWeights(4)
    assert acting_versions(late, [1, 2, 3], generation=0) == [1, 1, 1]
    assert acting_versions(late, [3, 4, 7, 8], generation=1) == [3, 3, 3, 4]


def test_all_samples_are_that_old_after_as_many_steps_also_after_a_resume(tmp_path, monkeypatch):
    lags = []
    train_batch = Learner.train

    def recording(learner, batch, want_summaries=False):
        lags.append((learner.version, int((learner.version - batch.versions[batch.own]).min())))
        return train_batch(learner, batch, want_summaries)

    monkeypatch.setattr(Learner, "train", recording)
    first = 0
    for frames in (3072, 6144):
        flags = ["--env=gym_CartPole-v1", "--experiment=a", "--serial_mode=True", "--seed=1"]
        flags += [*SMALL, "--num_batches_per_iteration=3", "--ppo_epochs=1"]
        flags += [f"--forced_policy_lag={LAG}", f"--train_for_env_steps={frames}"]
        state = train(tmp_path, *flags)
        late = [lag for version, lag in lags if version >= first + 2 * LAG]
        assert late and min(late) >= LAG
        first = state["train_step"]
        lags.clear()
