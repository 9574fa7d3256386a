"""The SGD loop over an algorithm: batches in, better weights out. Knows no process and no queue."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sample_factory.algo.losses import masked_mean
from sample_factory.checkpoints.file_format import check_fits
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.config.sampling_flags import DIVERGENCE
from sample_factory.exchange.channels import NO_VERSION
from sample_factory.exchange.messages import LearnerReady
from sample_factory.exchange.policy_weights import Stamp
from sample_factory.learning.algorithms.algorithm import (
    POLICY,
    Algorithm,
    SGDStep,
    evaluate,
    recorded,
    relative_to_current,
)
from sample_factory.learning.algorithms.targets import Targets
from sample_factory.learning.batch import Batch
from sample_factory.learning.gradient_descent import MODEL, GradientDescent
from sample_factory.learning.learner_args import LearnerArgs
from sample_factory.learning.learner_group import LearnerGroup, Share
from sample_factory.learning.optimizers import LearningRate
from sample_factory.models.actor_critic import ActorCritic
from sample_factory.models.towers import TowerActorCritic
from sample_factory.runtime.gpu_work import Downloads
from sample_factory.runtime.registry import resolve

SAME_LOSS = 1e-6
# After a takeover, so many iterations may find nothing to train on: samples of the former weights are still
# in buffers, in tickets and in batches.
STALE_ITERATIONS = 50
CPP_COMPILERS = ("g++", "clang++")


class Weights(NamedTuple):
    """A model's weights as NumPy arrays by name, with the stamp that identifies their SGD step."""

    state: Mapping[str, np.ndarray]
    stamp: Stamp


class Learner:
    """Trains one policy: the SGD loop over an Algorithm.

    - No loss and no statistic contains steps of another policy, of an inactive agent, from before a takeover
      (`take_over`), or with a lag of --max_policy_lag SGD steps or more.
    - Observation statistics change after a batch, never within it: acting and training normalise equally.
    - An SGD step whose gradient is not finite is skipped and counted, so the weights stay finite.
    - Training continues exactly after `state_dict` and `load_state_dict`.

    flags: the learning section; PBT may change hyperparameters in it. policy: the network and its device.
    algorithm: computes targets and losses, and may have modules beside the network.
    descent: makes the SGD steps, and skips a step whose gradient is not finite.
    newest_diverged: newest version from which the policy has diverged, by the last minibatch of the last
        iteration; NO_VERSION if there is none, or without --weights_sync=divergence.
    """

    def __init__(
        self,
        args: LearnerArgs,
        group: LearnerGroup | None = None,
        after_step: Callable[[], None] = lambda: None,
    ):
        """Builds the network, the algorithm and the optimizers; loads no checkpoint. group: the learners that
        train this policy together, each on its share of every batch; None for a single learner. after_step:
        called after each SGD step."""
        torch.manual_seed(args.seed)
        self.policy_id = args.policy_id
        self._args = args
        self._after_step = after_step
        self.flags = args.config.learning
        self.group = group or LearnerGroup()
        device_index = args.policy_id * self.group.size + self.group.rank
        self.policy = args.policy.build(device_index)._replace(total=self.group.total)
        self.model: ActorCritic = self.policy.model
        self.device = self.policy.device
        self._download = Downloads(self.device)
        if args.config.run.compile:
            compile_encoders(self.model, self.device)
        self._rng = np.random.default_rng(args.seed)
        self.algorithm, self.descent = self._make_algorithm()
        self._lr = self._make_learning_rate()
        self.version = 0  # number of SGD steps
        self._generation = 0  # number of takeovers in this run
        self.env_frames = 0
        self.samples = 0
        self.newest_diverged = NO_VERSION

    def _make_algorithm(self) -> tuple[Algorithm, GradientDescent]:
        algorithm: Algorithm = resolve(self._args.algorithm)(self.flags, self.policy, self._rng)
        return algorithm, GradientDescent(self.flags, {MODEL: self.model, **algorithm.modules}, self.group)

    def _make_learning_rate(self) -> LearningRate:
        return LearningRate(self.flags, self._args.config.monitoring.train_for_env_steps)

    def train(self, batch: Batch, want_summaries: bool = False) -> dict[str, float]:
        """Runs one iteration: all epochs over each earlier batch that the algorithm replays, then all epochs
        over `batch`.

        Returns scalars for TensorBoard by tag, without the prefix train/; none unless `want_summaries`.
        """
        self._lr.at_frame(self.env_frames)
        max_lag = self._args.config.sampling.max_policy_lag
        for received in (*self.algorithm.earlier_batches(batch), batch):
            lag = self.version - received.versions
            is_usable = (lag < max_lag) & (received.generations == self._generation)
            usable, targets = self._prepared(received._replace(own=received.own & is_usable))
            last = self._train_epochs(usable, targets)
        # The last batch of the loop is the new one.
        summaries = {}
        if want_summaries:
            counters = self._counters(lag[batch.own], usable.own[batch.own], last)
            summaries = {**self._step_summaries(last), **counters}
        observations = {key: tensor[:-1] for key, tensor in batch.obs.items()}
        self.model.observation_normalizers.update(observations, usable.own, self.group.total)
        num_own, num_samples = self.group.total(torch.stack((batch.own.sum(), usable.own.sum()))).tolist()
        self.env_frames += num_own * self._args.frameskip
        self.samples += num_samples
        self._find_newest_diverged(last)
        return summaries

    @torch.no_grad()
    def _prepared(self, batch: Batch) -> tuple[Batch, Targets | None]:
        """Returns the batch for the SGD steps of an iteration, and targets that all of them share; None for
        targets if each step computes new ones.

        Avoids a forward pass over the whole batch in two cases: a single SGD step runs the network anyway;
        and if the current weights of a network without recurrent state chose all actions in the batch, the
        outputs that were recorded while acting are used.
        """
        num_steps = self.flags.ppo_epochs * self.flags.num_batches_per_iteration
        if not self.algorithm.fixes_targets or num_steps == 1:
            return batch, None
        is_stale = (batch.versions != self.version) & batch.own
        is_recorded = not self.group.total(is_stale.count_nonzero()) and self.model.state_size == 0
        evaluation = (recorded if is_recorded else evaluate)(self.policy, batch)
        targets = self.algorithm.targets(batch, evaluation)
        self._count_returns(targets, batch)
        if self._args.config.sampling.sample_ahead and not is_recorded:
            batch = relative_to_current(batch, evaluation)
        return batch, targets

    def _count_returns(self, targets: Targets, batch: Batch) -> None:
        """Adds the returns of a batch's valid steps to the running statistics that normalise returns."""
        if self.model.returns_normalizer is not None:
            self.model.returns_normalizer.update(targets.returns, batch.own, self.group.total)

    def _train_epochs(self, batch: Batch, targets: Targets | None) -> SGDStep:
        """Runs all epochs over the batch, and returns the last SGD step. Stops early if an epoch no longer
        changes the policy loss. targets: shared by all steps; None if each step computes new ones."""
        former_loss: float | None = None
        for _ in range(self.flags.ppo_epochs):
            policy_losses = []
            kls = []
            for columns in _minibatches(batch.rewards.shape[1], self.flags, self._rng):
                fixed = None if targets is None else targets.select(columns)
                minibatch = batch.select(columns)
                share = self.group.share(minibatch.own)
                last = self._sgd_step(minibatch, fixed, share)
                if self.flags.ppo_epochs > 1:
                    policy_loss = share.weighted(last.losses.terms[POLICY].detach())
                    policy_losses.append(self.group.total(policy_loss))
                if self._lr.needs_kl and share.of_all:
                    kl = share.weighted(masked_mean(last.evaluation.kl, minibatch.own))
                    kls.append(float(self.group.total(kl)))
                    self._lr.after_minibatch(kls[-1])
            if kls:
                self._lr.after_epoch(float(np.mean(kls)))
            if policy_losses:
                loss = float(torch.stack(policy_losses).mean())
                if former_loss is not None and abs(loss - former_loss) < SAME_LOSS:
                    break
                former_loss = loss
        return last

    def _sgd_step(self, minibatch: Batch, targets: Targets | None, share: Share) -> SGDStep:
        evaluation = evaluate(self.policy, minibatch)
        if targets is None:
            targets = self.algorithm.targets(minibatch, evaluation)
            self._count_returns(targets, minibatch)
        losses = self.algorithm.losses(minibatch, evaluation, targets)
        grad_norm = self.descent.step(share.weighted(losses.total), self._lr.value, share.of_all)
        self.version += 1
        self.algorithm.after_step(self.version)
        self._after_step()
        return SGDStep(minibatch, evaluation, losses, grad_norm)

    def _find_newest_diverged(self, last: SGDStep) -> None:
        cluster = self._args.config.cluster
        if cluster.weights_sync == DIVERGENCE and cluster.threshold is not None:
            samples = (last.evaluation.kl, last.minibatch.versions, last.minibatch.own)
            self.newest_diverged = newest_diverged(*samples, cluster.threshold, self.flags.rollout)

    @torch.no_grad()
    def _step_summaries(self, step: SGDStep) -> dict[str, float]:
        summaries = {"loss": float(step.losses.total.detach())}
        if not step.minibatch.own.any():
            return summaries
        for name, term in step.losses.terms.items():
            summaries[f"{name}_loss"] = float(term.detach())
        return {**summaries, **self.algorithm.summaries(step)}

    def _counters(self, lag: Tensor, valid: Tensor, last: SGDStep) -> dict[str, float]:
        """Returns learning rate, gradient norm, counters and policy lag as summaries by tag.

        lag: [n], lag of each of this policy's n samples in the batch, in SGD steps. valid: [n] bool, whether
        the sample was trained on. last: the last SGD step of the iteration.
        """
        counters = {
            "lr": self._lr.value,
            "grad_norm": last.grad_norm,
            "skipped_steps": float(self.descent.skipped_steps),
            "valids_fraction": float(valid.sum()) / max(1, len(valid)),
            "num_sgd_steps": float(self.version),
        }
        if last.minibatch.own.any():
            counters["version_diff_avg"] = float(lag.float().mean())
            counters["version_diff_min"] = float(lag.min())
            counters["version_diff_max"] = float(lag.max())
        if self.model.returns_normalizer is not None:
            normalizer = self.model.returns_normalizer
            counters["returns_running_mean"] = float(normalizer.mean)
            counters["returns_running_std"] = float(normalizer.variance.sqrt())
        return counters

    def describe(self) -> LearnerReady:
        """Returns a message with the learner's device, precision and number of parameters, for the log."""
        num_parameters = sum(parameter.numel() for parameter in self.model.parameters())
        precision = "bf16 autocast" if self.policy.autocast else "fp32"
        return LearnerReady(self.policy_id, str(self.device), precision, num_parameters)

    def state_dict(self) -> dict[str, Any]:
        """Returns the content of a checkpoint: tensors and plain numbers only, so that the file can be loaded
        with weights_only=True."""
        return {
            "train_step": self.version,
            "env_steps": self.env_frames,
            "samples": self.samples,
            "curr_lr": self._lr.value,
            "learning_rate": self.flags.learning_rate,
            "minibatch_rng": self._rng.bit_generator.state,
            **self.descent.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a `state_dict`.

        Raises ValueError, which names the first difference, if the weights do not fit the model.
        """
        missing = [name for name in ("train_step", "env_steps", "curr_lr") if name not in state]
        if missing:
            raise ValueError(f"it has no {', '.join(missing)}")
        self.descent.load_state_dict(state)
        if not self.algorithm.modules.keys() <= state.keys():
            # Another algorithm was trained until now; the modules of this one may be copies of the network.
            self.algorithm, self.descent = self._make_algorithm()
            self.descent.load_state_dict(state)
        self.version = state["train_step"]
        self.env_frames = state["env_steps"]
        self.samples = state.get("samples", 0)
        if "minibatch_rng" in state:
            self._rng.bit_generator.state = state["minibatch_rng"]
        flags = self.flags
        is_same = state.get("learning_rate", flags.learning_rate) == flags.learning_rate  # not typed anew
        if flags.lr_schedule.startswith("kl_adaptive") and is_same:
            # Another schedule may have ended at 0, which no factor would change.
            self._lr.value = min(max(state["curr_lr"], flags.lr_adaptive_min), flags.lr_adaptive_max)

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Checks a state before it is written to a checkpoint. Raises ValueError if weights or optimizer
        moments do not fit this learner, for example if they are not finite."""
        self.descent.check_state(state)

    def shared_state(self) -> dict[str, Any]:
        """Returns the state that all learners of a policy must share: `state_dict`, number of takeovers,
        flags. The first learner sends it to learners whose state differs."""
        return {
            **self.state_dict(),
            "generation": self._generation,
            "flags": dict(vars(self.flags)),
        }

    def share_state(self, state: Mapping[str, Any]) -> None:
        """Continues with the `shared_state` of another learner of this policy."""
        self.load_state_dict(state)
        self.flags = replace(self.flags, **state["flags"])
        if state["generation"] != self._generation:
            self._begin_generation(state["generation"])
        self.descent.set_flags(self.flags)
        self.algorithm.set_flags(self.flags)
        self._lr = self._make_learning_rate()
        self._lr.value = state["curr_lr"]

    def start_with(self, state: Mapping[str, Any]) -> None:
        """Before training: loads weights and normalisers from a checkpoint of another experiment.

        Raises ValueError, which names the first difference, if the weights do not fit the model.
        """
        check_fits(state.get(MODEL), self.model)
        self.model.load_state_dict(state[MODEL])
        # Modules of the algorithm may be copies of the network.
        self.algorithm, self.descent = self._make_algorithm()

    @property
    def trajectories_per_batch(self) -> int:
        """Number of trajectories in an iteration of training; PBT may change it between two iterations."""
        return self.flags.batch_size * self.flags.num_batches_per_iteration // self.flags.rollout

    def set_hyperparameters(self, values: Mapping[str, Any]) -> None:
        """Replaces hyperparameters, flag -> value (PBT). A new learning rate restarts its schedule."""
        former = self.flags
        self.flags = replace(former, **values)
        self.descent.set_flags(self.flags)
        self.algorithm.set_flags(self.flags)
        if self.flags.learning_rate != former.learning_rate:
            self._lr = self._make_learning_rate()

    def take_over(self, state: Mapping[str, Any]) -> None:
        """Loads weights, normalisers, optimizer moments and algorithm modules of another policy (PBT).

        state: `state_dict` of the other policy's learner; its counters are ignored. Samples of the former
            weights are not trained on any more, since their generation is older. Raises ValueError, before
            anything is changed, if the state does not fit this learner.
        """
        self.descent.load_state_dict({**state, "skipped_steps": self.descent.skipped_steps})
        self._begin_generation(self._generation + 1)

    def _begin_generation(self, generation: int) -> None:
        """Sets the generation of the weights: samples of earlier generations are not trained on any more."""
        num_steps = self.flags.ppo_epochs * self.flags.num_batches_per_iteration
        self.descent.expect_empty_steps(STALE_ITERATIONS * num_steps)
        self._generation = generation

    def weights(self) -> Weights:
        """Returns the model's weights as contiguous arrays, in the order of its state_dict, and their stamp.
        The arrays are valid until the next call, and until the weights change."""
        return Weights(self._download(self.model.state_dict()), Stamp(self.version, self._generation))


def _minibatches(count: int, flags: LearningFlags, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Splits `count` trajectories into the minibatches of an epoch, at random with --shuffle_minibatches.
    Yields the indices of the trajectories in each minibatch, int64."""
    order = np.arange(count)
    if flags.num_batches_per_iteration > 1 and flags.shuffle_minibatches:
        rng.shuffle(order)
    yield from np.array_split(order, flags.num_batches_per_iteration)


def compile_encoders(model: ActorCritic, device: torch.device) -> None:
    """Compiles the encoders with torch.compile, in place, at their first use. Names in the state_dict do not
    change.

    Raises RuntimeError if the device is a CPU and there is no C++ compiler.
    """
    compilers = [os.environ["CXX"]] if "CXX" in os.environ else CPP_COMPILERS
    if device.type == "cpu" and not any(map(shutil.which, compilers)):
        raise RuntimeError(f"--compile on a CPU needs a C++ compiler: found no {' or '.join(compilers)}")
    assert isinstance(model, TowerActorCritic), "--compile is refused for other networks"
    model.normalizes_in_slices = False
    for tower in model.each_tower():
        tower.encoder.compile()


def newest_diverged(
    divergences: Tensor, versions: Tensor, own: Tensor, threshold: float, min_samples: int
) -> int:
    """Returns the newest version whose mean divergence is above `threshold`; NO_VERSION if there is none.

    Adaptive policy synchronisation (ClusterEnv, https://arxiv.org/abs/2507.10990): machines that act with
    this version or an older one must fetch new weights. The learner computes it because it has the outputs
    of both policies, so the other machines need not download weights only to compare them.

    divergences: [T, B] float32, KL(mu || pi) of each sample in nats. versions: [T, B], version of the policy
    mu that acted. own: [T, B] bool, which samples count. min_samples: versions with fewer samples are
    ignored.
    """
    found, of_sample, counts = versions[own].unique(return_inverse=True, return_counts=True)
    sums = torch.zeros(len(found), device=own.device).index_add(0, of_sample, divergences[own])
    diverged = found[(sums > threshold * counts) & (counts >= min_samples)]
    return int(diverged.max()) if len(diverged) else NO_VERSION
