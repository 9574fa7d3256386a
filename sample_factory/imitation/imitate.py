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
from sample_factory.config.algorithms import registered_algorithm
from sample_factory.config.config import Config
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.envs.protocol import EnvConfig
from sample_factory.imitation.cloning import Cloner, Score, clone, split
from sample_factory.imitation.imitate_request import ImitateFlags, ImitateRequest
from sample_factory.imitation.recording import Recording, load_recording, record
from sample_factory.launch.folder import prepare_folder
from sample_factory.learning.learner import Learner
from sample_factory.learning.learner_args import LearnerArgs
from sample_factory.models.policy_spec import make_policy_spec
from sample_factory.runtime import cpu
from sample_factory.spaces.agent_kinds import KindSpaces

log = logging.getLogger("sample_factory")


def imitate(request: ImitateRequest) -> Score:
    """Returns the score of the saved policy on episodes that it was not trained on.

    Raises ConfigError for games that do not fit, CheckpointError if the checkpoint cannot be written.
    """
    config, family, flags = request
    seed = config.run.seed if config.run.seed is not None else random.SystemRandom().randrange(2**31)
    rng = np.random.default_rng(seed)
    torch.set_num_threads(config.sampling.learner_main_loop_num_cores or cpu.num_usable_cores())
    recording, spaces = _games(config, family, flags, seed)
    length = config.learning.recurrence if config.model.may_remember else 1
    if length < 1:  # a whole trajectory
        length = config.learning.rollout
    chunks = split(recording, length, flags.held_out_share, rng)
    learner = _make_learner(config, spaces, seed)
    folder = prepare_folder(config)
    try:
        config.save()
        cloner = Cloner(learner.model, recording, config)
        score = clone(cloner, learner.model, chunks, flags.imitate_epochs, rng, _report)
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


def _games(config: Config, family: EnvFamily, flags: ImitateFlags, seed: int) -> tuple[Recording, KindSpaces]:
    """Returns the games to imitate, and the spaces of their agents."""
    with contextlib.closing(make_adapted_env(family, config.namespace(), EnvConfig(0, 0, 0))) as env:
        spaces = env.kinds.spaces[0]
        if flags.games is not None:
            recording = load_recording(Path(flags.games).expanduser(), spaces)
        else:
            started = time.monotonic()
            recording = record(env, flags.teachers, flags.imitate_samples, seed)
            seconds = time.monotonic() - started
            log.info(
                "Recorded %s actions of %s episodes in %.0f s",
                f"{len(recording.actions):,}",
                f"{recording.episodes[-1] + 1:,}",
                seconds,
            )
    if flags.save_games is not None:
        recording.save(Path(flags.save_games).expanduser())
        log.info("Saved the games: %s", flags.save_games)
    return recording, spaces


def _make_learner(config: Config, spaces: KindSpaces, seed: int) -> Learner:
    """Returns an untrained learner, whose state is that of a new experiment."""
    policy = make_policy_spec(config, spaces.observation, spaces.action)._replace(precision="fp32")
    frameskip = config.env.env_frameskip or 1
    algorithm = registered_algorithm(config.run.algo)
    return Learner(LearnerArgs(0, 0, config, policy, algorithm, frameskip, seed))


def _report(epoch: int, score: Score) -> None:
    log.info("Epoch %d, held-out episodes: %s", epoch, score)
