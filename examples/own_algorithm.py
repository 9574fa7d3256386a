"""Trains with a loss and a flag of your own: Simple Policy Optimization (Xie et al. 2024, arXiv:2401.16025).

    python examples/own_algorithm.py train --experiment=spo
    python examples/own_algorithm.py enjoy --experiment=spo

A class that inherits from PPO keeps its targets, other losses and summaries. Any other class has the methods
of `Algorithm` in sample_factory/learning/algorithms/algorithm.py.
"""

import sys
from dataclasses import dataclass

import torch

from sample_factory import register_algorithm
from sample_factory.algo.losses import masked_mean
from sample_factory.config.flags import flag
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.enjoy import main as enjoy
from sample_factory.learning.algorithms.algorithm import POLICY, Evaluation, Losses, SGDStep
from sample_factory.learning.algorithms.ppo import PPO
from sample_factory.learning.algorithms.targets import Targets
from sample_factory.learning.batch import Batch
from sample_factory.train import main as train

MAX_LOG_RATIO = 3.0


@dataclass(frozen=True)
class SPOFlags(LearningFlags):
    """Batches, losses, optimizer, and the flag of SPO."""

    spo_epsilon: float = flag(0.2, "how far the ratio of probabilities should move from 1", above=0)


class SPO(PPO):
    """Where PPO clips the ratio r of new and old probabilities, a quadratic penalty pulls it back to 1."""

    def losses(self, minibatch: Batch, evaluation: Evaluation, targets: Targets) -> Losses:
        """Returns the losses by name; their sum is minimised. All tensors are [T, B]."""
        losses = super().losses(minibatch, evaluation, targets)
        valid = minibatch.own  # False: e.g. a step of another policy, whose numbers may be anything
        log_ratios = torch.where(valid, evaluation.log_ratios, 0.0)
        ratios = log_ratios.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        advantages = losses.diagnostics["advantages"]  # normalised
        penalty = advantages.abs() / (2 * self._flags.spo_epsilon) * (ratios - 1).square()
        policy = -masked_mean(ratios * advantages - penalty, valid)
        return Losses({**losses.terms, POLICY: policy}, {**losses.diagnostics, "penalty": penalty.detach()})

    def own_summaries(self, step: SGDStep) -> dict[str, torch.Tensor]:
        """Returns what TensorBoard shows under train/, besides the summaries of any algorithm."""
        penalty = step.losses.diagnostics["penalty"][step.minibatch.own]
        return {**super().own_summaries(step), "spo_penalty": penalty.mean()}


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `enjoy`, then flags. Returns the exit code."""
    # These defaults replace those of the flags and of the env. --spo_epsilon exists only with --algo=SPO.
    register_algorithm("SPO", SPO, defaults={"train_for_env_steps": 100_000}, flags=SPOFlags)
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        return 2
    algo = ["--algo=SPO"] if argv[0] == "train" else []
    return commands[argv[0]](["--env=gym_CartPole-v1", *algo, *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
