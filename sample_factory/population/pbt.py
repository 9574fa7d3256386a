"""Population-based training: which policy takes over whose weights, and how its settings change.

Jaderberg et al. 2017; the rules are those of Petrenko et al. 2020, section 3.5.
"""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sample_factory.config.experiment_folder import read_json, write_atomically
from sample_factory.config.flags import MAX_FLOAT, ConfigError, check_values, coerce
from sample_factory.config.population_flags import PbtFlags
from sample_factory.config.sections import LearningFlags
from sample_factory.population.mutation import MutationRule, fitting_batch, mutate

log = logging.getLogger("sample_factory")

HOW_TO_MEND = "mend it, or delete it to start from the flags"


class Member(NamedTuple):
    """The settings of one policy that evolve. shaping: the env's reward shaping, {} where it has none."""

    hyperparameters: Mapping[str, Any]
    shaping: Mapping[str, Any]


class Decision(NamedTuple):
    """What a policy goes on with. donor: the policy whose weights it takes over, None: it keeps its own."""

    policy_id: int
    donor: int | None
    member: Member


class Population:
    """In the main process: the policies' settings, and the rules by which they change. Promises:

    1. `due`, `decide` and `accept` follow each other for one policy at a time. Nothing has changed, here or
       on disk, before `accept`: a run that is stopped in between decides anew.
    2. Settings and the moments of the last decisions survive in the experiment folder.
    """

    def __init__(
        self, flags: PbtFlags, default: Member, rule: MutationRule, folder: Path, num_policies: int, seed: int
    ):
        """default: what the command line says, and what a mutation may go back to."""
        self._flags, self._default, self._rule, self._folder = flags, default, rule, folder
        self._rng = np.random.default_rng(seed)
        self._decided_at = [0] * num_policies
        self.members = [self._first_member(policy) for policy in range(num_policies)]
        self._load()
        self._save()

    def due(self, env_frames: Sequence[int]) -> int | None:
        """The policy that is to be decided on: the one that has waited for the most frames. env_frames: by
        policy, that each has been trained on.
        """
        flags = self._flags
        waited = {
            policy: frames - self._decided_at[policy]
            for policy, frames in enumerate(env_frames)
            if frames >= flags.pbt_start_mutation
            and frames - self._decided_at[policy] >= flags.pbt_period_env_steps
        }
        return max(waited, key=waited.get, default=None)

    def decide(self, policy_id: int, objectives: Sequence[float | None]) -> Decision | None:
        """objectives: mean of --pbt_target_objective by policy; None as long as one of them has none."""
        if any(value is None or not math.isfinite(value) for value in objectives):
            return None
        count = max(1, math.ceil(self._flags.pbt_replace_fraction * len(objectives)))
        ranked = sorted(range(len(objectives)), key=lambda policy: objectives[policy], reverse=True)
        best, worst = ranked[:count], ranked[-count:]
        if policy_id in best:
            return Decision(policy_id, None, self.members[policy_id])
        donor = None
        if policy_id in worst:
            candidate = best[int(self._rng.integers(len(best)))]
            if self._is_much_better(objectives[candidate], objectives[policy_id]):
                donor = candidate
        source = self.members[policy_id if donor is None else donor]
        # The first policy always has settings that have been tried, so that one of them is not exploring.
        member = source if policy_id == 0 else self._mutated(source)
        return Decision(policy_id, donor, member)

    def accept(self, decision: Decision, env_frames: int) -> None:
        """The decision has been carried out. env_frames: of its policy."""
        self.members[decision.policy_id] = decision.member
        self._decided_at[decision.policy_id] = env_frames
        self._save()

    def _is_much_better(self, other: float, own: float) -> bool:
        """The original divided by the candidate's objective alone, which says nothing where it is near 0."""
        relative = self._flags.pbt_replace_reward_gap * max(abs(other), abs(own))
        return other - own > max(relative, self._flags.pbt_replace_reward_gap_absolute)

    def _first_member(self, policy_id: int) -> Member:
        return self._default if policy_id == 0 else self._mutated(self._default)

    def _mutated(self, member: Member) -> Member:
        return Member(
            mutate(member.hyperparameters, self._default.hyperparameters, self._rule, self._rng),
            mutate(member.shaping, self._default.shaping, self._rule, self._rng),
        )

    def _files(self, policy_id: int) -> tuple[Path, Path]:
        """v1's names."""
        names = f"policy_{policy_id:02d}_cfg.json", f"policy_{policy_id:02d}_reward_shaping.json"
        return self._folder / names[0], self._folder / names[1]

    @property
    def _progress_file(self) -> Path:
        return self._folder / "pbt_progress.json"

    def _load(self) -> None:
        for policy_id, member in enumerate(self.members):
            settings, shaping = self._files(policy_id)
            if settings.exists() and shaping.exists():
                values = _read(settings, member.hyperparameters)
                _check_flags(values, settings)
                if "batch_size" in values:
                    values["batch_size"] = fitting_batch(values["batch_size"], self._rule)
                self.members[policy_id] = Member(values, _read(shaping, member.shaping))
                log.info("PBT: policy %d goes on with %s", policy_id, settings)
        if self._progress_file.exists():
            never = {str(policy_id): 0 for policy_id in range(len(self.members))}
            self._decided_at = [int(frames) for frames in _read(self._progress_file, never).values()]

    def _save(self) -> None:
        contents: dict[Path, Mapping[str, Any]] = {}
        for policy_id, member in enumerate(self.members):
            contents.update(zip(self._files(policy_id), member))
        # Last: a run that is killed before it decides anew.
        contents[self._progress_file] = {str(i): frames for i, frames in enumerate(self._decided_at)}
        try:
            for path, values in contents.items():
                write_atomically(path, json.dumps(values, indent=4) + "\n")
        except OSError as error:  # say a full disk: training goes on, and the next time all are written again
            log.error("PBT: could not save the policies' settings in %s: %s", self._folder, error.strerror)


def tuned_hyperparameters(flags: PbtFlags) -> tuple[str, ...]:
    """The names of the flags that evolve."""
    names = ["learning_rate", "exploration_loss_coeff", "value_loss_coeff", "max_grad_norm"]
    names += ["ppo_clip_ratio", "ppo_clip_value"]
    names += ["gamma"] if flags.pbt_optimize_gamma else []
    names += ["batch_size"] if flags.pbt_optimize_batch_size else []
    return tuple(names)


def _read(path: Path, default: Mapping[str, Any]) -> dict[str, Any]:
    """The saved values of what there is by default; what the file lacks is as by default.

    Raises ConfigError: guessing at what a damaged file said would change an experiment in silence.
    """
    try:
        return _known(default, read_json(path), path)
    except ConfigError as error:
        raise ConfigError(f"{error}; {HOW_TO_MEND}") from None


def _known(default: Mapping[str, Any], saved: Mapping[str, Any], path: Path) -> dict[str, Any]:
    known = {}
    for name, value in default.items():
        found = saved.get(name, value)
        if not _has_form(found, value):
            raise ConfigError(f"{path}: {name} = {found!r} should be of the form {value!r}")
        known[name] = _known(value, found, path) if isinstance(value, Mapping) else found
    return known


def _has_form(found: Any, value: Any) -> bool:
    """Of a group, a tuple or a number."""
    if isinstance(value, Mapping):
        return isinstance(found, Mapping)
    if isinstance(value, (tuple, list)):
        is_list = isinstance(found, (tuple, list)) and len(found) == len(value)
        return is_list and all(map(_has_form, found, value))
    return isinstance(found, (int, float)) and abs(found) <= MAX_FLOAT


def _check_flags(values: Mapping[str, Any], path: Path) -> None:
    """Raises ConfigError for what would be refused on the command line."""
    source = str(path)
    try:
        section = LearningFlags(**coerce(LearningFlags, dict(values), source))
        check_values(section, dict.fromkeys(values, source))
    except ValueError as error:
        raise ConfigError(f"{error}; {HOW_TO_MEND}") from None
