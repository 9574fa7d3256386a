"""Chooses the levels that envs play, by the results of the levels so far."""

import json
from collections.abc import Sequence

import numpy as np

from sample_factory.checkpoints.milestones import resumed_env_frames
from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import read_json, write_atomically
from sample_factory.config.flags import ConfigError
from sample_factory.envs.wrappers.level_switch import LEVEL_WEIGHTS
from sample_factory.exchange.messages import EpisodeReport, TrainReport
from sample_factory.mainloop.level_choice import LevelChoice, registered_level_choice
from sample_factory.mainloop.observed_run import ObservedRun
from sample_factory.mainloop.observer import Observer
from sample_factory.runtime.clock import Every
from sample_factory.runtime.failures import one_line
from sample_factory.runtime.log import log
from sample_factory.runtime.registry import resolve

FILE_NAME = "levels.json"  # in the experiment folder
SAVE_SECONDS = 30.0


class LevelsObserver(Observer):
    """Connects each policy's LevelChoice with the run: sends the weights of levels to the envs that the
    policy plays, keeps a milestone at the end of each stage, and saves the choice's state in the experiment
    folder."""

    def __init__(self, levels: Sequence[str], config: Config):
        """Makes a LevelChoice for each policy. levels: names of the levels. Raises ConfigError if one cannot
        be made."""
        self._levels = list(levels)
        self._name = config.env.level_choice
        self._choices = [self._make(config) for _ in range(config.sampling.num_policies)]
        self._sent: list[np.ndarray | None] = [None for _ in self._choices]
        self._time_to_save = Every(SAVE_SECONDS)

    def _make(self, config: Config) -> LevelChoice:
        flag = f"--level_choice={self._name}"
        try:
            made = resolve(registered_level_choice(self._name))(list(self._levels), config.namespace())
        except Exception as error:  # any error of a user's code
            raise ConfigError(f"{flag} cannot be made: {one_line(error)}") from error
        if not isinstance(made, LevelChoice):
            raise ConfigError(f"{flag} is {type(made).__name__}; it should derive from LevelChoice")
        return made

    def on_init(self, run: ObservedRun) -> None:
        self._load(run)
        # The learners have not reported yet where they resume.
        kind = run.cfg.load_checkpoint_kind
        frames = [resumed_env_frames(run.folder, number, kind) or 0 for number in range(len(self._choices))]
        self._stages = [choice.stage(count) for choice, count in zip(self._choices, frames)]
        for policy_id, env_frames in enumerate(frames):
            self._send(run, policy_id, env_frames)

    def on_episode(self, run: ObservedRun, episode: EpisodeReport) -> None:
        if episode.level in self._levels:
            self._choices[episode.policy_id].add(self._levels.index(episode.level), episode)

    def on_training_step(self, run: ObservedRun, report: TrainReport) -> None:
        policy_id = report.policy_id
        self._send(run, policy_id, report.env_frames)
        stage = self._choices[policy_id].stage(report.env_frames)
        if stage > self._stages[policy_id] and run.keep_milestone(policy_id):
            self._stages[policy_id] = stage
        if self._time_to_save():
            self._save(run)

    def on_stop(self, run: ObservedRun) -> None:
        self._save(run)

    def _send(self, run: ObservedRun, policy_id: int, env_frames: int) -> None:
        """Sends the weights of the levels to a policy's envs if they have changed. Raises ValueError if the
        LevelChoice has returned invalid weights."""
        returned = self._choices[policy_id].weights(env_frames)
        weights = np.array(returned, float)
        is_right = weights.shape == (len(self._levels),) and np.isfinite(weights).all()
        if not is_right or (weights < 0).any() or not weights.any():
            raise ValueError(
                f"weights returned {returned}; it should return {len(self._levels)} numbers, none of them "
                "negative, and not all of them 0"
            )
        if not np.array_equal(weights, np.array(self._sent[policy_id], float)):
            self._sent[policy_id] = weights
            run.send_to_envs({LEVEL_WEIGHTS: weights.tolist()}, policy_id)

    def _load(self, run: ObservedRun) -> None:
        """Restores the state of each LevelChoice from an earlier run, if that run had the same levels and the
        same --level_choice."""
        file = run.folder / FILE_NAME
        if not file.exists():
            return
        saved = read_json(file)
        if (saved.get("choice"), saved.get("levels")) != (self._name, self._levels):
            log.warning("--level_choice=%s starts anew: the levels, or the choice, have changed", self._name)
            return
        try:
            for choice, state in zip(self._choices, saved["policies"]):
                choice.load(state)
        except Exception as error:  # any error of a user's code
            raise ConfigError(
                f"{file}: --level_choice={self._name} does not accept its state ({one_line(error)}); delete "
                "the file to let it start anew"
            ) from error

    def _save(self, run: ObservedRun) -> None:
        states = [choice.state() for choice in self._choices]
        contents = {"choice": self._name, "levels": self._levels, "policies": states}
        try:
            write_atomically(run.folder / FILE_NAME, json.dumps(contents))
        except OSError as error:
            log.error("COULD NOT WRITE %s: %s", run.folder / FILE_NAME, error.strerror)
