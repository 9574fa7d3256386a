import gymnasium as gym
import numpy as np
import pytest
import torch

from sample_factory.config.sections import LearningFlags
from sample_factory.learning import gradient_descent
from sample_factory.learning.algorithms.algorithm import evaluate, recorded
from sample_factory.learning.algorithms.targets import transitions
from sample_factory.learning.batch import Batch, join_chunks, unroll
from sample_factory.learning.gradient_descent import NumericalError
from tests.learning.learners import build_learner, plain_batch

T, B, H = 8, 6, 16
SPACE = gym.spaces.Dict({"obs": gym.spaces.Box(-5, 5, (4,), np.float32)})
ACTIONS = gym.spaces.Discrete(3)


def make_learner(use_rnn=False, sample_ahead=False, **flags):
    learning = {"rollout": T, "batch_size": T * B, "normalize_returns": False, **flags}
    model = {"use_rnn": use_rnn, "hidden_size": H, "encoder_mlp_layers": (H,)}
    return build_learner(
        SPACE, ACTIONS, learning, model, max_policy_lag=10, frameskip=4, sample_ahead=sample_ahead
    )


def make_batch(columns=B, seed=0, state_size=0, chunks=1):
    rng = np.random.default_rng(seed)
    ended = rng.random((T, columns)) < 0.2
    truncated = ended & (rng.random((T, columns)) < 0.5)

    def tensor(*shape):
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))

    return plain_batch(
        obs={"obs": tensor(T + 1, columns, 4)},
        actions=torch.from_numpy(rng.integers(0, 3, (T, columns, 1)).astype(np.float32)),
        log_probs=-tensor(T, columns).abs() - 0.5,
        values=tensor(T, columns),
        logits=tensor(T, columns, 3),
        rewards=tensor(T, columns),
        terminated=ended & ~truncated,
        truncated=truncated,
        chunk_rnn_states=torch.zeros(chunks, columns, state_size),
    )


def weights(learner):
    return torch.cat([parameter.detach().reshape(-1) for parameter in learner.model.parameters()])


def join(left, right):
    """Returns two batches side by side."""
    obs = {key: torch.cat([left.obs[key], right.obs[key]], dim=1) for key in left.obs}
    tensors = {
        name: torch.cat([value, getattr(right, name)], dim=1)
        for name, value in left._asdict().items()
        if isinstance(value, torch.Tensor)
    }
    return Batch(obs, **tensors, resets=np.concatenate([left.resets, right.resets], axis=1))


@pytest.mark.parametrize("with_vtrace", [True, False])
def test_the_contents_of_a_masked_step_change_nothing_around_it(with_vtrace):
    """Neither before nor after it in the same trajectory, not even if it is NaN."""
    batch = make_batch()
    batch.own[3, 1] = batch.own[5:7, 4] = False
    garbage = {
        key: torch.where(batch.own, getattr(batch, key), float("nan"))
        for key in ("rewards", "log_probs", "values")
    }
    clean, dirty = (make_learner(with_vtrace=with_vtrace, normalize_returns=True) for _ in range(2))
    before = weights(clean).clone()
    clean.train(batch)
    dirty.train(batch._replace(**garbage))
    assert torch.equal(weights(clean), weights(dirty)) and not torch.equal(weights(clean), before)


def test_samples_that_are_too_old_are_masked_and_their_frames_still_counted():
    old = make_batch(seed=2)
    learner = make_learner()
    learner.version = 10
    before = weights(learner).clone()
    summaries = learner.train(old, want_summaries=True)
    assert torch.equal(weights(learner), before) or torch.allclose(weights(learner), before, atol=1e-6)
    assert summaries["valids_fraction"] == 0.0
    assert (learner.samples, learner.env_frames) == (0, T * B * 4)


def test_lag_one_short_of_the_limit_is_trained_on():
    learner = make_learner()
    learner.version = 9
    learner.train(make_batch())
    assert learner.samples == T * B


@pytest.mark.parametrize("poison", ["rewards", "log_probs"])
def test_a_step_with_nan_is_skipped_and_counted(poison):
    learner = make_learner()
    before = weights(learner).clone()
    batch = make_batch()
    bad = getattr(batch, poison).clone()
    bad[3, 2] = float("nan")
    learner.train(batch._replace(**{poison: bad}))
    assert torch.equal(weights(learner), before) and learner.state_dict()["skipped_steps"] == 1


def all_finite(learner):
    state = learner.state_dict()
    optimizer = [tensor for state in state["optimizer"]["state"].values() for tensor in state.values()]
    return all(tensor.isfinite().all() for tensor in [*state["model"].values(), *optimizer])


@pytest.mark.parametrize("with_vtrace", [True, False])
def test_a_constant_reward_keeps_everything_finite(with_vtrace):
    learner = make_learner(with_vtrace=with_vtrace, normalize_returns=True, exploration_loss_coeff=0)
    batch = make_batch()
    never = torch.zeros_like(batch.terminated)
    for key in ("rewards", "values"):
        batch = batch._replace(**{key: torch.zeros_like(batch.rewards)})
    batch = batch._replace(terminated=never, truncated=never)
    for _ in range(50):
        learner.train(batch)
    assert all_finite(learner) and learner.model.returns_normalizer.variance < 0.1


def test_nan_in_rewards_or_observations_does_not_stay_in_the_statistics():
    learner = make_learner(normalize_returns=True)
    batch = make_batch()
    batch.rewards[2, 1], batch.obs["obs"][4, 3, 0] = float("nan"), float("inf")
    learner.train(batch)
    assert all(tensor.isfinite().all() for tensor in learner.model.state_dict().values())


def test_skipped_steps_that_are_not_in_a_row_do_not_stop():
    learner = make_learner()
    good = make_batch()
    bad = good._replace(rewards=torch.full_like(good.rewards, float("nan")))
    for version in range(60):
        batch = good if version % 3 == 0 else bad
        learner.train(batch._replace(versions=torch.full_like(batch.versions, version)))
    assert learner.state_dict()["skipped_steps"] == 40


def test_observation_statistics_are_those_of_the_steps_acted_on_after_the_batch():
    learner, batch = make_learner(), make_batch()
    batch.own[2:5, 1] = False
    learner.train(batch)
    normalizer = learner.model.observation_normalizers.normalizers[0]
    seen = batch.obs["obs"][:-1][batch.own].double()
    count = len(seen) + 1  # the start counts as one sample, 0
    torch.testing.assert_close(normalizer.mean, seen.sum(0) / count)


def test_the_adaptive_rate_follows_the_kl_of_valid_steps():
    """Three learners: unchanged logits, changed logits of masked steps, changed logits of valid steps."""
    rates = []
    for change, own in ((False, True), (True, False), (True, True)):
        learner = make_learner(lr_schedule="kl_adaptive_epoch", lr_schedule_kl_threshold=0.1)
        batch = make_batch()
        logits = learner.model.unroll(batch.obs, batch.chunk_rnn_states[0], batch.resets).logits[:-1].detach()
        logits = logits.clone()
        if change:
            logits[:, 3:, 0] += 20.0
        valid = batch.own.clone()
        valid[:, 3:] = own
        learner.train(batch._replace(logits=logits, own=valid))
        rates.append(learner.state_dict()["curr_lr"])
    assert rates == pytest.approx([1.5e-4, 1.5e-4, 1e-4 / 1.5])


@pytest.mark.parametrize("use_rnn", [False, True])
def test_with_sample_ahead_ratios_are_relative_to_the_policy_before_the_first_step(use_rnn):
    """A learning rate of 0 leaves the policy as it was, so that none of its ratios may differ from 1."""
    flags = {"with_vtrace": False, "num_batches_per_iteration": 2, "batch_size": T * B // 2}
    batch = make_batch(state_size=H if use_rnn else 0)
    for sample_ahead in (True, False):
        learner = make_learner(use_rnn, sample_ahead, learning_rate=0.0, **flags)
        learner.version = 2  # the policy that acted, of version 0, is one iteration old
        summaries = learner.train(batch, want_summaries=True)
        assert (summaries["ratio_mean"] < 1e-5) == (summaries["kl_divergence"] < 1e-5) == sample_ahead
        assert (summaries["value_delta_max"] < 1e-5) == sample_ahead
        assert summaries["version_diff_avg"] == 2


def test_an_adapted_rate_survives_a_resume():
    learner = make_learner(lr_schedule="kl_adaptive_epoch")
    state = {**learner.state_dict(), "curr_lr": 0.0042}
    resumed = make_learner(lr_schedule="kl_adaptive_epoch")
    resumed.load_state_dict(state)
    assert resumed.state_dict()["curr_lr"] == 0.0042


def test_a_rate_that_is_typed_for_a_resume_is_used():
    state = {**make_learner(lr_schedule="kl_adaptive_epoch").state_dict(), "curr_lr": 0.0042}
    resumed = make_learner(lr_schedule="kl_adaptive_epoch", learning_rate=0.001)
    resumed.load_state_dict(state)
    assert resumed.state_dict()["curr_lr"] == 0.001


def test_a_rate_that_another_schedule_has_ended_at_0_is_within_the_bounds_after_a_resume():
    learner = make_learner(lr_schedule="linear_decay")
    learner.env_frames = 10**9  # its end
    learner.train(make_batch())
    state = learner.state_dict()
    assert state["curr_lr"] == 0.0
    resumed = make_learner(lr_schedule="kl_adaptive_epoch", lr_adaptive_min=1e-5)
    resumed.load_state_dict(state)
    assert resumed.state_dict()["curr_lr"] == 1e-5


def test_a_long_row_of_batches_without_a_valid_sample_stops_with_a_clear_error(monkeypatch):
    monkeypatch.setattr(gradient_descent, "MAX_EMPTY_STEPS_IN_A_ROW", 20)
    learner = make_learner()
    good, almost = make_batch(), 19
    empty = good._replace(own=torch.zeros_like(good.own))
    for batch in [*[empty] * almost, good, *[empty] * almost]:
        learner.train(batch._replace(versions=torch.full_like(batch.versions, learner.version)))
    before = weights(learner)
    with pytest.raises(
        NumericalError, match="nothing to learn from in 20 steps in a row: every sample had NaN"
    ):
        learner.train(empty)
    assert torch.equal(weights(learner), before)


def test_valid_samples_without_a_gradient_are_no_reason_to_stop(monkeypatch):
    monkeypatch.setattr(gradient_descent, "MAX_EMPTY_STEPS_IN_A_ROW", 3)
    learner = make_learner(exploration_loss_coeff=0.0)
    torch.nn.init.zeros_(learner.model.critic_head.weight)
    batch = make_batch()
    unpaid = {name: torch.zeros_like(getattr(batch, name)) for name in ("values", "rewards")}
    for _ in range(6):
        versions = torch.full_like(batch.versions, learner.version)
        summaries = learner.train(batch._replace(**unpaid, versions=versions), want_summaries=True)
        assert summaries["grad_norm"] == 0.0 < summaries["valids_fraction"]


@pytest.mark.parametrize(
    ("flags", "missing", "message"),
    [
        ({}, "train_step", "it has no train_step"),
        ({}, "env_steps", "it has no env_steps"),
        ({}, "curr_lr", "it has no curr_lr"),
        ({"use_rnn": True}, "", r"core.* is missing there and of shape \[.* here; \d+ more tensors"),
        ({"optimizer": "lamb"}, "", "the checkpoint is of --optimizer=adam, not lamb"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_by_what_differs_and_nothing_changes(flags, missing, message):
    state = {key: value for key, value in make_learner().state_dict().items() if key != missing}
    learner = make_learner(**flags)
    before = weights(learner).clone()
    with pytest.raises(ValueError, match=message):
        learner.load_state_dict(state)
    assert torch.equal(weights(learner), before)


def test_chunks_hold_the_same_experience_and_can_be_joined():
    batch = make_batch(state_size=H, chunks=4)
    obs, rnn_states, resets = batch.chunks()
    assert obs["obs"].shape == (3, 4 * B, 4)
    for chunk in range(4):
        columns = slice(chunk * B, (chunk + 1) * B)
        assert torch.equal(obs["obs"][:, columns], batch.obs["obs"][2 * chunk : 2 * chunk + 3])
        assert torch.equal(rnn_states[columns], batch.chunk_rnn_states[chunk])
        assert np.array_equal(resets[1:, columns], batch.resets[2 * chunk + 1 : 2 * chunk + 3])
    assert not resets[0].any()
    assert torch.equal(join_chunks(obs["obs"], 4), batch.obs["obs"])


@pytest.mark.parametrize("learning_rate, epochs", [(1e-10, 2), (1e-2, 5)])
def test_epochs_end_early_when_the_policy_loss_no_longer_changes(learning_rate, epochs):
    learner = make_learner(ppo_epochs=5, learning_rate=learning_rate)
    learner.train(make_batch())
    assert learner.version == epochs


def test_a_truncated_step_bootstraps_from_its_own_state_and_a_terminated_one_from_nothing():
    flags = LearningFlags(gamma=0.9)
    batch = make_batch(columns=1)._replace(
        terminated=torch.tensor([[False], [True]] + [[False]] * 6),
        truncated=torch.tensor([[False]] * 3 + [[True]] + [[False]] * 4),
    )
    values = torch.arange(9.0)[:, None]
    _, next_values, _, discounts, continues = transitions(flags, batch, values)
    assert next_values[:, 0].tolist() == [1, 2, 3, 3, 5, 6, 7, 8]
    assert discounts[:, 0].tolist() == pytest.approx([0.9, 0] + [0.9] * 6)
    assert continues[:, 0].tolist() == [1, 0, 1, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("value_bootstrap", [True, False])
def test_the_step_before_an_inactive_one_bootstraps_from_its_own_state(value_bootstrap):
    """Also where the inactive step is the first of the next rollout: the agent's episode goes on."""
    never = torch.zeros(T, 1, dtype=torch.bool)
    own = torch.tensor([[True]] * 3 + [[False]] * 2 + [[True]] * 3)
    batch = make_batch(columns=1)._replace(
        own=own, terminated=never, truncated=never, active_at_end=torch.tensor([[False]])
    )
    flags = LearningFlags(gamma=0.9, value_bootstrap=value_bootstrap)
    _, next_values, _, discounts, continues = transitions(flags, batch, torch.arange(9.0)[:, None])
    assert next_values[:, 0].tolist()[:3] == [1, 2, 2] and next_values[-1, 0] == 7
    assert continues[:, 0].tolist()[:3] == [1, 1, 0] and continues[-1, 0] == 0
    assert discounts[:, 0].tolist() == pytest.approx([0.9] * T)


def test_numbers_that_are_flags_are_the_flags_after_a_resume():
    state = make_learner(adam_beta1=0.9, adam_eps=1e-6).state_dict()
    resumed = make_learner(adam_beta1=0.8, adam_eps=1e-4)
    resumed.load_state_dict(state)
    group = resumed.state_dict()["optimizer"]["param_groups"][0]
    assert group["betas"] == (0.8, 0.999) and group["eps"] == 1e-4


def test_an_evaluation_recorded_by_the_current_weights_is_that_of_the_network():
    learner = make_learner()
    policy = learner.policy
    batch = make_batch()
    with torch.no_grad():
        unrolled = unroll(policy, batch)
    log_probs = policy.model.distribution(unrolled.logits[:-1]).log_prob(batch.actions)
    batch = batch._replace(values=unrolled.values[:-1], logits=unrolled.logits[:-1], log_probs=log_probs)
    known, computed = recorded(policy, batch), evaluate(policy, batch)
    torch.testing.assert_close(known.unrolled.values, computed.unrolled.values.detach())
    torch.testing.assert_close(known.unrolled.logits, computed.unrolled.logits.detach())
    torch.testing.assert_close(known.log_ratios, computed.log_ratios.detach())


@pytest.mark.parametrize(
    ("lag", "use_rnn", "are_used"), [(0, False, True), (1, False, False), (0, True, False)]
)
def test_targets_use_recorded_values_only_of_the_current_weights_without_memory(lag, use_rnn, are_used):
    def train(values):
        learner = make_learner(use_rnn, with_vtrace=False, ppo_epochs=2, ppo_clip_value=1e9)
        learner.version = lag
        batch = make_batch(state_size=learner.model.state_size)
        learner.train(batch._replace(values=torch.full_like(batch.values, values)))
        return weights(learner)

    assert torch.allclose(train(0.0), train(1.0), atol=1e-6) == (not are_used)
