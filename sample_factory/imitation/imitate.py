"""Records or reads games, trains a policy on them, and saves it as a checkpoint of an experiment.

Behaviour cloning: Pomerleau 1991, Efficient Training of Artificial Neural Networks for Autonomous Navigation.
"""

import contextlib
import copy
import functools
import math
import random
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.checkpoints.store import Checkpoints
from sample_factory.config.algorithms import registered_algorithm
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import resolve_family
from sample_factory.evaluation.session_plan import FirstEnv
from sample_factory.imitation import ImitateFlags
from sample_factory.imitation.games import Episode, load_games, save_games
from sample_factory.imitation.recorded_env import record_players
from sample_factory.launch.checks import check_critic_only_keys, log_flags_without_effect
from sample_factory.launch.folder import prepare_folder
from sample_factory.launch.plan import with_defaults_for
from sample_factory.learning.gradient_descent import clip_gradient
from sample_factory.learning.learner import Learner
from sample_factory.learning.learner_args import LearnerArgs
from sample_factory.learning.optimizers import make_optimizer
from sample_factory.models.actor_critic import ActorCritic
from sample_factory.models.policy_spec import make_policy_spec
from sample_factory.runtime import cpu
from sample_factory.runtime.log import log
from sample_factory.spaces.agent_kinds import AgentKinds, KindSpaces

FORBIDDEN_LOG_PROB = -1e7  # below it, the mask forbids the action


class Recording(NamedTuple):
    """Contains N recorded actions, with the observation before each. The rows of an episode are consecutive.
    observations: key -> [N, *shape], as they are stored in training.
    actions: [N, K] float32, K numbers for each action, as in Episode. rewards: [N] float32.
    episodes: [N] int64, a number for each episode of an agent."""

    observations: dict[str, np.ndarray]
    actions: np.ndarray
    rewards: np.ndarray
    episodes: np.ndarray


def join(episodes: Iterable[Episode]) -> Recording:
    """Joins all episodes to one Recording. Raises ConfigError if there are none, and for NaN or infinity,
    since a single such number would spoil all weights."""
    found = list(episodes)
    if not found:
        raise ConfigError("there are no episodes to imitate")
    for number, episode in enumerate(found):
        arrays = {**episode.observations, "actions": episode.actions, "rewards": episode.rewards}
        broken = [name for name, array in arrays.items() if not np.isfinite(array).all()]
        if broken:
            raise ConfigError(
                f"NaN or infinity in episode {number}, in its {', '.join(broken)}; leave it out"
            )
    return Recording(
        {key: np.concatenate([e.observations[key][:-1] for e in found]) for key in found[0].observations},
        np.concatenate([episode.actions for episode in found]),
        np.concatenate([episode.rewards for episode in found], dtype=np.float32, casting="same_kind"),
        np.repeat(np.arange(len(found)), [len(episode.actions) for episode in found]),
    )


class Score(NamedTuple):
    """Says how well a policy predicts recorded actions, as means over steps.
    accuracy: share of the actions that are the policy's most likely ones; nan if the action space has a Box.
    log_prob: log-probability of the recorded actions."""

    accuracy: float
    log_prob: float

    def __str__(self) -> str:
        return f"accuracy {self.accuracy:.3f}, log-probability {self.log_prob:.3f}"


def split(
    recording: Recording, length: int, held_out_share: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Splits a recording into chunks for training, and chunks of other episodes to measure on; returns both.
    A chunk is the indices of `length` consecutive rows of an episode; C chunks are an array [C, length]. Rows
    at the end of an episode that do not fill a chunk are not used. Raises ConfigError if there are too few
    episodes."""
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
    """Returns the sum of discounted rewards from each step to the end of its episode, [N] float32. Rewards
    are scaled and clipped as in training: a training that continues the policy starts with the value function
    that is fitted to these returns."""
    rewards = np.clip(recording.rewards * flags.reward_scale, -flags.reward_clip, flags.reward_clip)
    returns = np.zeros(len(rewards))
    is_last = np.append(np.diff(recording.episodes) != 0, True)
    following = 0.0
    for i in reversed(range(len(returns))):
        following = float(rewards[i]) + (0.0 if is_last[i] else flags.gamma * following)
        returns[i] = following
    return returns.astype(np.float32)


class Cloner:
    """Trains a policy to imitate: maximises the log-probability of recorded actions, and fits the value
    function to the recorded returns."""

    def __init__(self, model: ActorCritic, recording: Recording, config: Config):
        self._model = model
        self._recording = recording
        self._flags = config.learning
        self._returns = discounted_returns(recording, config.learning)
        self._optimizer = make_optimizer(config.learning, model.parameters())

    def fit(
        self, training: np.ndarray, held_out: np.ndarray, num_epochs: int, rng: np.random.Generator
    ) -> Score:
        """Trains for `num_epochs`, and restores the weights of the epoch with the best held-out score, which
        is returned.
        training, held_out: chunks of consecutive steps, indices [num_chunks, length]. Raises ConfigError for
            a recorded action that the mask forbids, and for a gradient that is not finite."""
        for rows in self._batches(training):
            self._model.observation_normalizers.update(self._observations(rows))
            if self._model.returns_normalizer is not None:
                self._model.returns_normalizer.update(self._tensor(self._returns, rows))
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
        """Yields batches of recorded steps, [length, B] indices; a batch has about --batch_size steps.

        chunks: the indices of the steps of each chunk, [num_chunks, length].
        """
        per_batch = max(1, self._flags.batch_size // chunks.shape[1])
        for first in range(0, len(chunks), per_batch):
            yield chunks[first : first + per_batch].T

    def _train(self, chunks: np.ndarray) -> None:
        """Trains on each chunk once, with an SGD step for each batch of chunks. Raises ConfigError for a
        recorded action that its mask forbids, and for a gradient that is not finite.
        chunks: indices of consecutive steps, [num_chunks, length]."""
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
            norm = clip_gradient(self._optimizer, self._flags.max_grad_norm or float("inf"))
            if not math.isfinite(norm):
                raise ConfigError(
                    f"the loss is {loss.item():g} and the norm of its gradient {norm}; lower --learning_rate"
                )
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
        """Returns log-probabilities and values of recorded steps, and whether each recorded action is the
        most likely one; each [T, B].
        rows: indices of the steps, [T, B]."""
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


def imitate(config: Config) -> Score:
    """Trains a policy to imitate recorded games and saves it as a checkpoint of a new experiment. Returns its
    score on episodes that it was not trained on. Raises ConfigError for games that do not fit the env,
    CheckpointError if the checkpoint cannot be written. A training that fails leaves no folder."""
    flags: ImitateFlags = config.extra["imitate"]
    seed = config.run.seed if config.run.seed is not None else random.SystemRandom().randrange(2**31)
    rng = np.random.default_rng(seed)
    torch.set_num_threads(config.sampling.learner_main_loop_num_cores or cpu.num_usable_cores())
    recording, spaces = _games(config, flags, seed)
    kinds = AgentKinds.one(*spaces, 1)
    parsed = config
    config, notes = with_defaults_for(config, kinds)
    log_flags_without_effect(config, kinds, parsed)
    check_critic_only_keys(config, kinds)
    for note in notes:
        log.info("%s", note.text)
    length = config.learning.recurrence if config.model.may_remember else 1
    if length < 1:  # a whole trajectory
        length = config.learning.rollout
    training, held_out = split(recording, length, flags.held_out_share, rng)
    policy = make_policy_spec(config, spaces.observation, spaces.action)._replace(precision="fp32")
    frameskip = config.env.env_frameskip or 1
    algorithm = registered_algorithm(config.run.algo)
    learner = Learner(LearnerArgs(0, 0, config, policy, algorithm, frameskip, seed))
    folder = prepare_folder(config)
    is_saved = False
    try:
        cloner = Cloner(learner.model, recording, config)
        score = cloner.fit(training, held_out, flags.imitate_epochs, rng)
        learner.start_with(learner.state_dict())  # the algorithm may have copied the untrained network
        checkpoints = Checkpoints(config.experiment_dir, 0, config.monitoring.keep_checkpoints)
        config.save()
        is_saved = checkpoints.save(learner.state_dict(), 0, 0) is not None
        if not is_saved:
            raise CheckpointError(f"the policy could not be saved to {checkpoints.folder}")
    finally:
        folder.leave(stays=is_saved)
    log.info("Held-out episodes: %s", score)
    command = f"python -m sample_factory.train --env={config.env_name} --experiment=NAME"
    log.info("Continue: %s --transfer_from=%s", command, config.run.experiment)
    return score


def _games(config: Config, flags: ImitateFlags, seed: int) -> tuple[Recording, KindSpaces]:
    """Reads or plays the games to imitate, and saves them with --save_games. Returns the recorded games and
    the spaces of their agents."""
    family = resolve_family(config.env_name)
    env = FirstEnv(functools.partial(make_adapted_env, family, config.namespace()))
    with contextlib.closing(env):
        spaces = env.env.kinds.spaces[0]
        started = time.monotonic()
        if flags.games is not None:
            recording, verb = join(load_games(flags.games, spaces)), "Read"
        else:
            episodes = record_players(config, env, flags.teachers, flags.imitate_samples, seed)
            recording, verb = join(episodes), "Recorded"
            if flags.save_games is not None:
                about = {"algorithm_name": ", ".join(flags.teachers), "env": config.env_name}
                save_games(flags.save_games, spaces, episodes, about)
                log.info("Saved the games: %s", flags.save_games)
    counts = f"{len(recording.actions):,} actions of {recording.episodes[-1] + 1:,} episodes"
    log.info("%s %s in %.0f s", verb, counts, time.monotonic() - started)
    return recording, spaces
