"""The past selves of all policies, how the live ones do against them, and how often each is played against.

Prioritised fictitious self-play: Vinyals et al. 2019 (AlphaStar), "Prioritized fictitious self-play".
"""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sample_factory.checkpoints.milestones import env_frames_of, milestones_of
from sample_factory.config.experiment_folder import read_json, write_atomically
from sample_factory.config.flags import ConfigError
from sample_factory.config.selfplay_flags import SelfplayFlags
from sample_factory.exchange.messages import MatchReport, MilestoneSaved, OpponentLost, Opponents, Report
from sample_factory.population.rating import START_ELO, Record, elo_gain

log = logging.getLogger("sample_factory")

FILE_NAME = "league.json"
MATCHES_PER_UPDATE = 50  # results after which the weights count as changed
MIN_WEIGHT = 1e-3  # an opponent that never wins is still met now and then, so that its win rate stays true


class League:
    """In the main process. Promises:

    1. Every milestone in the experiment folder is a past self, those of earlier runs too. In use are at most
       --selfplay_max_opponents of each policy.
    2. Results and ratings survive in league.json.
    """

    def __init__(self, flags: SelfplayFlags, folder: Path, num_policies: int):
        """Raises ConfigError if league.json cannot be read."""
        self._flags, self._folder, self._num_policies = flags, folder, num_policies
        self._elo: dict[str, float] = {}  # by player: the name of a live policy, or the path of a past self
        self._records: dict[tuple[int, str], Record] = {}  # of a live policy against a past self
        self._past_selves: list[list[str]] = [[] for _ in range(num_policies)]
        self._num_matches = 0
        self._changed: set[int] = set()  # policies, see take_changed
        self._load()

    def handle(self, report: Report) -> None:
        """Takes in what concerns the league; other reports are none of its business."""
        match report:
            case MilestoneSaved(policy_id, path):
                self._add(policy_id, path, self._elo_of(_live(policy_id)))
            case MatchReport():
                self._add_result(report)
            case OpponentLost(past_self):
                self._remove(past_self)

    def take_changed(self) -> set[int]:
        """The policies whose past selves, or the weights of these, have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def opponents(self, policy: int) -> Opponents:
        """The past selves of a policy, as they are now."""
        used = self._in_use(self._past_selves[policy])
        weights = [[self._weight(live, path) for path in used] for live in range(self._num_policies)]
        return Opponents(policy, tuple(used), np.array(weights, np.float32))

    def summaries(self, policy_id: int) -> dict[str, float]:
        """Tag -> value, of a live policy against the past selves in use that it has met: it may be that it
        never plays against those of some policies.
        """
        used = [path for past_selves in self._past_selves for path in self._in_use(past_selves)]
        records = [self._record(policy_id, path) for path in used]
        rates = [record.win_rate for record in records if record.matches]
        scalars = {"elo": self._elo_of(_live(policy_id)), "num_opponents": float(len(rates))}
        if rates:
            scalars |= {"win_rate": float(np.mean(rates)), "lowest_win_rate": min(rates)}
        return {f"zz_selfplay/{name}": value for name, value in scalars.items()}

    def replaced(self, receiver: int, donor: int) -> None:
        """A live policy goes on with the weights of another, so it has its rating and its results too."""
        self._elo[_live(receiver)] = self._elo_of(_live(donor))
        for path in (path for past_selves in self._past_selves for path in past_selves):
            self._records[receiver, path] = self._record(donor, path)
        self._changed.update(range(self._num_policies))

    def save(self) -> None:
        """Writes league.json. A disk that refuses costs a log line and not the run."""
        live = [self._elo_of(_live(policy)) for policy in range(self._num_policies)]
        past_selves = {self._name(path): self._saved(path) for paths in self._past_selves for path in paths}
        contents = {"policies": [{"elo": elo} for elo in live], "past_selves": past_selves}
        try:
            write_atomically(self._folder / FILE_NAME, json.dumps(contents, indent=4) + "\n")
        except OSError as error:  # say a full disk: the next time all is written again
            log.error("could not save the results of self-play in %s: %s", self._folder, error.strerror)

    def _add(self, policy: int, path: str, elo: float) -> None:
        if path not in self._past_selves[policy]:
            self._past_selves[policy].append(path)
            self._past_selves[policy].sort(key=_env_frames)  # a run may have gone back to an earlier state
            self._elo[path] = elo
            self._changed.add(policy)

    def _remove(self, path: str) -> None:
        for policy, past_selves in enumerate(self._past_selves):
            if path in past_selves:
                past_selves.remove(path)
                del self._elo[path]
                self._changed.add(policy)

    def _add_result(self, report: MatchReport) -> None:
        if report.past_self not in self._elo:  # lost meanwhile
            return
        live, past = _live(report.policy_id), report.past_self
        gain = elo_gain(self._elo_of(live), self._elo[past], report.score)
        self._elo[live] = self._elo_of(live) + gain
        self._elo[past] -= gain
        record = self._record(report.policy_id, past)
        self._records[report.policy_id, past] = record.with_result(report.score)
        self._num_matches += 1
        is_prioritized = self._flags.selfplay_sampling == "prioritized"
        if is_prioritized and self._num_matches % MATCHES_PER_UPDATE == 0:
            self._changed.update(range(self._num_policies))

    def _weight(self, live: int, path: str) -> float:
        """How often a live policy draws a past self: (1 - win rate)^p, the harder ones more often."""
        if self._flags.selfplay_sampling == "uniform":
            return 1.0
        difficulty = 1.0 - self._record(live, path).win_rate
        return max(MIN_WEIGHT, difficulty**self._flags.selfplay_priority_exponent)

    def _in_use(self, past_selves: Sequence[str]) -> list[str]:
        return thinned(past_selves, self._flags.selfplay_max_opponents)

    def _elo_of(self, player: str) -> float:
        return self._elo.get(player, START_ELO)

    def _record(self, live: int, path: str) -> Record:
        return self._records.get((live, path), Record())

    def _name(self, path: str) -> str:
        """In league.json: an experiment folder may be moved."""
        return str(Path(path).relative_to(self._folder))

    def _saved(self, path: str) -> dict[str, Any]:
        records = {live: self._record(live, path) for live in range(self._num_policies)}
        played = {str(live): record._asdict() for live, record in records.items() if record.matches}
        return {"elo": self._elo_of(path), "against": played}

    def _load(self) -> None:
        file = self._folder / FILE_NAME
        saved = _read(file) if file.exists() else {}
        try:
            for policy, entry in enumerate(saved.get("policies", [])):
                self._elo[_live(policy)] = float(entry["elo"])
            for policy in range(self._num_policies):
                for path in milestones_of(self._folder, policy):
                    self._load_past_self(policy, path, saved.get("past_selves", {}))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{file} does not hold what a league saves ({error!r}); {MEND}") from None
        if any(self._past_selves):
            log.info("Self-play: %d past selves of earlier runs", sum(map(len, self._past_selves)))

    def _load_past_self(self, policy: int, path: Path, saved: Mapping[str, Any]) -> None:
        entry = saved.get(self._name(str(path)), {})
        self._add(policy, str(path), float(entry.get("elo", START_ELO)))
        for live, record in entry.get("against", {}).items():
            self._records[int(live), str(path)] = Record(int(record["matches"]), float(record["win_rate"]))


MEND = "mend it, or delete it to start with no results"


def thinned(milestones: Sequence[str], limit: int) -> list[str]:
    """At most `limit` of a policy's milestones, the earliest first: spread evenly over its env frames.

    One after another comes in; when there are too many, the one goes whose neighbours are the closest. So a
    new one displaces one other, and the first stays. With a limit of 1 the newest is all there is.
    """
    kept: list[str] = []
    for milestone in milestones:
        kept.append(milestone)
        if len(kept) <= limit:
            continue
        frames = [_env_frames(path) for path in kept]
        gaps = {i: frames[i + 1] - frames[i - 1] for i in range(1, len(kept) - 1)}
        kept.pop(min(gaps, key=gaps.get, default=0))
    return kept


def _env_frames(path: str) -> int:
    return env_frames_of(Path(path))


def _live(policy: int) -> str:
    return f"policy {policy}"


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except ConfigError as error:
        raise ConfigError(f"{error}; {MEND}") from None
