"""Trains and fills the episodic memory of a policy (--episodic_memory); see models/episodic_memory.py."""

import copy
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from sample_factory.algo.advantages import gae
from sample_factory.algo.losses import masked_mean
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.algorithms.algorithm import Evaluation
from sample_factory.learning.algorithms.targets import (
    Targets,
    normalized_returns,
    transitions,
    unnormalized_values,
)
from sample_factory.learning.batch import Batch
from sample_factory.models.episodic_memory import EMPTY, KEY_SIZE, TEMPERATURE, EpisodicMemory
from sample_factory.models.policy_spec import BuiltPolicy
from sample_factory.models.towers import Tower, TowerActorCritic

CONTRAST_COEFF = 0.1
NUM_SAMPLES = 256  # pairs of steps that are compared in each SGD step
NUM_RECENT = 1024  # keys of the last SGD steps
# Lambda of the advantages in the priorities. It is low, so that only the steps that led to a surprise are
# kept, rather than all steps of an episode that went well.
SURPRISE_LAMBDA = 0.5
NEW_SHARE = 1 / 32  # at most this share of the slots is replaced in an SGD step


def rarity(keys: Tensor, known: Tensor, temperature: float) -> Tensor:
    """Returns minus the logarithm of the familiarity of keys, [N]: 0 for a key that equals all known keys.

    Familiarity is the mean of exp((cos - 1) / temperature) over all known keys: a kernel estimate of how
    often similar keys occur.

    keys: [N, K]. known: [M, K]. Both have rows of length 1; known rows of zeros resemble no key.
    """
    similarities = (keys @ known.T - 1) / temperature
    return math.log(len(known)) - torch.logsumexp(similarities, dim=1)


def contrastive_loss(
    queries: Tensor, keys: Tensor, others: Tensor, valid: Tensor, temperature: float
) -> Tensor:
    """Returns InfoNCE as in momentum contrast (He et al. 2019, https://arxiv.org/abs/1911.05722, eq. 1).

    The mean over the valid queries of -log softmax of the query's own key among the others.
    queries, keys: [N, K]. others: [M, K]. All rows have length 1. valid: bool [N].
    """
    right = (queries * keys).sum(dim=1, keepdim=True)
    logits = torch.cat((right, queries @ others.T), dim=1) / temperature
    first = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
    return masked_mean(cross_entropy(logits, first, reduction="none"), valid)


class Moments(NamedTuple):
    """N steps that may be written into the memory; no gradient."""

    keys: Tensor  # [N, KEY_SIZE]
    values: Tensor  # [N, V]
    valid: Tensor  # bool [N]: the key may be used
    advantages: Tensor  # [N]: by how much the return was better than expected


class MomentumEncoder(nn.Module):
    """Makes keys with a copy of the encoder and of the query layer, which follows the originals slowly.

    recent: keys of the last SGD steps, the newest first.
    """

    recent: Tensor  # [NUM_RECENT, KEY_SIZE] float32, zeros at the start

    def __init__(self, tower: Tower, memory: EpisodicMemory):
        super().__init__()
        self.encoder = copy.deepcopy(tower.encoder)
        self.query_layer = copy.deepcopy(memory.query_layer)
        self.requires_grad_(False)
        self.register_buffer("recent", torch.zeros(NUM_RECENT, KEY_SIZE, device=memory.keys.device))

    @torch.no_grad()
    def follow(self, tower: Tower, memory: EpisodicMemory, momentum: float) -> None:
        """Moves all weights towards the weights of the policy: momentum * own + (1 - momentum) * policy."""
        online = (*tower.encoder.parameters(), *memory.query_layer.parameters())
        own = (*self.encoder.parameters(), *self.query_layer.parameters())
        torch._foreach_lerp_(own, online, 1 - momentum)

    def add(self, keys: Tensor, valid: Tensor) -> None:
        """Inserts new keys [N, KEY_SIZE] at the front, and drops as many of the oldest.

        Where `valid`, bool [N], is False, the old key is inserted instead.
        """
        oldest = self.recent[-len(keys) :]
        keys = torch.where(valid.unsqueeze(1), keys, oldest)
        self.recent.copy_(torch.cat((keys, self.recent[: -len(keys)])))


class EpisodicTask:
    """Computes the contrastive loss of the keys, and writes into the memory after each SGD step."""

    def __init__(
        self,
        flags: LearningFlags,
        policy: BuiltPolicy,
        rng: np.random.Generator,
        tower: Tower,
        memory: EpisodicMemory,
    ):
        """flags, policy, rng: arguments of an algorithm's factory. tower: the actor's, with this memory."""
        self._model = policy.model
        self._policy = policy
        self._tower = tower
        self._memory = memory
        self._rng = rng
        self._flags = flags
        self.encoder = MomentumEncoder(tower, memory).to(policy.device)
        self._moments: Moments | None = None  # drawn in `loss` for the next `after_step`

    def set_flags(self, flags: LearningFlags) -> None:
        self._flags = flags

    def loss(self, minibatch: Batch, evaluation: Evaluation) -> Tensor:
        """Returns the weighted contrastive loss of a minibatch: a query should find the key of the next step.

        Its gradient reaches the encoder. The steps drawn here are the moments of the next `after_step`.
        Raises RuntimeError if `after_step` was not called since the previous call.
        """
        if self._moments is not None:
            raise RuntimeError(
                "--episodic_memory: after_step was not called between two calls of losses, so the memory "
                "would stay empty; the algorithm's after_step should call super().after_step(version)"
            )
        encodings = evaluation.unrolled.encodings
        assert encodings is not None, "the built-in network has them"
        num_steps, num_trajectories = minibatch.own.shape
        drawn = self._rng.integers(0, (num_steps - 1) * num_trajectories, NUM_SAMPLES)
        before = torch.from_numpy(drawn).to(self._policy.device)
        after = before + num_trajectories  # the next step of the same trajectory
        ended = (minibatch.terminated | minibatch.truncated).flatten()[before]
        own = minibatch.own.flatten()
        valid = own[before] & own[after] & ~ended
        keys = self._keys({key: x.flatten(0, 1)[after] for key, x in minibatch.obs.items()})
        queries = self._memory.query(encodings.flatten(0, 1)[before].float())
        self._moments = self._describe(minibatch, evaluation, after, keys, valid)
        loss = contrastive_loss(queries, keys, self.encoder.recent, valid, TEMPERATURE)
        return CONTRAST_COEFF * loss

    @torch.no_grad()
    def _keys(self, observations: dict[str, Tensor]) -> Tensor:
        """Maps raw observations [N, ...] to keys [N, KEY_SIZE]."""
        with torch.autocast(self._policy.device.type, torch.bfloat16, enabled=self._policy.autocast):
            encodings = self.encoder.encoder(self._tower.view(self._model.inputs(observations)))
        return normalize(self.encoder.query_layer(encodings.float()), dim=-1)

    @torch.no_grad()
    def _describe(
        self, minibatch: Batch, evaluation: Evaluation, steps: Tensor, keys: Tensor, valid: Tensor
    ) -> Moments:
        """Returns the moments in the rows `steps`, [N], of the flattened minibatch."""
        values = unnormalized_values(self._model, evaluation.unrolled.values)
        inputs = transitions(self._flags, minibatch, values)
        advantages, _ = gae(*inputs, lam=SURPRISE_LAMBDA)
        targets = Targets(*gae(*inputs, lam=1.0))
        beliefs = evaluation.unrolled.beliefs
        assert beliefs is not None, "the built-in network has them"
        contents = self._memory.value_of(
            minibatch.actions.flatten(0, 1)[steps],
            normalized_returns(self._model, targets).flatten()[steps],
            beliefs.flatten(0, 1)[steps].float(),
        )
        return Moments(keys, contents, valid, advantages.flatten()[steps])

    @torch.no_grad()
    def after_step(self) -> None:
        """Writes the rarest good moments of the last SGD step, and moves the momentum encoder."""
        if self._moments is None:
            return
        keys, values, valid, advantages = self._moments
        self._moments = None
        memory = self._memory
        # Keys in the memory count as known too, so that the slots spread over all rare moments.
        known = torch.cat((self.encoder.recent, memory.keys))
        # Priority: log of (rarity times advantage).
        priorities = rarity(keys, known, TEMPERATURE) + advantages.clamp(min=0).log()
        priorities = priorities.clamp(min=EMPTY).masked_fill(~valid, EMPTY)
        count = max(1, int(len(memory.keys) * NEW_SHARE))
        priorities, rarest = priorities.topk(min(count, len(priorities)))
        memory.write(keys[rarest], values[rarest], priorities)
        self.encoder.add(keys, valid & keys.isfinite().all(dim=1))
        self.encoder.follow(self._tower, memory, self._flags.episodic_momentum)


def make_episodic(flags: LearningFlags, policy: BuiltPolicy, rng: np.random.Generator) -> EpisodicTask | None:
    """Returns the task of the memory in the actor's tower, or None if there is none."""
    if not isinstance(policy.model, TowerActorCritic):
        return None
    tower = policy.model.each_tower()[0]
    return None if tower.memory is None else EpisodicTask(flags, policy, rng, tower, tower.memory)
