"""Checkpoints of a learner, and the exchange of weights in population-based training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.checkpoints.milestones import Milestone, MilestoneSchedule
from sample_factory.checkpoints.store import Checkpoints, delete_files, read_checkpoint
from sample_factory.exchange.messages import (
    MilestoneRequest,
    MilestoneSaved,
    NewSettings,
    Report,
    SettingsTaken,
    Snapshot,
    SnapshotRequest,
)
from sample_factory.learning.learner import Learner
from sample_factory.learning.learner_args import LearnerArgs
from sample_factory.learning.receiver import Request
from sample_factory.runtime.clock import Every
from sample_factory.runtime.log import log


class Saver:
    """Saves a learner's regular checkpoints and milestones, resumes the learner from them, and writes
    snapshots for other policies.

    With population-based training, also loads the weights of another policy into the learner, between two
    batches, so that neither weights nor flags change within a batch.

    Nothing is written while the newest SGD step was not finite, or after a NumericalError: the cause may be
    in the learner's state, for example in a buffer of a user's network that no check covers. The last good
    checkpoint then stays the newest.

    All fields belong to the trainer thread (to the main thread before it starts and after it ends).
    """

    def __init__(self, learner: Learner, checkpoints: Checkpoints, args: LearnerArgs):
        """Resumes the learner from the newest usable checkpoint; if there is none, from --transfer_from.
        Raises CheckpointError if there are checkpoints, but none can be loaded."""
        config = args.config
        self._learner = learner
        self._checkpoints = checkpoints
        self._is_enabled = not config.sampling.sampler_only
        self._time_to_save = Every(config.monitoring.save_every_sec)
        self._resume(config.monitoring.load_checkpoint_kind)
        if args.transfer_from is not None and checkpoints.is_empty():
            self._transfer(args.transfer_from)
        has_league = config.selfplay.selfplay_past_share > 0
        self._milestones = MilestoneSchedule(
            config.monitoring.save_milestones_sec,
            config.selfplay.selfplay_snapshot_env_steps if has_league else 0,
            learner.env_frames,
            has_milestone=bool(checkpoints.milestones()),
        )

    def _resume(self, kind: str) -> None:
        state = self._checkpoints.load(kind, check=self._learner.load_state_dict)
        if state is None and not self._checkpoints.is_empty():
            other = "best" if kind == "latest" else "latest"
            raise CheckpointError(
                f"{self._checkpoints.folder} has no {kind} checkpoint yet; try --load_checkpoint_kind={other}"
            )
        if state is not None:
            self._checkpoints.supersede(self._learner.version)
            log.info("Policy %d resumes at %d SGD steps, %d env frames", *self._counts())

    def _transfer(self, path: Path) -> None:
        state = read_checkpoint(path)
        try:
            self._learner.start_with(state)
        except ValueError as error:
            raise CheckpointError(
                f"--transfer_from: cannot use {path}: {error}. Set the flags of the model as in that "
                "training; the spaces of the envs must be the same"
            ) from None
        log.info("Policy %d starts with the weights of %s", self._learner.policy_id, path)

    def _counts(self) -> tuple[int, int, int]:
        return self._learner.policy_id, self._learner.version, self._learner.env_frames

    def _state(self) -> tuple[dict[str, Any], int, int]:
        """Returns (state, version, env frames) of the learner, the arguments of `Checkpoints.save` and
        `save_milestone`."""
        return self._learner.state_dict(), self._learner.version, self._learner.env_frames

    def save(self) -> bool:
        """Saves a checkpoint, unless nothing is learned (--sampler_only) or the newest SGD step was not
        finite. Returns False only if the file could not be written."""
        if not self._is_enabled or self._is_broken("a checkpoint"):
            return True
        deletes_old = bool(self._learner.descent.newest_is_finite)
        return self._checkpoints.save(*self._state(), deletes_old) is not None

    def _is_broken(self, file: str) -> bool:
        """Returns whether the newest SGD step was not finite; then logs that `file` is not written."""
        is_broken = self._learner.descent.newest_is_finite is False
        if is_broken:
            log.warning("%s is not written: the newest SGD step has failed", file)
        return is_broken

    def save_when_due(self, send: Callable[[Report], None]) -> None:
        """Saves a regular checkpoint if it is due, and likewise a milestone; neither unless the newest SGD
        step was finite. send: sends the report about the milestone to the main process."""
        if not self._learner.descent.newest_is_finite:
            return
        if self._time_to_save():
            self.save()
        if not self._milestones.is_due(self._learner.env_frames):
            return
        path = self._checkpoints.save_milestone(*self._state())
        self._milestones.record(self._learner.env_frames, is_saved=path is not None)
        if path is not None:
            send(MilestoneSaved(Milestone(*self._counts())))

    def answer(self, request: Request) -> Snapshot | SettingsTaken | None:
        """Carries out a request of the main process and returns the answer. Returns None for a
        MilestoneRequest, which `save_when_due` answers later.

        The answer describes a failure, if any; the learner then stays unchanged.
        """
        match request:
            case MilestoneRequest():
                self._milestones.request()
                return None
            case SnapshotRequest(name):
                is_broken = self._is_broken(name)
                path = None if is_broken else self._checkpoints.save_snapshot(self._state()[0], name)
                return Snapshot(name, *self._counts(), None if path is None else str(path))
            case NewSettings():
                return self._take(request)

    def _take(self, settings: NewSettings) -> SettingsTaken:
        if settings.donation is not None:
            donation = Path(settings.donation)
            try:
                self._learner.take_over(read_checkpoint(donation))
            except (CheckpointError, RuntimeError, ValueError) as error:
                return SettingsTaken(f"{type(error).__name__}: {error}")
            delete_files([donation])
        self._learner.set_hyperparameters(settings.hyperparameters)
        if settings.donation is not None:
            # The main process saves the settings when it has the answer. A resumed run must not combine them
            # with the former weights.
            self.save()
        return SettingsTaken("")
