"""Rules for every algorithm: masks, memory, several kinds of actions, resuming, taking over."""

import numpy as np
import pytest
import torch

from sample_factory.config.algorithms import BUILT_IN
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.config.parsing import parse_config
from sample_factory.config.population_flags import PbtFlags
from sample_factory.envs.env_registry import resolve_family
from sample_factory.population.pbt import tuned_hyperparameters
from tests.learning.algorithms.learners import ACTIONS, make_batch, make_learner, same, state_of
from tests.learning.test_learner import all_finite, join

OTHERS = [name for name in BUILT_IN if name != "APPO"]
EVERY_OTHER = pytest.mark.parametrize("algo", OTHERS)
VARIANTS = {
    "APPO": {},
    "APPO, GAE": {"with_vtrace": False},
    "APPO, adaptive rate": {"lr_schedule": "kl_adaptive_minibatch"},
    "APPO, LAMB": {"optimizer": "lamb", "ppo_epochs": 2},
    **{name: {} for name in OTHERS},
}
EVERY = pytest.mark.parametrize(
    ("algo", "flags"), [(name.partition(",")[0], flags) for name, flags in VARIANTS.items()], ids=VARIANTS
)


@EVERY
@pytest.mark.parametrize("actions", ACTIONS)
def test_masked_trajectories_and_what_they_hold_change_nothing(algo, flags, actions):
    alone, mixed = (make_learner(algo, actions, **flags) for _ in range(2))
    for seed in range(2):
        mine = make_batch(alone, seed, masked=0.0)
        other = make_batch(alone, seed + 10)
        nothing = torch.zeros_like(other.own)
        garbage = {name: torch.full_like(other.rewards, float("nan")) for name in ("rewards", "log_probs")}
        before = state_of(alone)
        alone.train(mine)
        mixed.train(join(mine, other._replace(own=nothing, **garbage)))
        after = state_of(alone)
        assert not same(after, before)
        for name, tensor in state_of(mixed).items():
            torch.testing.assert_close(tensor, after[name], rtol=1e-4, atol=2e-5, msg=name)


@EVERY
def test_a_batch_without_a_valid_sample_moves_nothing_not_even_by_momentum(algo, flags):
    learner = make_learner(algo, **flags)
    learner.train(make_batch(learner, 1))
    batch = make_batch(learner, 2)
    before, rate = state_of(learner), learner._lr.value
    summaries = learner.train(batch._replace(own=torch.zeros_like(batch.own)), want_summaries=True)
    trained = {name: value for name, value in state_of(learner).items() if not name.startswith("target.")}
    assert same(trained, {name: before[name] for name in trained})
    assert learner._lr.value == rate or not learner._lr.needs_kl
    assert all(np.isfinite(number) for number in summaries.values())


@EVERY
@pytest.mark.parametrize("extreme", [float("inf"), -float("inf"), 1e30])
def test_an_infinite_log_prob_moves_the_weights_by_finite_numbers_only(algo, flags, extreme):
    learner = make_learner(algo, **flags)
    batch = make_batch(learner)
    batch.log_probs[3, 2] = extreme
    before = state_of(learner)
    learner.train(batch, want_summaries=True)
    assert all_finite(learner) and not same(state_of(learner), before)
    assert learner.state_dict()["skipped_steps"] == 0


@EVERY
@pytest.mark.parametrize("use_rnn", [True, False])
def test_a_batch_of_one_sample_keeps_everything_finite(algo, flags, use_rnn):
    learner = make_learner(algo, use_rnn=use_rnn, **flags)
    batch = make_batch(learner, columns=1)
    own = torch.zeros_like(batch.own)
    own[0] = True
    for _ in range(3):
        summaries = learner.train(batch._replace(own=own), want_summaries=True)
    assert all_finite(learner) and all(np.isfinite(number) for number in summaries.values())


@EVERY
@pytest.mark.parametrize("actions", ["tuple"])
def test_a_resumed_run_continues_with_the_same_numbers(algo, flags, actions):
    flags = {**flags, "num_batches_per_iteration": 2, "recurrence": 4, "impact_buffer_batches": 1}
    straight, first = (make_learner(algo, actions, **flags) for _ in range(2))
    batches = [make_batch(straight, seed, num_chunks=2) for seed in range(4)]
    for learner in (straight, first):
        for batch in batches[:3]:
            learner.train(batch)
    resumed = make_learner(algo, actions, **flags)
    resumed.load_state_dict(first.state_dict())
    assert same(state_of(resumed), state_of(straight))
    straight.train(batches[3])
    resumed.train(batches[3])
    assert same(state_of(resumed), state_of(straight))
    assert (resumed.version, resumed.env_frames) == (straight.version, straight.env_frames)


@EVERY_OTHER
def test_a_policy_takes_over_all_modules_and_new_hyperparameters(algo):
    donor, receiver = (make_learner(algo) for _ in range(2))
    donor.train(make_batch(donor, 1))
    receiver.train(make_batch(receiver, 2))
    receiver.take_over(donor.state_dict())
    assert same(state_of(receiver), state_of(donor))
    names = tuned_hyperparameters(PbtFlags(), algo)
    receiver.set_hyperparameters({name: 2 * getattr(receiver.flags, name) for name in names})
    for learner in (donor, receiver):
        batch = make_batch(learner, 3)
        learner.train(batch._replace(generations=torch.full_like(batch.generations, learner._generation)))
    assert not same(state_of(receiver), state_of(donor)), "they are in use"


@EVERY_OTHER
def test_training_that_continues_with_another_algorithm_starts_with_copies_of_the_trained_network(algo):
    before = make_learner("APPO", optimizer=make_learner(algo).flags.optimizer, normalize_returns=False)
    before.train(make_batch(before, 1))
    learner = make_learner(algo, normalize_returns=False)
    learner.load_state_dict(before.state_dict())
    state = state_of(learner)
    copies = [name for name in state if name.startswith("target.")]
    assert all(torch.equal(state[name], state[name.replace("target.", "model.", 1)]) for name in copies)
    assert all(
        torch.equal(state[f"model.{name}"], value) for name, value in before.model.state_dict().items()
    )


@EVERY_OTHER
def test_the_action_that_pays_is_learned(algo):
    """Choice 2 is rewarded; the others are not."""
    learner = make_learner(algo, use_rnn=False, learning_rate=1e-2, lr_schedule="constant", gamma=0.0)
    for seed in range(30):
        batch = make_batch(learner, seed, masked=0.0)
        learner.train(batch._replace(rewards=(batch.actions[..., 0] == 2).float()))
    logits = make_batch(learner, 99, masked=0.0).logits
    assert logits.softmax(-1)[..., 2].mean() > 0.7


def typed(*argv):
    return parse_config(["--env=gym_CartPole-v1", *argv], resolve_family)


def test_flags_of_another_algorithm_in_a_file_are_no_error(tmp_path):
    """A recipe of PPO can be tried with another algorithm."""
    file = tmp_path / "recipe.json"
    file.write_text('{"ppo_clip_ratio": 0.2, "learning_rate": 0.1}')
    config = typed("--algo=IMPALA", f"--cfg={file}")
    assert config.learning.learning_rate == 0.1


def test_typed_flags_win_over_the_algorithm_and_that_over_the_env_family():
    config = typed("--algo=IMPALA", "--max_grad_norm=7")
    assert config.learning.max_grad_norm == 7.0
    assert config.learning.learning_rate == 4.8e-4 != typed().learning.learning_rate
    assert typed().learning.optimizer == LearningFlags.optimizer == "adam"
