"""Trains a policy and its value function on recorded games (Pomerleau 1991)."""

import copy
from collections.abc import Callable, Iterator
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

FORBIDDEN_LOG_PROB = -1e7  # below it, the mask forbids the action


class Score(NamedTuple):
    """Mean over steps. accuracy: share of the actions that are the policy's most likely ones; nan with a Box.

    log_prob: of the recorded actions.
    """

    accuracy: float
    log_prob: float

    def __str__(self) -> str:
        return f"accuracy {self.accuracy:.3f}, log-probability {self.log_prob:.3f}"


class Chunks(NamedTuple):
    """Chunks of `length` consecutive steps of an episode. starts: [C], the first row of each."""

    starts: np.ndarray
    length: int

    def shuffled(self, rng: np.random.Generator) -> "Chunks":
        """Returns the same chunks in another order."""
        return self._replace(starts=rng.permutation(self.starts))

    def batches(self, num_steps: int) -> Iterator[np.ndarray]:
        """Yields rows, [length, B], of at most about `num_steps` steps, in order."""
        per_batch = max(1, num_steps // self.length)
        for first in range(0, len(self.starts), per_batch):
            starts = self.starts[first : first + per_batch]
            yield starts[None] + np.arange(self.length)[:, None]


def split(
    recording: Recording, length: int, held_out_share: float, rng: np.random.Generator
) -> tuple[Chunks, Chunks]:
    """Returns chunks for training, and chunks of other episodes to measure on.

    length: of a chunk; what is left at the end of an episode is not used. Raises ConfigError if there are too
    few episodes.
    """
    numbers, firsts, lengths = np.unique(recording.episodes, return_index=True, return_counts=True)
    num_held_out = max(1, round(held_out_share * len(numbers)))
    if len(numbers) <= num_held_out:
        raise ConfigError(f"{len(numbers)} episodes are too few; record more (--imitate_samples)")
    order = rng.permutation(len(numbers))
    parts = []
    for chosen in (order[num_held_out:], order[:num_held_out]):
        starts = [np.arange(firsts[i], firsts[i] + lengths[i] - length + 1, length) for i in chosen.tolist()]
        parts.append(Chunks(np.concatenate(starts), length))
    if not all(len(chunks.starts) for chunks in parts):
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
        self._device = model.device
        self._returns = discounted_returns(recording, config.learning)
        self._optimizer = make_optimizer(config.learning, model.parameters())
        self._is_discrete = not model.layout.box_actions

    def update_normalizers(self, chunks: Chunks) -> None:
        """Adds the chunks to the statistics of observations and returns."""
        for rows in chunks.batches(self._flags.batch_size):
            self._model.update_normalizers(self._tensors(self._recording.observations, rows))
            if self._model.returns_normalizer is not None:
                self._model.returns_normalizer.update(torch.from_numpy(self._returns[rows]).to(self._device))

    def train(self, chunks: Chunks) -> None:
        """Makes one pass. Raises ConfigError for a recorded action that the mask forbids."""
        self._model.train()
        for rows in chunks.batches(self._flags.batch_size):
            log_probs, values, _ = self._evaluate(rows)
            if float(log_probs.detach().min()) < FORBIDDEN_LOG_PROB:
                raise ConfigError("a recorded action is forbidden by its action mask")
            targets = torch.from_numpy(self._returns[rows]).to(self._device)
            if self._model.returns_normalizer is not None:
                targets = self._model.returns_normalizer.normalize(targets)
            value_loss = 0.5 * (values - targets).square().mean()
            loss = self._flags.value_loss_coeff * value_loss - log_probs.mean()
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()
            clip_gradient(self._optimizer, self._flags.max_grad_norm or float("inf"))
            self._optimizer.step()

    @torch.no_grad()
    def score(self, chunks: Chunks) -> Score:
        """Measures the policy on chunks."""
        self._model.eval()
        log_prob = 0.0
        num_equal = 0
        for rows in chunks.batches(self._flags.batch_size):
            log_probs, _, is_equal = self._evaluate(rows)
            log_prob += float(log_probs.sum())
            num_equal += int(is_equal.sum())
        num_steps = len(chunks.starts) * chunks.length
        accuracy = num_equal / num_steps if self._is_discrete else float("nan")
        return Score(accuracy, log_prob / num_steps)

    def _evaluate(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns log-probabilities and values, and whether each action is the most likely one, [T, B]."""
        state = torch.zeros(rows.shape[1], self._model.state_size, device=self._device)
        unrolled = self._model.unroll(self._tensors(self._recording.observations, rows), state)
        distribution = self._model.distribution(unrolled.logits)
        actions = torch.from_numpy(self._recording.actions[rows]).to(self._device)
        is_equal = (distribution.mode() == actions).all(dim=-1)
        return distribution.log_prob(actions), unrolled.values, is_equal

    def _tensors(self, arrays: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, torch.Tensor]:
        return {key: torch.from_numpy(array[rows]).to(self._device) for key, array in arrays.items()}


def clone(
    cloner: Cloner,
    model: ActorCritic,
    chunks: tuple[Chunks, Chunks],
    num_epochs: int,
    rng: np.random.Generator,
    report: Callable[[int, Score], None],
) -> Score:
    """Trains for `num_epochs`; leaves the weights of the epoch with the best held-out score in the model.

    chunks: to train and to measure on. report: called with the epoch, from 1, and its score.
    Returns the best score.
    """
    training, held_out = chunks
    cloner.update_normalizers(training)
    best: Score | None = None
    best_weights = {}
    for epoch in range(1, num_epochs + 1):
        cloner.train(training.shuffled(rng))
        score = cloner.score(held_out)
        report(epoch, score)
        if best is None or score.log_prob > best.log_prob:
            best = score
            best_weights = copy.deepcopy(model.state_dict())
    assert best is not None
    model.load_state_dict(best_weights)
    return best
