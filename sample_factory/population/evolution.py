"""Carries out what a Population decides."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sample_factory.config.population_flags import FLAG_TAG, SHAPING_TAG
from sample_factory.exchange.messages import (
    Donated,
    DonateRequest,
    LearnerMessage,
    NewSettings,
    NewShaping,
    Report,
    SettingsTaken,
)
from sample_factory.population.pbt import Decision, Population

log = logging.getLogger("sample_factory")

RETRY_SECONDS = 30.0  # after a donation that failed, say because the disk is full


class Evolution:
    """In the main process: one decision at a time travels through donor, receiver and rollout workers.

    A decision to replace: DonateRequest -> the donor's learner writes a file -> Donated -> NewSettings -> the
    receiver's learner takes that very file and its settings -> SettingsTaken -> the Population is told, and
    the rollout workers get the new shaping. Nothing waits for any of it.
    """

    def __init__(
        self,
        population: Population,
        tell_learner: Callable[[int, LearnerMessage], bool],
        tell_workers: Callable[[NewShaping], Any],
        on_change: Callable[[Decision], None],
        now: Callable[[], float] = time.monotonic,
    ):
        """tell_learner: False if that cannot be done. on_change(decision): it is in effect."""
        self.population = population
        self._tell_learner, self._tell_workers, self._on_change = tell_learner, tell_workers, on_change
        self._now, self._not_before = now, 0.0
        self._ticket = 0
        self._decision: Decision | None = None  # that is being carried out
        self._frames = 0

    def tick(self, env_frames: Sequence[int], objectives: Sequence[float | None]) -> None:
        """Begins to carry out a decision if one is due and none is under way. By policy, as in Population."""
        if self._decision is not None or self._now() < self._not_before:
            return
        policy = self.population.due(env_frames)
        decision = None if policy is None else self.population.decide(policy, objectives)
        if decision is None:
            return
        self._decision, self._frames = decision, env_frames[policy]
        self._ticket += 1
        text = "keeps its weights" if decision.donor is None else f"takes over policy {decision.donor}"
        log.info("PBT: policy %d %s; objectives %s", policy, text, _rounded(objectives))
        if decision.donor is not None:
            self._tell(decision.donor, DonateRequest(self._ticket))
        elif decision.member == self.population.members[policy]:
            self._accept()
        else:
            self._send_settings(None)

    def handle(self, report: Report) -> None:
        """Takes in the learners' answers; other reports are none of its business."""
        match report:
            case Donated(ticket=self._ticket, path=None):
                self._drop("the donor could not write its file")
            case Donated(ticket=self._ticket):
                self._send_settings(report)
            case SettingsTaken(ticket=self._ticket, error=""):
                self._accept()
            case SettingsTaken(ticket=self._ticket):
                self._drop(report.error)

    def shaping(self) -> list[NewShaping]:
        """What a rollout worker that has just been started must be told: it only knows the command line's."""
        members = enumerate(self.population.members)
        return [NewShaping(policy_id, member.shaping) for policy_id, member in members]

    def summaries(self, policy_id: int) -> dict[str, float]:
        """Tag -> value of what evolves."""
        member = self.population.members[policy_id]
        return {
            **_flat(member.hyperparameters, FLAG_TAG),
            **_flat(member.shaping, SHAPING_TAG),
        }

    def _send_settings(self, donation: Donated | None) -> None:
        settings = NewSettings(self._ticket, self._decision.member.hyperparameters, donation)
        self._tell(self._decision.policy_id, settings)

    def _tell(self, policy: int, message: LearnerMessage) -> None:
        if not self._tell_learner(policy, message):
            self._drop(f"the learner of policy {policy} takes no messages")

    def _accept(self) -> None:
        decision, self._decision = self._decision, None
        self.population.accept(decision, self._frames)
        self._tell_workers(NewShaping(decision.policy_id, decision.member.shaping))
        self._on_change(decision)
        values = _flat(decision.member.hyperparameters, "").items()
        text = ", ".join(f"{name} {value:.4g}" for name, value in values)
        log.info("PBT: policy %d goes on with %s", decision.policy_id, text)

    def _drop(self, reason: str) -> None:
        log.error("PBT: policy %d stays as it was: %s", self._decision.policy_id, reason)
        self._decision, self._not_before = None, self._now() + RETRY_SECONDS


def _flat(values: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """Nested names are joined by '_', numbers of a tuple counted: v1's tags."""
    flat: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}_"))
        elif isinstance(value, (tuple, list)):
            flat.update({f"{prefix}{name}_{i}": float(part) for i, part in enumerate(value)})
        else:
            flat[f"{prefix}{name}"] = float(value)
    return flat


def _rounded(objectives: Sequence[float | None]) -> list[float]:
    return [round(value, 3) for value in objectives if value is not None]
