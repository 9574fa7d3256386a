"""Records or reads games, trains a policy on them, and saves it as a checkpoint of an experiment."""

import contextlib
import logging
import random
import time
from pathlib import Path

import numpy as np
import torch

from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.checkpoints.store import Checkpoints
from sample_factory.config.config import Config
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig
from sample_factory.imitation.cloning import Cloner, Score, split
from sample_factory.imitation.imitate_request import ImitateFlags
from sample_factory.imitation.recording import Recording, load_recording, record
from sample_factory.launch.folder import prepare_folder
from sample_factory.learning.algorithm_registry import registered_algorithm
from sample_factory.learning.learner import Learner
from sample_factory.learning.settings import LearnerSettings
from sample_factory.models.policy_spec import make_policy_spec
from sample_factory.runtime import cpu
from sample_factory.spaces.agent_kinds import KindSpaces

log = logging.getLogger("sample_factory")


def imitate(config: Config) -> Score:
    """Returns the score of the saved policy on episodes that it was not trained on.

    config: of `parse_arguments`. Raises ConfigError for games that do not fit, CheckpointError if the
    checkpoint cannot be written.
    """
    flags: ImitateFlags = config.extra["imitate"]
    seed = config.run.seed if config.run.seed is not None else random.SystemRandom().randrange(2**31)
    rng = np.random.default_rng(seed)
    torch.set_num_threads(config.sampling.learner_main_loop_num_cores or cpu.num_usable_cores())
    recording, spaces = _games(config, flags, seed)
    length = config.learning.recurrence if config.model.may_remember else 1
    if length < 1:  # a whole trajectory
        length = config.learning.rollout
    training, held_out = split(recording, length, flags.held_out_share, rng)
    learner = _make_learner(config, spaces, seed)
    folder = prepare_folder(config)
    try:
        config.save()
        cloner = Cloner(learner.model, recording, config)
        score = cloner.fit(training, held_out, flags.imitate_epochs, rng)
        learner.start_with(learner.state_dict())  # the algorithm may have copied the untrained network
        checkpoints = Checkpoints(config.experiment_dir, 0, config.monitoring.keep_checkpoints)
        if checkpoints.save(learner.state_dict(), 0, 0) is None:
            raise CheckpointError(f"the policy could not be saved to {checkpoints.folder}")
    finally:
        folder.lock.release()
    log.info("Held-out episodes: %s", score)
    log.info(
        "Continue: python -m sample_factory.train --env=%s --experiment=NAME --transfer_from=%s",
        config.env_name,
        config.run.experiment,
    )
    return score


def _games(config: Config, flags: ImitateFlags, seed: int) -> tuple[Recording, KindSpaces]:
    """Returns the games to imitate, and the spaces of their agents."""
    env = make_adapted_env(resolve_family(config.env_name), config.namespace(), EnvConfig(0, 0, 0))
    with contextlib.closing(env):
        spaces = env.kinds.spaces[0]
        if flags.games is not None:
            return load_recording(Path(flags.games).expanduser(), spaces), spaces
        started = time.monotonic()
        recording = record(env, flags.teachers, flags.imitate_samples, seed)
    log.info(
        "Recorded %s actions of %s episodes in %.0f s",
        f"{len(recording.actions):,}",
        f"{recording.episodes[-1] + 1:,}",
        time.monotonic() - started,
    )
    if flags.save_games is not None:
        recording.save(Path(flags.save_games).expanduser())
        log.info("Saved the games: %s", flags.save_games)
    return recording, spaces


def _make_learner(config: Config, spaces: KindSpaces, seed: int) -> Learner:
    """Returns an untrained learner, whose state is that of a new experiment."""
    policy = make_policy_spec(config, spaces.observation, spaces.action)._replace(precision="fp32")
    settings = LearnerSettings(
        policy,
        config.learning,
        config.sampling.max_policy_lag,
        train_for_env_frames=config.monitoring.train_for_env_steps,
        frameskip=config.env.env_frameskip or 1,
        seed=seed,
        algorithm=registered_algorithm(config.run.algo),
    )
    return Learner(0, settings)
