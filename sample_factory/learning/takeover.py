"""What a learner does for population-based training: it gives its policy away, and takes another one's."""

import hashlib
from pathlib import Path

import torch

from sample_factory.checkpoints.store import Checkpoints
from sample_factory.exchange.messages import Donated, DonateRequest, NewSettings, SettingsTaken
from sample_factory.learning.learner import Learner


class Takeover:
    """Between two batches, so that neither weights nor flags change inside one."""

    def __init__(self, learner: Learner, checkpoints: Checkpoints):
        self._learner, self._checkpoints = learner, checkpoints

    def answer(self, message: DonateRequest | NewSettings) -> Donated | SettingsTaken:
        """Does what is asked for; what goes wrong is in the answer, and the learner goes on as before."""
        if isinstance(message, DonateRequest):
            return self._donate(message)
        return self._take(message)

    def _donate(self, request: DonateRequest) -> Donated:
        path = self._checkpoints.save_donation(self._learner.state_dict())
        if path is None:
            return Donated(request.ticket, None, "")
        return Donated(request.ticket, str(path), _sha256(path))

    def _take(self, settings: NewSettings) -> SettingsTaken:
        donation = settings.donation
        if donation is not None:
            try:
                found = _sha256(Path(donation.path))
                if found != donation.sha256:
                    raise RuntimeError(f"{donation.path} has SHA-256 {found}, not {donation.sha256}")
                state = torch.load(donation.path, map_location="cpu", weights_only=True)
                self._learner.take_over(state)
            except (OSError, RuntimeError, ValueError) as error:
                return SettingsTaken(settings.ticket, f"{type(error).__name__}: {error}")
        self._learner.set_hyperparameters(settings.hyperparameters)
        if donation is not None:
            self._save()
        return SettingsTaken(settings.ticket, "")

    def _save(self) -> None:
        """The answer puts the settings on disk: a resumed run must not join them to the former weights."""
        learner = self._learner
        self._checkpoints.save(learner.state_dict(), learner.version, learner.env_frames)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
