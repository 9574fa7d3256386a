"""Turns a Batch into better weights and a TrainStats; knows no process and no queue."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sample_factory.algo.exploration_loss import EXPLORATION_LOSSES
from sample_factory.algo.ppo_loss import kl_loss, masked_mean, normalize_advantages, policy_loss, value_loss
from sample_factory.config.sections import LearningFlags
from sample_factory.exchange.policy_weights import Stamp
from sample_factory.learning.auxiliary import cpc_loss, make_cpc
from sample_factory.learning.batcher import Batch, join_pieces
from sample_factory.learning.compilation import compile_encoders
from sample_factory.learning.gradient_descent import MODEL, GradientDescent
from sample_factory.learning.optimizers import LearningRate
from sample_factory.learning.settings import LearnerSettings
from sample_factory.learning.targets import Targets, gae_targets, vtrace_targets
from sample_factory.learning.train_summaries import train_summaries
from sample_factory.models.actor_critic import Unroll
from sample_factory.runtime.gpu_work import Downloads

SAME_LOSS = 1e-6
# After a take-over: what is in buffers, in tickets and in batches by then.
STALE_ITERATIONS = 50


class TrainStats(NamedTuple):
    """What one iteration of training did. `summaries` is empty unless it was asked for."""

    version: int
    env_frames: int
    summaries: Mapping[str, float]


class Losses(NamedTuple):
    """The parts of a minibatch's loss, weighted, and what summaries are made of."""

    policy: Tensor
    value: Tensor
    exploration: Tensor
    kl: Tensor
    auxiliary: Tensor
    log_ratios: Tensor
    values: Tensor
    advantages: Tensor
    distribution: Any
    behavior: Any

    @property
    def total(self) -> Tensor:
        return self.policy + self.value + self.exploration + self.kl + self.auxiliary


class LastStep(NamedTuple):
    """The last SGD step of an iteration, for the summaries."""

    losses: Losses
    minibatch: Batch
    grad_norm: float


class Learner:
    """PPO on one policy. Promises:

    1. Steps that are another policy's, inactive, or max_policy_lag old, enter no loss and no statistic.
    2. Observation statistics change after a batch, never within: what acted and what is trained agree.
    3. A step whose gradient is not finite is skipped and counted; the weights stay finite.
    4. `state_dict` and `load_state_dict` carry on exactly: counters, weights, normalisers, optimizer,
       learning rate.
    """

    def __init__(self, policy_id: int, settings: LearnerSettings):
        torch.manual_seed(settings.seed)
        self.policy_id, self._settings, self._flags = policy_id, settings, settings.learning
        self.model, self.device, self.autocast = settings.policy.build(policy_id)
        self._download = Downloads(self.device)
        if settings.compile:
            compile_encoders(self.model, self.device)
        self._cpc = make_cpc(self._flags, self.model)
        modules = {MODEL: self.model} if self._cpc is None else {MODEL: self.model, "cpc": self._cpc}
        self._descent = GradientDescent(self._flags, modules)
        self._lr = LearningRate(self._flags, settings.train_for_env_frames)
        self._rng = np.random.default_rng(settings.seed)
        self.version = self.env_frames = self.samples = 0
        self._generation = (
            0  # how often `take_over` has replaced the weights; samples of former ones are stale
        )
        self.best_value: float | None = None

    def train(self, batch: Batch, want_summaries: bool = False) -> TrainStats:
        """One iteration: every epoch over every minibatch. Batch as the Batcher makes it."""
        self._lr.at_frame(self.env_frames)
        lag = self.version - batch.versions
        own = batch.own
        is_usable = (lag < self._settings.max_policy_lag) & (batch.generations == self._generation)
        batch = batch._replace(own=own & is_usable)
        last = self._train_epochs(batch, self._fixed_targets(batch))
        summaries = self._summaries(last, lag[own], batch.own[own]) if want_summaries else {}
        self.model.update_normalizers({key: tensor[:-1] for key, tensor in batch.obs.items()}, batch.own)
        self.env_frames += int(own.sum()) * self._settings.frameskip
        self.samples += int(batch.own.sum())
        return TrainStats(self.version, self.env_frames, summaries)

    def _train_epochs(self, batch: Batch, targets: Targets | None) -> "LastStep":
        """targets: as `_fixed_targets` gives them."""
        policy_losses: list[float] = []
        for _ in range(self._flags.ppo_epochs):
            epoch_losses, kls = [], []
            for index in _minibatches(batch.rewards.shape[1], self._flags, self._rng):
                minibatch = batch.select(index)
                fixed = None if targets is None else Targets(*(tensor[:, index] for tensor in targets))
                losses = self._losses(minibatch, fixed)
                last = LastStep(losses, minibatch, self._descent.step(losses.total, self._lr.value))
                self.version += 1
                epoch_losses.append(losses.policy.detach())
                if self._lr.needs_kl and minibatch.own.any():
                    kl = masked_mean(losses.behavior.kl(losses.distribution).detach(), minibatch.own)
                    kls.append(float(kl))
                    self._lr.after_minibatch(kls[-1])
            if kls:
                self._lr.after_epoch(float(np.mean(kls)))
            if self._flags.ppo_epochs > 1:
                policy_losses.append(float(torch.stack(epoch_losses).mean()))
                if len(policy_losses) > 1 and abs(policy_losses[-1] - policy_losses[-2]) < SAME_LOSS:
                    break
        return last

    def _unroll(self, minibatch: Batch) -> Unroll:
        """Of T+1 steps: the last value is the bootstrap."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            unrolled = self.model.unroll(*minibatch.pieces())
        return Unroll(*(join_pieces(tensor, minibatch.states.shape[0]) for tensor in unrolled))

    def _losses(self, minibatch: Batch, targets: Targets | None) -> Losses:
        flags, valid = self._flags, minibatch.own
        unrolled = self._unroll(minibatch)
        values, distribution = unrolled.values, self.model.distribution(unrolled.logits[:-1])
        behavior = self.model.distribution(minibatch.logits)
        log_ratios = distribution.log_prob(minibatch.actions) - minibatch.log_probs
        if targets is None:
            present = self._on_reward_scale(values.detach())
            if flags.with_vtrace:
                targets = vtrace_targets(flags, minibatch, present, log_ratios.detach())
            else:
                targets = gae_targets(flags, minibatch, present)
        advantages = normalize_advantages(targets.advantages, valid)
        returns = targets.returns
        if self.model.returns_normalizer is not None:
            self.model.returns_normalizer.update(returns, valid)
            returns = self.model.returns_normalizer.normalize(returns)
        value = value_loss(values[:-1], minibatch.values, returns, flags.ppo_clip_value, valid)
        policy = policy_loss(log_ratios, advantages, flags.ppo_clip_ratio, valid)
        return Losses(
            policy,
            value * flags.value_loss_coeff,
            self._exploration_loss(distribution, valid),
            self._kl_loss(distribution, behavior, valid),
            self._auxiliary_loss(minibatch, unrolled),
            log_ratios,
            values,
            advantages,
            distribution,
            behavior,
        )

    def _exploration_loss(self, distribution: Any, valid: Tensor) -> Tensor:
        flags = self._flags
        if flags.exploration_loss_coeff == 0:
            return torch.zeros((), device=valid.device)
        return EXPLORATION_LOSSES[flags.exploration_loss](distribution, valid) * flags.exploration_loss_coeff

    def _kl_loss(self, distribution: Any, behavior: Any, valid: Tensor) -> Tensor:
        if self._flags.kl_loss_coeff == 0:
            return torch.zeros((), device=valid.device)
        return kl_loss(distribution, behavior, valid) * self._flags.kl_loss_coeff

    def _auxiliary_loss(self, minibatch: Batch, unrolled: Unroll) -> Tensor:
        if self._cpc is None:
            return torch.zeros((), device=self.device)
        return cpc_loss(self._flags, self._cpc, minibatch, unrolled, self._rng)

    @torch.no_grad()
    def _fixed_targets(self, batch: Batch) -> Targets | None:
        """For all SGD steps of an iteration; None: each step computes them from its own values.

        V-trace follows the ratios that earlier steps changed. GAE stays with the values of the weights before
        the first step; if that is the only one, it computes those itself.
        """
        flags = self._flags
        if flags.with_vtrace or flags.ppo_epochs * flags.num_batches_per_iteration == 1:
            return None
        return gae_targets(flags, batch, self._on_reward_scale(self._unroll(batch).values))

    def _on_reward_scale(self, values: Tensor) -> Tensor:
        normalizer = self.model.returns_normalizer
        return values if normalizer is None else normalizer.denormalize(values)

    def _summaries(self, last: LastStep, lag: Tensor, valid: Tensor) -> dict[str, float]:
        """lag, valid: [n], of the steps that are this policy's."""
        counters = {
            "lr": self._lr.value,
            "grad_norm": last.grad_norm,
            "skipped_steps": float(self._descent.skipped_steps),
            "valids_fraction": float(valid.sum()) / max(1, len(valid)),
            "num_sgd_steps": float(self.version),
        }
        if self.model.returns_normalizer is not None:
            normalizer = self.model.returns_normalizer
            counters["returns_running_mean"] = float(normalizer.mean)
            counters["returns_running_std"] = float(normalizer.variance.sqrt())
        return {**train_summaries(last.losses, last.minibatch, lag, self._flags.ppo_clip_ratio), **counters}

    def describe(self) -> str:
        """For the log."""
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        where = f"{self.device} in {'bf16 autocast' if self.autocast else 'fp32'}"
        return f"policy {self.policy_id} learns on {where}, {parameters:,} parameters"

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain numbers only, so that it loads with weights_only."""
        return {
            "train_step": self.version,
            "env_steps": self.env_frames,
            "samples": self.samples,
            "curr_lr": self._lr.value,
            "best_performance": self.best_value,
            "minibatch_rng": self._rng.bit_generator.state,
            **self._descent.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises RuntimeError if the weights do not fit the model, with the names and shapes that differ."""
        self._descent.load_state_dict(state)
        self.version, self.env_frames = state["train_step"], state["env_steps"]
        self.samples = state.get("samples", 0)
        self.best_value = state.get("best_performance")
        if "minibatch_rng" in state:
            self._rng.bit_generator.state = state["minibatch_rng"]
        if self._flags.lr_schedule.startswith("kl_adaptive"):
            self._lr.value = state["curr_lr"]

    @property
    def trajectories_per_batch(self) -> int:
        """What an iteration of training takes; may change from one to the next."""
        return self._flags.batch_size * self._flags.num_batches_per_iteration // self._flags.rollout

    def set_hyperparameters(self, values: Mapping[str, Any]) -> None:
        """Goes on with other values of these flags; a new learning rate starts from there."""
        former, self._flags = self._flags, replace(self._flags, **values)
        self._descent.set_flags(self._flags)
        if self._flags.learning_rate != former.learning_rate:
            self._lr = LearningRate(self._flags, self._settings.train_for_env_frames)

    def take_over(self, state: Mapping[str, Any]) -> None:
        """Another policy's weights, normalisers and optimizer moments; the counters stay. Raises as
        `load_state_dict`. What the former weights sampled is of another generation, and no longer trained on.
        """
        self._descent.load_state_dict({**state, "skipped_steps": self._descent.skipped_steps})
        steps = self._flags.ppo_epochs * self._flags.num_batches_per_iteration
        self._descent.expect_empty_steps(STALE_ITERATIONS * steps)
        self._generation += 1

    @property
    def stamp(self) -> Stamp:
        """Identifies the present weights."""
        return Stamp(self.version, self._generation)

    def published_state(self) -> dict[str, np.ndarray]:
        """The model's state as contiguous host arrays, in the order of its state_dict; valid until the next
        call, and until the weights change."""
        return self._download(self.model.state_dict())


def _minibatches(count: int, flags: LearningFlags, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Of `count` trajectories, those of each minibatch of an epoch."""
    order = np.arange(count)
    if flags.num_batches_per_iteration > 1 and flags.shuffle_minibatches:
        rng.shuffle(order)
    yield from np.array_split(order, flags.num_batches_per_iteration)
