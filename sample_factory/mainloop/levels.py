"""Chooses the levels that envs play, by the results of the levels so far."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import read_json, write_atomically
from sample_factory.config.flags import ConfigError
from sample_factory.envs.wrappers.level_switch import LEVEL_WEIGHTS
from sample_factory.exchange.channels import send
from sample_factory.exchange.messages import EpisodeReport, MilestoneRequest, PolicyReplaced, Report
from sample_factory.mainloop.level_choice import LevelChoice, registered_level_choice
from sample_factory.mainloop.observing import UserCode
from sample_factory.monitoring.policy_progress import PolicyProgress
from sample_factory.monitoring.subscriber import Subscriber
from sample_factory.runtime.clock import Every
from sample_factory.runtime.failures import one_line
from sample_factory.runtime.log import log
from sample_factory.runtime.queues import Queue
from sample_factory.runtime.registry import resolve

FILE_NAME = "levels.json"  # in the experiment folder
SEND_SECONDS = 2.0
SAVE_SECONDS = 30.0


class LevelsSubscriber(Subscriber):
    """In the main process: sends the weights of a LevelChoice of each policy to the envs that it plays. Asks
    the learner for a milestone at the end of each stage. Keeps the state of all choices in the experiment
    folder. A choice that raises is switched off, and its last weights stay.
    """

    def __init__(
        self,
        levels: Sequence[str],
        config: Config,
        policies: Sequence[PolicyProgress],
        learners: Sequence[Queue],
        send_to_envs: Callable[[Mapping[str, Any], int], None],
        publish: Callable[[Report], None],
        env_frames: Sequence[int],
    ):
        """send_to_envs: called with values and the policy. publish: hands a report to all subscribers.
        env_frames: of each policy, in earlier runs.

        Raises ConfigError for a choice that cannot be made, or does not accept its state.
        """
        self._numbers = {level: number for number, level in enumerate(levels)}
        self._name = config.env.level_choice
        self._file = config.experiment_dir / FILE_NAME
        self._policies = policies
        self._learners = learners
        self._send_to_envs = send_to_envs
        self._is_serial = config.sampling.serial_mode  # repeatable, so that nothing depends on time
        self._frames_before = env_frames
        self._choices = [self._make(list(levels), config) for _ in policies]
        self._code = [UserCode(f"--level_choice={self._name}", "is", publish) for _ in policies]
        self._load()
        try:
            self._sent = [self._weights(policy_id) for policy_id in range(len(policies))]
            self._stages = [choice.stage(frames) for choice, frames in zip(self._choices, env_frames)]
        except Exception as error:  # any error of a user's code
            raise ConfigError(f"--level_choice={self._name}: {one_line(error)}") from error
        for policy_id, weights in enumerate(self._sent):
            send_to_envs({LEVEL_WEIGHTS: weights.tolist()}, policy_id)
        self._time_to_send = Every(SEND_SECONDS)
        self._time_to_save = Every(SAVE_SECONDS)

    def _make(self, levels: list[str], config: Config) -> LevelChoice:
        flag = f"--level_choice={self._name}"
        try:
            made = resolve(registered_level_choice(self._name))(levels, config.namespace())
        except Exception as error:  # any error of a user's code
            raise ConfigError(f"{flag} cannot be made: {one_line(error)}") from error
        if not isinstance(made, LevelChoice):
            raise ConfigError(f"{flag} is {type(made).__name__}; it should derive from LevelChoice")
        return made

    def handle(self, report: Report) -> None:
        match report:
            case EpisodeReport() if report.level in self._numbers:
                policy_id, level = report.policy_id, self._numbers[report.level]
                self._code[policy_id].call("add", self._choices[policy_id].add, level, report)
            case PolicyReplaced():
                self._choices[report.policy_id].load(self._choices[report.donor].state())

    def tick(self) -> None:
        if self._is_serial or self._time_to_send():
            for policy_id in range(len(self._policies)):
                self._send(policy_id)
        if self._time_to_save():
            self._save()

    def close(self) -> None:
        self._save()

    def _send(self, policy_id: int) -> None:
        """Sends the weights if they have changed, and asks for a milestone if a stage has ended."""
        choice, code = self._choices[policy_id], self._code[policy_id]
        weights = code.call("weights", self._weights, policy_id)
        if weights is not None and not np.array_equal(weights, self._sent[policy_id]):
            self._sent[policy_id] = weights
            self._send_to_envs({LEVEL_WEIGHTS: weights.tolist()}, policy_id)
        stage = code.call("stage", choice.stage, self._frames(policy_id))
        if (
            stage is not None
            and stage > self._stages[policy_id]
            and send(self._learners[policy_id], MilestoneRequest())
        ):
            log.info("Policy %d: a stage of its levels ends, and a milestone is kept", policy_id)
            self._stages[policy_id] = stage

    def _frames(self, policy_id: int) -> int:
        policy = self._policies[policy_id]
        return policy.env_frames if policy.has_started else self._frames_before[policy_id]

    def _weights(self, policy_id: int) -> np.ndarray:
        """Returns the weights that the choice of a policy returns. Raises ValueError if these are none."""
        returned = self._choices[policy_id].weights(self._frames(policy_id))
        weights = np.array(returned, float)
        is_right = weights.shape == (len(self._numbers),) and np.isfinite(weights).all()
        if not is_right or (weights < 0).any() or not weights.any():
            raise ValueError(
                f"weights returned {returned}; it should return {len(self._numbers)} numbers, none of them "
                "negative, and not all of them 0"
            )
        return weights

    def _load(self) -> None:
        """Gives each choice the state that an earlier run has saved, if that had the same levels."""
        if not self._file.exists():
            return
        saved = read_json(self._file)
        known = {"choice": self._name, "levels": list(self._numbers)}
        if any(saved.get(name) != value for name, value in known.items()):
            log.warning("--level_choice=%s starts anew: the levels, or the choice, have changed", self._name)
            return
        try:
            for choice, state in zip(self._choices, saved["policies"]):
                choice.load(state)
        except Exception as error:  # any error of a user's code
            raise ConfigError(
                f"{self._file}: --level_choice={self._name} does not accept its state ({one_line(error)}); "
                "delete the file to let it start anew"
            ) from error

    def _save(self) -> None:
        states = [
            code.call("state", choice.state) for choice, code in zip(self._choices, self._code, strict=True)
        ]
        contents = {"choice": self._name, "levels": list(self._numbers), "policies": states}
        try:
            write_atomically(self._file, json.dumps(contents))
        except (OSError, TypeError, ValueError) as error:
            log.error("COULD NOT WRITE %s: %s", self._file, one_line(error))
