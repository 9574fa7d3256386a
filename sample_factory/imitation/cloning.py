"""Trains a policy and its value function on recorded games (Pomerleau 1991)."""

import copy
import logging
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.imitation.recording import Recording
from sample_factory.learning.gradient_descent import clip_gradient
from sample_factory.learning.optimizers import make_optimizer
from sample_factory.models.actor_critic import ActorCritic

log = logging.getLogger("sample_factory")

FORBIDDEN_LOG_PROB = -1e7  # below it, the mask forbids the action


class Score(NamedTuple):
    """Mean over steps. accuracy: share of the actions that are the policy's most likely ones; nan with a Box.

    log_prob: of the recorded actions.
    """

    accuracy: float
    log_prob: float

    def __str__(self) -> str:
        return f"accuracy {self.accuracy:.3f}, log-probability {self.log_prob:.3f}"


def split(
    recording: Recording, length: int, held_out_share: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Returns chunks for training, and chunks of other episodes to measure on.

    A chunk is the indices of `length` consecutive rows of an episode; an array of C chunks is [C, length].
    The rest of an episode that is shorter than a chunk is not used. Raises ConfigError if there are too few
    episodes.
    """
    numbers, firsts, lengths = np.unique(recording.episodes, return_index=True, return_counts=True)
    num_held_out = max(1, round(held_out_share * len(numbers)))
    if len(numbers) <= num_held_out:
        raise ConfigError(f"{len(numbers)} episodes are too few; record more (--imitate_samples)")
    order = rng.permutation(len(numbers))
    parts = []
    for chosen in (order[num_held_out:], order[:num_held_out]):
        starts = [np.arange(firsts[i], firsts[i] + lengths[i] - length + 1, length) for i in chosen.tolist()]
        parts.append(np.concatenate(starts)[:, None] + np.arange(length))
    if not all(map(len, parts)):
        raise ConfigError(f"the episodes are shorter than {length} steps; use a smaller --recurrence")
    return parts[0], parts[1]


def discounted_returns(recording: Recording, flags: LearningFlags) -> np.ndarray:
    """Returns the sum of discounted rewards from each step to the end of its episode, [N] float32.

    Rewards are scaled and clipped as in training, which starts with the value function that learns them.
    """
    rewards = np.clip(recording.rewards * flags.reward_scale, -flags.reward_clip, flags.reward_clip)
    returns = np.zeros(len(rewards))
    coming = 0.0
    for i in range(len(returns) - 1, -1, -1):
        is_last = i + 1 == len(returns) or recording.episodes[i + 1] != recording.episodes[i]
        coming = float(rewards[i]) + (0.0 if is_last else flags.gamma * coming)
        returns[i] = coming
    return returns.astype(np.float32)


class Cloner:
    """Maximises the log-probability of recorded actions, and fits the value to the returns that followed."""

    def __init__(self, model: ActorCritic, recording: Recording, config: Config):
        self._model = model
        self._recording = recording
        self._flags = config.learning
        self._returns = discounted_returns(recording, config.learning)
        self._optimizer = make_optimizer(config.learning, model.parameters())

    def fit(
        self, training: np.ndarray, held_out: np.ndarray, num_epochs: int, rng: np.random.Generator
    ) -> Score:
        """Trains for `num_epochs`, and leaves the weights of the epoch with the best held-out score.

        training, held_out: chunks, see `split`. Returns the best score. Raises ConfigError for a recorded
        action that the mask forbids.
        """
        self._update_normalizers(training)
        best: Score | None = None
        best_weights = {}
        for epoch in range(1, num_epochs + 1):
            self._train(rng.permutation(training))
            score = self._score(held_out)
            log.info("Epoch %d, held-out episodes: %s", epoch, score)
            if best is None or score.log_prob > best.log_prob:
                best = score
                best_weights = copy.deepcopy(self._model.state_dict())
        assert best is not None, "num_epochs is at least 1"
        self._model.load_state_dict(best_weights)
        return best

    def _batches(self, chunks: np.ndarray) -> Iterator[np.ndarray]:
        """Yields rows [length, B] of at most about --batch_size steps."""
        per_batch = max(1, self._flags.batch_size // chunks.shape[1])
        for first in range(0, len(chunks), per_batch):
            yield chunks[first : first + per_batch].T

    def _update_normalizers(self, chunks: np.ndarray) -> None:
        """Adds the chunks to the statistics of observations and returns."""
        for rows in self._batches(chunks):
            self._model.update_normalizers(self._observations(rows))
            if self._model.returns_normalizer is not None:
                self._model.returns_normalizer.update(self._tensor(self._returns, rows))

    def _train(self, chunks: np.ndarray) -> None:
        """Makes one pass."""
        self._model.train()
        for rows in self._batches(chunks):
            log_probs, values, _ = self._evaluate(rows)
            if float(log_probs.detach().min()) < FORBIDDEN_LOG_PROB:
                raise ConfigError("a recorded action is forbidden by its action mask")
            targets = self._tensor(self._returns, rows)
            if self._model.returns_normalizer is not None:
                targets = self._model.returns_normalizer.normalize(targets)
            value_loss = 0.5 * (values - targets).square().mean()
            loss = self._flags.value_loss_coeff * value_loss - log_probs.mean()
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()
            clip_gradient(self._optimizer, self._flags.max_grad_norm or float("inf"))
            self._optimizer.step()

    @torch.no_grad()
    def _score(self, chunks: np.ndarray) -> Score:
        self._model.eval()
        log_prob = 0.0
        num_equal = 0
        for rows in self._batches(chunks):
            log_probs, _, is_equal = self._evaluate(rows)
            log_prob += float(log_probs.sum())
            num_equal += int(is_equal.sum())
        accuracy = float("nan") if self._model.layout.box_actions else num_equal / chunks.size
        return Score(accuracy, log_prob / chunks.size)

    def _evaluate(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns log-probabilities and values, and whether each action is the most likely one, [T, B]."""
        state = torch.zeros(rows.shape[1], self._model.state_size, device=self._model.device)
        unrolled = self._model.unroll(self._observations(rows), state)
        distribution = self._model.distribution(unrolled.logits)
        actions = self._tensor(self._recording.actions, rows)
        is_equal = (distribution.mode() == actions).all(dim=-1)
        return distribution.log_prob(actions), unrolled.values, is_equal

    def _observations(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        return {key: self._tensor(array, rows) for key, array in self._recording.observations.items()}

    def _tensor(self, array: np.ndarray, rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array[rows]).to(self._model.device)
