"""An algorithm of a user's own, in a script: policy gradient with a learned entropy temperature."""

import copy
import sys

import torch

from sample_factory import register_algorithm
from sample_factory.algo.losses import masked_mean
from sample_factory.learning.algorithms.algorithm import Losses, evaluation_summaries
from sample_factory.learning.algorithms.targets import vtrace_targets
from sample_factory.train import main

START_LOG = -4.0


class Temperature(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.log = torch.nn.Parameter(torch.tensor(START_LOG))
        self.register_buffer("num_steps", torch.zeros((), dtype=torch.int64))


class Tempered:
    """Has a trained module, which also counts the SGD steps, and a frozen copy of the network."""

    fixes_targets = False

    def __init__(self, flags, policy, rng):
        self._flags = flags
        self._model = policy.model
        self._temperature = Temperature().to(policy.device)
        self._target = copy.deepcopy(policy.model).requires_grad_(False)

    @property
    def modules(self):
        return {"temperature": self._temperature, "target": self._target}

    def set_flags(self, flags):
        self._flags = flags

    def earlier_batches(self, batch):
        return ()

    def targets(self, batch, evaluation):
        values = evaluation.unrolled.values.detach()
        return vtrace_targets(self._flags, batch, values, evaluation.log_ratios.detach())

    def losses(self, minibatch, evaluation, targets):
        valid = minibatch.own
        scale = self._temperature.log.exp()
        log_probs = evaluation.distribution.log_prob(minibatch.actions)
        entropy = masked_mean(evaluation.distribution.entropy(), valid)
        errors = evaluation.unrolled.values[:-1] - targets.returns
        terms = {
            "policy": -masked_mean(log_probs * targets.advantages, valid),
            "value": 0.5 * masked_mean(errors.square(), valid),
            "exploration": -scale.detach() * entropy,
            "temperature": scale * (entropy.detach() - 0.3),
        }
        return Losses(terms)

    def after_step(self, version):
        self._temperature.num_steps += 1
        if version % 10 == 0:
            self._target.load_state_dict(self._model.state_dict())

    def summaries(self, step):
        return {
            **evaluation_summaries(step.minibatch, step.evaluation),
            "temperature": float(self._temperature.log.exp()),
        }


register_algorithm("TEMPERED", Tempered)

if __name__ == "__main__":
    sys.exit(main())
