"""Carries out the decisions of a Population."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

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

RETRY_SECONDS = 30.0  # after a decision that could not be carried out, e.g. because the disk is full


class _Pending(NamedTuple):
    """The decision that is being carried out. env_frames: of its policy when it was made."""

    request_id: int  # answers of learners carry it, so that those to an earlier decision are recognised
    decision: Decision
    env_frames: int


class Evolution:
    """In the main process: carries out one decision of a Population at a time; no process waits for it.

    A policy takes over the weights of a donor in these steps:

    1. `tick` sends DonateRequest to the donor's learner. It writes a file and answers with Donated.
    2. `handle` sends NewSettings with that file to the learner of the policy. It loads the file and the new
       hyperparameters, and answers with SettingsTaken.
    3. `handle` stores the decision in the Population and sends NewShaping to the rollout workers.

    A policy that keeps its weights starts at step 2, and one that keeps its settings too at step 3.
    """

    def __init__(
        self,
        population: Population,
        send_to_learner: Callable[[int, LearnerMessage], bool],
        send_to_workers: Callable[[NewShaping], object],
        on_accepted: Callable[[Decision], object],
        now: Callable[[], float] = time.monotonic,
    ):
        """send_to_learner: returns False if the message could not be sent.
        on_accepted: called when a decision is in effect.
        """
        self.population = population
        self._send_to_learner = send_to_learner
        self._send_to_workers = send_to_workers
        self._on_accepted = on_accepted
        self._now = now
        self._retry_at = 0.0
        self._last_request_id = 0
        self._pending: _Pending | None = None

    def tick(self, env_frames: Sequence[int], objectives: Sequence[float | None]) -> None:
        """Starts to carry out a decision if one is due and none is pending.

        env_frames, objectives: by policy, as for Population.due and Population.decide.
        """
        if self._pending is not None or self._now() < self._retry_at:
            return
        policy_id = self.population.due(env_frames)
        if policy_id is None:
            return
        decision = self.population.decide(policy_id, objectives)
        if decision is None:
            return
        self._last_request_id += 1
        pending = _Pending(self._last_request_id, decision, env_frames[policy_id])
        self._pending = pending
        text = "keeps its weights" if decision.donor is None else f"takes over policy {decision.donor}"
        log.info("PBT: policy %d %s; objectives %s", policy_id, text, _rounded(objectives))
        if decision.donor is not None:
            self._send(pending, decision.donor, DonateRequest(pending.request_id))
        elif decision.member == self.population.members[policy_id]:
            self._accept(pending)
        else:
            self._send_settings(pending, None)

    def handle(self, report: Report) -> None:
        """Handles the answers of learners to the pending decision; ignores all other reports."""
        pending = self._pending
        if pending is None or not isinstance(report, (Donated, SettingsTaken)):
            return
        if report.request_id != pending.request_id:
            return
        match report:
            case Donated(path=None):
                self._give_up(pending, "the donor could not write its file")
            case Donated():
                self._send_settings(pending, report)
            case SettingsTaken(error=""):
                self._accept(pending)
            case SettingsTaken(error=error):
                self._give_up(pending, error)

    def shaping(self) -> list[NewShaping]:
        """Returns the messages for a new rollout worker, which knows only the shaping of the command line."""
        members = enumerate(self.population.members)
        return [NewShaping(policy_id, member.shaping) for policy_id, member in members]

    def summaries(self, policy_id: int) -> dict[str, float]:
        """Returns TensorBoard tag -> value for the settings of a policy."""
        member = self.population.members[policy_id]
        return {
            **_flat(member.hyperparameters, FLAG_TAG),
            **_flat(member.shaping, SHAPING_TAG),
        }

    def _send_settings(self, pending: _Pending, donation: Donated | None) -> None:
        decision = pending.decision
        settings = NewSettings(pending.request_id, decision.member.hyperparameters, donation)
        self._send(pending, decision.policy_id, settings)

    def _send(self, pending: _Pending, policy_id: int, message: LearnerMessage) -> None:
        if not self._send_to_learner(policy_id, message):
            self._give_up(pending, f"the learner of policy {policy_id} does not read its messages")

    def _accept(self, pending: _Pending) -> None:
        decision = pending.decision
        self._pending = None
        self.population.accept(decision, pending.env_frames)
        self._send_to_workers(NewShaping(decision.policy_id, decision.member.shaping))
        self._on_accepted(decision)
        values = _flat(decision.member.hyperparameters, "").items()
        text = ", ".join(f"{name} {value:.4g}" for name, value in values)
        log.info("PBT: policy %d continues with %s", decision.policy_id, text)

    def _give_up(self, pending: _Pending, reason: str) -> None:
        """Drops the pending decision; the population decides again after RETRY_SECONDS."""
        log.error("PBT: policy %d keeps its weights and settings: %s", pending.decision.policy_id, reason)
        self._pending = None
        self._retry_at = self._now() + RETRY_SECONDS


def _flat(values: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """Flattens nested settings as v1's tags do: names are joined by '_', items of a tuple are counted."""
    flat: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}_"))
        elif isinstance(value, (tuple, list)):
            flat.update({f"{prefix}{name}_{i}": float(item) for i, item in enumerate(value)})
        else:
            flat[f"{prefix}{name}"] = float(value)
    return flat


def _rounded(objectives: Sequence[float | None]) -> list[float]:
    return [round(value, 3) for value in objectives if value is not None]
