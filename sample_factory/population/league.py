"""Self-play: the past selves of all policies, their Elo ratings and win rates, and how often each is drawn.

Prioritised fictitious self-play is from Vinyals et al. 2019 (AlphaStar).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sample_factory.checkpoints.milestones import Milestone, find_milestones
from sample_factory.config.experiment_folder import read_json, write_atomically
from sample_factory.config.flags import ConfigError
from sample_factory.config.population_flags import SelfplayFlags
from sample_factory.exchange.messages import (
    MatchReport,
    MilestoneSaved,
    OpponentLost,
    Opponents,
    PolicyReplaced,
    Report,
)
from sample_factory.runtime.log import log

FILE_NAME = "league.json"
HOW_TO_REPAIR = "repair it, or delete it to start with no results"
MATCHES_PER_UPDATE = 50  # between updates of the prioritised weights
MIN_WEIGHT = 1e-3  # an opponent that never wins is still drawn sometimes, so that its win rate stays current
START_ELO = 1000.0
ELO_SCALE = 400.0
ELO_STEP = 8.0  # the K factor: a won match between equals changes both ratings by half of it
WINDOW = 100  # matches over which a win rate is averaged


def expected_score(own_elo: float, other_elo: float) -> float:
    """Returns the score that Elo ratings predict: 1 / (1 + 10^((R_other - R_own) / 400)) (Elo 1978). A win
    scores 1, a draw 0.5."""
    odds: float = 10.0 ** ((other_elo - own_elo) / ELO_SCALE)
    return 1.0 / (1.0 + odds)


def elo_gain(own_elo: float, other_elo: float, score: float) -> float:
    """Returns the change of a player's Elo rating after a match; the opponent's rating changes by as much in
    the other direction.
    score: 1 (won), 0.5 (drawn) or 0 (lost)."""
    return ELO_STEP * (score - expected_score(own_elo, other_elo))


class Record(NamedTuple):
    """Results of the matches of a live policy against one past self.
    win_rate: the mean score over the first WINDOW matches, then an exponential moving average, because the
        live policy changes. It starts as if one match had been drawn."""

    matches: int = 0
    win_rate: float = 0.5

    def with_result(self, score: float) -> "Record":
        """Returns a new record with one more match. score: 1 (won), 0.5 (drawn) or 0 (lost)."""
        matches = self.matches + 1
        return Record(matches, self.win_rate + (score - self.win_rate) / min(matches + 1, WINDOW))


class League:
    """In the main process: keeps the past selves of all policies, their ratings and win rates.

    1. Every milestone in the experiment folder is a past self, also those of earlier runs. At most
       --selfplay_max_opponents of each policy are in use.
    2. Results and ratings are stored in league.json.
    """

    def __init__(self, flags: SelfplayFlags, folder: Path, num_policies: int):
        """Loads milestones and league.json from the experiment folder. Raises ConfigError if league.json is
        damaged."""
        self._flags = flags
        self._folder = folder
        self._num_policies = num_policies
        self._live_elo = [START_ELO] * num_policies
        self._past_elo: dict[Milestone, float] = {}  # of all past selves
        self._records: dict[tuple[int, Milestone], Record] = {}  # by live policy and past self
        self._num_matches = 0
        self._changed: set[int] = set()  # policies, see take_changed
        self._load()

    def handle(self, report: Report) -> None:
        """Adds a new milestone or the result of a match, drops a past self whose file is lost, and copies the
        ratings of a policy whose weights were taken over; ignores all other reports."""
        match report:
            case MilestoneSaved(milestone):
                self._add(milestone, self._live_elo[milestone.policy_id])
            case MatchReport():
                self._add_result(report)
            case OpponentLost(past_self):
                if self._past_elo.pop(past_self, None) is not None:
                    self._changed.add(past_self.policy_id)
            case PolicyReplaced(policy_id, donor):
                self._copy_results(donor, policy_id)

    def take_changed(self) -> set[int]:
        """Returns the ids of policies whose `opponents` have changed since the last call, and have to
        be sent to the rollout workers again."""
        changed = self._changed
        self._changed = set()
        return changed

    def opponents(self, policy: int) -> Opponents:
        """Returns the past selves of a policy that are in use now, and weights, float32 [num_policies,
        num_past_selves], to draw them with: a row for each live policy."""
        used = self._in_use(policy)
        weights = [
            [self._weight(live, past_self) for past_self in used] for live in range(self._num_policies)
        ]
        return Opponents(policy, tuple(used), np.array(weights, np.float32))

    def summaries(self, policy_id: int) -> dict[str, float]:
        """Returns Elo rating and win rates of a live policy for TensorBoard: tag -> value. Only past selves
        that are in use and that the policy has played against count; a user's matchmaking may leave out
        others."""
        used = [past_self for policy in range(self._num_policies) for past_self in self._in_use(policy)]
        records = [self._record(policy_id, past_self) for past_self in used]
        rates = [record.win_rate for record in records if record.matches]
        scalars = {"elo": self._live_elo[policy_id], "num_opponents": float(len(rates))}
        if rates:
            scalars |= {"win_rate": float(np.mean(rates)), "lowest_win_rate": min(rates)}
        return {f"zz_selfplay/{name}": value for name, value in scalars.items()}

    def save(self) -> None:
        """Writes league.json. An OSError is logged and does not end the run."""
        past_selves = {_name(past_self): self._saved(past_self) for past_self in self._past_elo}
        contents = {"policies": [{"elo": elo} for elo in self._live_elo], "past_selves": past_selves}
        try:
            write_atomically(self._folder / FILE_NAME, json.dumps(contents, indent=4) + "\n")
        except OSError as error:  # e.g. a full disk: the next save writes everything
            log.error("Could not save the results of self-play in %s: %s", self._folder, error.strerror)

    def _add(self, past_self: Milestone, elo: float) -> None:
        if past_self not in self._past_elo:
            self._past_elo[past_self] = elo
            self._changed.add(past_self.policy_id)

    def _add_result(self, report: MatchReport) -> None:
        live, past_self, score = report
        if past_self not in self._past_elo:  # it was lost after the match began
            return
        gain = elo_gain(self._live_elo[live], self._past_elo[past_self], score)
        self._live_elo[live] += gain
        self._past_elo[past_self] -= gain
        self._records[live, past_self] = self._record(live, past_self).with_result(score)
        self._num_matches += 1
        is_prioritized = self._flags.selfplay_sampling == "prioritized"
        if is_prioritized and self._num_matches % MATCHES_PER_UPDATE == 0:
            self._changed.update(range(self._num_policies))

    def _copy_results(self, donor: int, receiver: int) -> None:
        """Copies rating and results of policy `donor` to policy `receiver`, which has taken over its
        weights."""
        self._live_elo[receiver] = self._live_elo[donor]
        for past_self in self._past_elo:
            self._records[receiver, past_self] = self._record(donor, past_self)
        self._changed.update(range(self._num_policies))

    def _weight(self, live: int, past_self: Milestone) -> float:
        """Returns the relative frequency with which a live policy meets a past self: (1 - win rate)^p with
        p = --selfplay_priority_exponent, at least MIN_WEIGHT; 1 with --selfplay_sampling=uniform."""
        if self._flags.selfplay_sampling == "uniform":
            return 1.0
        difficulty = 1.0 - self._record(live, past_self).win_rate
        weight: float = difficulty**self._flags.selfplay_priority_exponent
        return max(MIN_WEIGHT, weight)

    def _in_use(self, policy: int) -> list[Milestone]:
        own = [past_self for past_self in self._past_elo if past_self.policy_id == policy]
        own.sort(key=lambda past_self: past_self.env_frames)  # a run may resume from an earlier state
        return thinned(own, self._flags.selfplay_max_opponents)

    def _record(self, live: int, past_self: Milestone) -> Record:
        return self._records.get((live, past_self), Record())

    def _saved(self, past_self: Milestone) -> dict[str, Any]:
        records = {live: self._record(live, past_self) for live in range(self._num_policies)}
        played = {str(live): record._asdict() for live, record in records.items() if record.matches}
        return {"elo": self._past_elo[past_self], "against": played}

    def _load(self) -> None:
        file = self._folder / FILE_NAME
        try:
            saved = read_json(file) if file.exists() else {}
        except ConfigError as error:
            raise ConfigError(f"{error}; {HOW_TO_REPAIR}") from None
        try:
            for policy, entry in zip(range(self._num_policies), saved.get("policies", [])):
                self._live_elo[policy] = float(entry["elo"])
            for policy in range(self._num_policies):
                for past_self in find_milestones(self._folder, policy):
                    self._load_past_self(past_self, saved.get("past_selves", {}))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = f"{file} does not have the form of a saved league ({error!r}); {HOW_TO_REPAIR}"
            raise ConfigError(message) from None
        if self._past_elo:
            log.info("Self-play: %d past selves of earlier runs", len(self._past_elo))

    def _load_past_self(self, past_self: Milestone, saved: Mapping[str, Any]) -> None:
        entry = saved.get(_name(past_self), {})
        self._add(past_self, float(entry.get("elo", self._live_elo[past_self.policy_id])))
        for live, record in entry.get("against", {}).items():
            self._records[int(live), past_self] = Record(int(record["matches"]), float(record["win_rate"]))


def thinned(milestones: Sequence[Milestone], limit: int) -> list[Milestone]:
    """Returns at most `limit` of a policy's milestones, spread evenly over its env frames.
    milestones: sorted by env frames. They are added one by one; when there are too many, the milestone
        between the two closest neighbours is removed. So a new milestone replaces at most one old
        milestone, and the first is always kept. With a limit of 1, only the newest is kept."""
    kept: list[Milestone] = []
    for milestone in milestones:
        kept.append(milestone)
        if len(kept) <= limit:
            continue
        frames = [milestone.env_frames for milestone in kept]
        gaps = {i: frames[i + 1] - frames[i - 1] for i in range(1, len(kept) - 1)}
        kept.pop(min(gaps, key=lambda i: gaps[i], default=0))
    return kept


def _name(past_self: Milestone) -> str:
    """Returns the key of a past self in league.json: the path of its file, relative to the experiment folder,
    so that the folder may be moved."""
    return str(past_self.path(Path()))
