"""A copy of the policy's network that follows it at intervals."""

import copy

import torch
from torch import Tensor

from sample_factory.learning.batch import Batch, unroll
from sample_factory.models.policy_spec import BuiltPolicy


class TargetNetwork:
    """A copy of the network of a policy, from an earlier SGD step. `module` is to be saved."""

    def __init__(self, policy: BuiltPolicy):
        self._online = policy.model
        self.module = copy.deepcopy(policy.model).requires_grad_(False)
        self._policy = policy._replace(model=self.module)

    @torch.no_grad()
    def logits(self, batch: Batch) -> Tensor:
        """Returns the logits of the distributions over actions, [T, B, L], masked, without a gradient."""
        return unroll(self._policy, batch).logits[:-1]

    def after_step(self, version: int, period: int) -> None:
        """Copies weights and normalisers of the policy every `period` SGD steps.

        version: number of SGD steps so far.
        """
        if version % period == 0:
            self.module.load_state_dict(self._online.state_dict())
