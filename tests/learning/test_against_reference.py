"""Compares Learner.train with a slow and simple implementation: loops over steps, one sample at a time."""

import copy
import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from tests.learning.learners import build_learner, plain_batch

T, B, H, CHOICES, SEED = 8, 6, 10, 3, 5
SPACE = gym.spaces.Dict({"obs": gym.spaces.Box(-5, 5, (4,), np.float32)})

CASES = {
    "vtrace": {},
    "vtrace_without_memory": {"use_rnn": False},
    "vtrace_in_chunks_and_minibatches": {"recurrence": 4, "num_batches_per_iteration": 3, "ppo_epochs": 2},
    "vtrace_clips": {"vtrace_rho": 0.7, "vtrace_c": 1.4, "ppo_clip_ratio": 0.3, "ppo_clip_value": 0.05},
    "vtrace_lambda": {"vtrace_lambda": 0.7},
    "gae": {"with_vtrace": False, "gae_lambda": 0.8},
    "gae_in_chunks_and_minibatches": {
        "with_vtrace": False,
        "recurrence": 2,
        "num_batches_per_iteration": 4,
        "ppo_epochs": 3,
    },
    "in_order": {"shuffle_minibatches": False, "num_batches_per_iteration": 2},
    "time_limits_are_terminal": {"value_bootstrap": False, "gamma": 0.9},
    "raw_returns": {"normalize_returns": False, "with_vtrace": False},
    "weights_of_losses": {"value_loss_coeff": 0.9, "kl_loss_coeff": 0.4, "exploration_loss_coeff": 0.1},
    "symmetric_kl": {"exploration_loss": "symmetric_kl", "exploration_loss_coeff": 0.1},
    "small_gradients": {"max_grad_norm": 0.05},
}


def make_learner(use_rnn=True, recurrence=T, **flags):
    # With a large epsilon, Adam's step is a smooth function of the gradient.
    chosen = {"rollout": T, "recurrence": recurrence, "batch_size": T * B, "adam_eps": 0.1, **flags}
    learning = {**chosen, "learning_rate": 0.05}
    model = {"use_rnn": use_rnn, "hidden_size": H, "encoder_mlp_layers": (H,)}
    actions = gym.spaces.Discrete(CHOICES)
    learner = build_learner(SPACE, actions, learning, model, max_policy_lag=10, seed=SEED)
    if learner.model.returns_normalizer is not None:
        learner.model.returns_normalizer.update(torch.tensor([1.0, 4.0, -2.0]))
    return learner


def random_batch(learner, num_chunks):
    rng = np.random.default_rng(SEED)
    ended = rng.random((T, B)) < 0.25
    truncated = ended & (rng.random((T, B)) < 0.5)
    own = rng.random((T, B)) < 0.85
    active_at_end = rng.random((1, B)) < 0.7

    def normal(*shape):
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))

    logits, actions = normal(T, B, CHOICES), torch.from_numpy(rng.integers(0, CHOICES, (T, B, 1)))
    return plain_batch(
        obs={"obs": normal(T + 1, B, 4)},
        actions=actions.float(),
        log_probs=logits.log_softmax(-1).gather(-1, actions)[..., 0],
        values=normal(T, B) * 0.1,
        logits=logits,
        rewards=normal(T, B),
        terminated=ended & ~truncated,
        truncated=truncated,
        own=own,
        active_at_end=active_at_end,
        chunk_rnn_states=normal(num_chunks, B, learner.model.state_size) * 0.3,
        resets=np.concatenate([np.zeros((1, B), bool), ended | ~own]),
    )


class Trajectory:
    """One column of a batch, as the reference is trained on it."""

    def __init__(self, batch, column):
        self.batch, self.column = batch, column

    def at(self, name, t):
        return getattr(self.batch, name)[t, self.column]

    def forward(self, model):
        """Returns logits and value of steps 0 to T, computed one step at a time."""
        outputs, length = [], T // len(self.batch.chunk_rnn_states)
        for t in range(T + 1):
            if t < T and t % length == 0:
                state = self.at("chunk_rnn_states", t // length)[None]  # no gradient flows further back
            elif self.at("resets", t):
                state = torch.zeros_like(state)
            obs = {key: tensor[t, self.column][None] for key, tensor in self.batch.obs.items()}
            output = model.unroll(obs, state)
            state = output.rnn_state
            outputs.append((output.logits[0, 0], output.values[0, 0]))
        return outputs

    def acted(self, model):
        """Returns distribution and value of steps 0 to T."""
        return [(model.distribution(logits), value) for logits, value in self.forward(model)]


def reference_targets(flags, trajectory, values, ratios):
    """Returns (return, advantage) of each step, by recursion over the steps."""
    results = {}
    for t in reversed(range(T)):
        terminated, truncated = bool(trajectory.at("terminated", t)), bool(trajectory.at("truncated", t))
        if not flags.value_bootstrap:
            terminated, truncated = terminated or truncated, False
        next_is_own = bool(trajectory.at("active_at_end", 0) if t + 1 == T else trajectory.at("own", t + 1))
        is_last = t + 1 == T or terminated or truncated or not next_is_own
        v, v_next = values[t], values[t + 1]
        bootstrap = 0.0 if terminated else v if truncated or not next_is_own else v_next
        delta = float(trajectory.at("rewards", t)) + flags.gamma * bootstrap - v
        if flags.with_vtrace:
            rho = min(flags.vtrace_rho, ratios[t])
            c = flags.vtrace_lambda * min(flags.vtrace_c, ratios[t])
            correction = 0.0 if is_last else results[t + 1][0] - v_next
            target = v + rho * delta + flags.gamma * c * correction
            advantage = rho * (delta + flags.gamma * correction)
        else:
            after = 0.0 if is_last else results[t + 1][1]
            advantage = delta + flags.gamma * flags.gae_lambda * after
            target = advantage + v
        results[t] = (target, advantage)
    return results


def reference_loss(flags, model, trajectories, fixed):
    """Computes the loss of a minibatch sample by sample."""
    normalizer = model.returns_normalizer
    samples = []
    for trajectory in trajectories:
        outputs, ratios = trajectory.forward(model), {}
        for t in range(T):
            action = int(trajectory.at("actions", t)[0])
            ratios[t] = (outputs[t][0].log_softmax(-1)[action] - trajectory.at("log_probs", t)).exp()
        if fixed is None:
            values = [reward_scale(model, value) for _, value in outputs]
            used = {t: float(r.detach()) if trajectory.at("own", t) else 1.0 for t, r in ratios.items()}
            targets = reference_targets(flags, trajectory, values, used)
        else:
            targets = fixed[trajectory.column]
        for t in range(T):
            if trajectory.at("own", t):
                samples.append((trajectory, t, *outputs[t], ratios[t], *targets[t]))
    advantages = [sample[-1] for sample in samples]
    mean = sum(advantages) / len(samples)
    std = max(1e-3, math.sqrt(sum((a - mean) ** 2 for a in advantages) / len(samples)))
    returns = torch.tensor([sample[-2] for sample in samples])
    if normalizer is not None:
        if fixed is None:
            normalizer.update(returns)
        returns = normalizer.normalize(returns)
    total = 0.0
    for (trajectory, t, logits, value, ratio, _, advantage), target in zip(samples, returns):
        advantage = (advantage - mean) / std
        total = total + sample_loss(flags, trajectory, t, logits, value, ratio, advantage, target)
    return total / len(samples)


def reward_scale(model, value):
    normalizer, value = model.returns_normalizer, value.detach()
    return float(value if normalizer is None else normalizer.denormalize(value))


def sample_loss(flags, trajectory, t, logits, value, ratio, advantage, target):
    e = flags.ppo_clip_ratio
    ratio = ratio.clamp(1 / 20, 20)
    loss = -min(ratio * advantage, ratio.clamp(1 / (1 + e), 1 + e) * advantage)
    old = trajectory.at("values", t)
    near = old + (value - old).clamp(-flags.ppo_clip_value, flags.ppo_clip_value)
    loss = loss + flags.value_loss_coeff * max((value - target) ** 2, (near - target) ** 2)
    log_pi, log_mu = logits.log_softmax(-1), trajectory.at("logits", t).log_softmax(-1)
    if flags.exploration_loss == "entropy":
        exploration = (log_pi.exp() * log_pi).sum()
    else:
        exploration = ((log_pi.exp() - 1 / CHOICES) * (log_pi + math.log(CHOICES))).sum() / 2
    loss = loss + flags.exploration_loss_coeff * exploration
    return loss + flags.kl_loss_coeff * (log_pi.exp() * (log_pi - log_mu)).sum()


def reference_train(flags, model, batch):
    """Trains the model in place."""
    trajectories = [Trajectory(batch, column) for column in range(B)]
    fixed = None if flags.with_vtrace else reference_gae(flags, model, trajectories)
    betas = (flags.adam_beta1, flags.adam_beta2)
    optimizer = torch.optim.Adam(model.parameters(), flags.learning_rate, betas, flags.adam_eps)
    rng = np.random.default_rng(SEED)
    for _ in range(flags.ppo_epochs):
        order = np.arange(B)
        if flags.num_batches_per_iteration > 1 and flags.shuffle_minibatches:
            rng.shuffle(order)
        for columns in np.array_split(order, flags.num_batches_per_iteration):
            optimizer.zero_grad()
            reference_loss(flags, model, [trajectories[column] for column in columns], fixed).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), flags.max_grad_norm)
            optimizer.step()


@torch.no_grad()
def reference_gae(flags, model, trajectories):
    """Returns the targets of each trajectory by the values before the first SGD step, and counts them."""
    results = []
    for trajectory in trajectories:
        values = [reward_scale(model, value) for _, value in trajectory.forward(model)]
        results.append(reference_targets(flags, trajectory, values, None))
    if model.returns_normalizer is not None:
        returns = [
            targets[t][0]
            for targets, trajectory in zip(results, trajectories)
            for t in range(T)
            if trajectory.at("own", t)
        ]
        model.returns_normalizer.update(torch.tensor(returns))
    return results


@pytest.mark.parametrize("case", CASES)
def test_training_is_its_definition(case):
    """Weights, statistics of returns and the last gradient agree after a whole iteration."""
    learner = make_learner(**CASES[case])
    batch = random_batch(learner, T // CASES[case].get("recurrence", T))
    model = copy.deepcopy(learner.model)
    reference_train(learner.flags, model, batch)
    start = {name: parameter.clone() for name, parameter in learner.model.named_parameters()}
    learner.train(batch)
    for name, parameter in learner.model.named_parameters():
        expected = dict(model.named_parameters())[name]
        torch.testing.assert_close(parameter, expected, atol=2e-5, rtol=1e-4, msg=name)
        torch.testing.assert_close(parameter.grad, expected.grad, atol=1e-4, rtol=1e-3, msg=name)
        assert (parameter - start[name]).abs().max() > 1e-4
    if learner.model.returns_normalizer is not None:
        ours, expected = learner.model.returns_normalizer, model.returns_normalizer
        # Counted in float64 from returns in float32, whose last digit depends on the CPU.
        statistics = ((ours.mean, ours.variance), (expected.mean, expected.variance))
        torch.testing.assert_close(*statistics, atol=1e-6, rtol=1e-6)
