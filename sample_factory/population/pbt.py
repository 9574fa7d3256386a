"""Population-based training: which policy takes over the weights of another, and how its settings change.

Jaderberg et al. 2017, "Population Based Training of Neural Networks"; rules of Petrenko et al. 2020 (Sample
Factory), section 3.5.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sample_factory.config.algorithms import algorithm_info
from sample_factory.config.consistency import check_values
from sample_factory.config.experiment_folder import read_json, write_atomically
from sample_factory.config.flags import MAX_FLOAT, ConfigError, coerce
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.config.population_flags import MAX_BATCH_GROWTH, PbtFlags
from sample_factory.runtime.log import log

# Flags that evolve with every algorithm; it may declare more (config/algorithms.py).
EVOLVED = ("learning_rate", "exploration_loss_coeff", "value_loss_coeff", "max_grad_norm")
HOW_TO_REPAIR = "repair it, or delete it to start from the flags"
RESET_CHANCE = 0.05  # probability that a changed number is reset to its default instead of being mutated
NEAR_ONE_FACTORS = (1.01, 1.2)  # range of the factor by which 1 - gamma changes
TINY = 1e-8
BATCH_FACTOR = 1.2


class Member(NamedTuple):
    """The hyperparameters and the reward shaping of one policy, which evolve. shaping: {} if the env has
    none."""

    hyperparameters: Mapping[str, Any]
    shaping: Mapping[str, Any]


class Decision(NamedTuple):
    """Says how a policy continues.
    member: its new settings.
    donor: id of the policy whose weights it takes over; None if it keeps its weights."""

    policy_id: int
    donor: int | None
    member: Member


class Mutation:
    """Mutates settings at random. A number changes with probability --pbt_mutation_rate: it is multiplied or
    divided by a factor between --pbt_perturb_min and --pbt_perturb_max."""

    def __init__(self, flags: PbtFlags, rollout: int, batch_size: int, rng: np.random.Generator):
        """Prepares mutations that draw from `rng`. rollout: steps of a trajectory. batch_size: --batch_size,
        in samples."""
        self._flags = flags
        self._rollout = rollout
        self._max_batch = MAX_BATCH_GROWTH * batch_size
        self._rng = rng
        # These keep the values within the bounds of their flags.
        self._special: Mapping[str, Callable[[Any], Any]] = {
            "gamma": self._mutate_near_one,
            "batch_size": lambda value: self.fitting_batch(self._scaled(value, BATCH_FACTOR)),
            "learning_rate": lambda value: min(1.0, self._mutate_number(value)),
        }

    def mutated(self, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a copy of `values` in which each number, also in nested mappings and tuples, is mutated
        independently.
        defaults: values to which a number may be reset; of the same form as `values`."""
        return {
            name: self._mutate(value, defaults[name], self._special.get(name, self._mutate_number))
            for name, value in values.items()
        }

    def fitting_batch(self, size: float) -> int:
        """Returns the largest number of samples up to `size` that consists of whole rollouts and is at most
        MAX_BATCH_GROWTH times --batch_size, for which the buffers suffice; one rollout at least."""
        whole_rollouts = int(min(size, self._max_batch)) // self._rollout
        return max(1, whole_rollouts) * self._rollout

    def _mutate(self, value: Any, default: Any, mutate_number: Callable[[Any], Any]) -> Any:
        if isinstance(value, Mapping):
            return {
                name: self._mutate(item, default[name], self._mutate_number) for name, item in value.items()
            }
        if isinstance(value, (tuple, list)):
            return type(value)(self._mutate(*pair, mutate_number) for pair in zip(value, default))
        if self._rng.random() >= self._flags.pbt_mutation_rate:
            return value
        if value != default and self._rng.random() < RESET_CHANCE:
            return default
        return not value if isinstance(value, bool) else mutate_number(value)

    def _mutate_number(self, value: float) -> float:
        factor = self._rng.uniform(self._flags.pbt_perturb_min, self._flags.pbt_perturb_max)
        return self._scaled(value, factor)

    def _mutate_near_one(self, value: float) -> float:
        """Mutates a discount factor by scaling 1 - value, since 0.99 has a horizon of 1 / 0.01 steps."""
        difference = self._scaled(1.0 - value, self._rng.uniform(*NEAR_ONE_FACTORS))
        return 1.0 - min(1.0, max(TINY, difference))

    def _scaled(self, value: float, factor: float) -> float:
        """Returns the value multiplied or divided by the factor, each with probability 1/2."""
        return value * factor if self._rng.random() < 0.5 else value / factor


class Population:
    """In the main process: keeps the settings of all policies, and decides how they change.

    1. `due`, `decide` and `accept` are called in turn for one policy at a time. No settings change, in memory
       or on disk, before `accept`: a run that is stopped in between decides again.
    2. Settings, and the env frames at the last decisions, are stored in the experiment folder.

    members: settings of each policy.
    """

    def __init__(
        self,
        flags: PbtFlags,
        default: Member,
        learning: LearningFlags,
        folder: Path,
        num_policies: int,
        seed: int,
    ):
        """Loads the settings in the folder; policies without saved settings get mutations of `default`.
        default: the settings on the command line, to which a mutation may reset a value.
        Raises ConfigError if the settings in the folder cannot be read."""
        self._flags = flags
        self._default = default
        self._folder = folder
        self._rng = np.random.default_rng(seed)
        self._mutation = Mutation(flags, learning.rollout, learning.batch_size, self._rng)
        self._decided_at = [0] * num_policies
        # Policy 0 is never mutated, so that one policy always has settings that have been tried.
        self.members = [default, *(self._mutated(default) for _ in range(1, num_policies))]
        starts = default.hyperparameters.items()
        fixed = [f"--{name}={value:g}" for name, value in starts if value == (1 if name == "gamma" else 0)]
        if fixed:
            log.warning("PBT: %s never changes, since a mutation multiplies it", ", ".join(fixed))
        try:
            self._load()
        except ValueError as error:
            raise ConfigError(f"{error}; {HOW_TO_REPAIR}") from None
        self._save()

    def due(self, env_frames: Sequence[int]) -> int | None:
        """Returns the policy to decide on now: of all that are due, the one with the most env frames since
        its last decision; None if none is due.
        env_frames: frames that each policy was trained on so far; 0 if its learner has not reported yet."""
        self._follow_earlier_checkpoints(env_frames)
        flags = self._flags
        waited = {
            policy: frames - self._decided_at[policy]
            for policy, frames in enumerate(env_frames)
            if frames >= flags.pbt_start_mutation
            and frames - self._decided_at[policy] >= flags.pbt_period_env_steps
        }
        return max(waited, key=lambda policy: waited[policy], default=None)

    def _follow_earlier_checkpoints(self, env_frames: Sequence[int]) -> None:
        """Lowers the recorded env frames of a policy's last decision if its learner has resumed from an
        earlier checkpoint, e.g. with --load_checkpoint_kind=best. Otherwise nothing would be decided until
        the policy has reached the old number of frames again."""
        for policy_id, frames in enumerate(env_frames):
            if 0 < frames < self._decided_at[policy_id]:
                log.warning(
                    "PBT: policy %d resumes at %d env frames, with the settings of its decision at %d",
                    policy_id,
                    frames,
                    self._decided_at[policy_id],
                )
                self._decided_at[policy_id] = frames

    def decide(self, policy_id: int, objectives: Sequence[float | None]) -> Decision | None:
        """Decides how a policy continues; returns None if an objective is not known yet, or not finite.

        A policy among the best keeps its weights and settings. A policy among the worst takes over weights
        and settings of a random one of the best, if that one is much better. All except the best mutate their
        settings; policy 0 never does.
        objectives: mean of --pbt_target_objective of each policy.
        """
        known = [value for value in objectives if value is not None and math.isfinite(value)]
        if len(known) < len(objectives):
            return None
        count = max(1, math.ceil(self._flags.pbt_replace_fraction * len(known)))
        ranked = sorted(range(len(known)), key=lambda policy: known[policy], reverse=True)
        best = ranked[:count]
        worst = ranked[-count:]
        if policy_id in best:
            return Decision(policy_id, None, self.members[policy_id])
        donor = None
        if policy_id in worst:
            candidate = best[int(self._rng.integers(len(best)))]
            if self._is_much_better(known[candidate], known[policy_id]):
                donor = candidate
        source = self.members[policy_id if donor is None else donor]
        member = source if policy_id == 0 else self._mutated(source)
        return Decision(policy_id, donor, member)

    def accept(self, decision: Decision, env_frames: int) -> None:
        """Stores a decision that was carried out, in memory and on disk. env_frames: frames that the policy
        was trained on when the decision was made."""
        self.members[decision.policy_id] = decision.member
        self._decided_at[decision.policy_id] = env_frames
        self._save()

    def _is_much_better(self, other: float, own: float) -> bool:
        """Returns whether the objective `other` exceeds `own` by enough to take over the weights of the other
        policy. Unlike in version 1, the gap is relative to the larger absolute value of both: `other` alone
        may be near 0."""
        relative = self._flags.pbt_replace_reward_gap * max(abs(other), abs(own))
        return other - own > max(relative, self._flags.pbt_replace_reward_gap_absolute)

    def _mutated(self, member: Member) -> Member:
        return Member(
            self._mutation.mutated(member.hyperparameters, self._default.hyperparameters),
            self._mutation.mutated(member.shaping, self._default.shaping),
        )

    @property
    def _progress_file(self) -> Path:
        return self._folder / "pbt_progress.json"

    def _load(self) -> None:
        """Loads saved settings from the folder. Raises ValueError if a file cannot be used: guessed values
        would change the experiment without notice."""
        for policy_id, member in enumerate(self.members):
            settings, shaping = settings_files(self._folder, policy_id)
            if settings.exists():
                values = _known(member.hyperparameters, read_json(settings), settings)
                # Raises for values that the command line would not accept.
                section = LearningFlags(**coerce(LearningFlags, values, str(settings)))
                check_values(section, dict.fromkeys(values, str(settings)))
                if "batch_size" in values:
                    values["batch_size"] = self._mutation.fitting_batch(values["batch_size"])
                member = member._replace(hyperparameters=values)
                log.info("PBT: policy %d continues with %s", policy_id, settings)
            if shaping.exists():
                member = member._replace(shaping=_known(member.shaping, read_json(shaping), shaping))
            self.members[policy_id] = member
        if self._progress_file.exists():
            never = {str(policy_id): 0 for policy_id in range(len(self.members))}
            decided = _known(never, read_json(self._progress_file), self._progress_file)
            self._decided_at = [int(frames) for frames in decided.values()]

    def _save(self) -> None:
        contents: dict[Path, Mapping[str, Any]] = {}
        for policy_id, member in enumerate(self.members):
            contents.update(zip(settings_files(self._folder, policy_id), member))
        # Last: a run that is killed before this is written decides again.
        contents[self._progress_file] = {str(i): frames for i, frames in enumerate(self._decided_at)}
        try:
            for path, values in contents.items():
                write_atomically(path, json.dumps(values, indent=4) + "\n")
        except OSError as error:  # e.g. a full disk: training continues, and the next save writes all files
            log.error("PBT: could not save the policies' settings in %s: %s", self._folder, error.strerror)


def settings_files(folder: Path, policy_id: int) -> tuple[Path, Path]:
    """Returns the paths of a policy's files of hyperparameters and of reward shaping; the names are v1's."""
    prefix = f"policy_{policy_id:02d}"
    return folder / f"{prefix}_cfg.json", folder / f"{prefix}_reward_shaping.json"


def tuned_hyperparameters(flags: PbtFlags, algo: str) -> tuple[str, ...]:
    """Returns the names of the flags that PBT evolves with --algo=algo."""
    names = [*EVOLVED, *algorithm_info(algo).evolves]
    names += ["gamma"] if flags.pbt_optimize_gamma else []
    names += ["batch_size"] if flags.pbt_optimize_batch_size else []
    return tuple(names)


def numbers_of(shaping: Any, name: str = "it") -> Any:
    """Converts the numbers in an env's reward shaping from NumPy's types to Python's, since JSON cannot hold
    NumPy's.
    name: name of this part of the shaping, for an error message. Raises ConfigError for a value that is no
        finite number, and so cannot evolve."""
    if isinstance(shaping, Mapping):
        return {key: numbers_of(value, str(key)) for key, value in shaping.items()}
    if isinstance(shaping, (tuple, list)):
        return type(shaping)(numbers_of(value, name) for value in shaping)
    number = shaping.item() if isinstance(shaping, np.generic) else shaping
    if not isinstance(number, (int, float)) or not abs(number) <= MAX_FLOAT:
        raise ConfigError(
            f"get_default_reward_shaping() of the env: {name} is {shaping!r}; --with_pbt=True needs a number"
        )
    return number


def _known(default: Mapping[str, Any], saved: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Reads settings that PBT has saved: returns a value for each name in `default`, the saved one, or the
    default if none is saved.
    path: the saved file, for error messages. Raises ConfigError for a saved value of another form than the
        default."""
    known = {}
    for name, value in default.items():
        found = saved.get(name, value)
        if not _has_form(found, value):
            raise ConfigError(f"{path}: {name} = {found!r} should have the form of {value!r}")
        known[name] = _known(value, found, path) if isinstance(value, Mapping) else found
    return known


def _has_form(saved: Any, default: Any) -> bool:
    """Returns whether `saved` has the form of `default`: a mapping, a sequence of the same length, or a
    finite number."""
    if isinstance(default, Mapping):
        return isinstance(saved, Mapping)
    if isinstance(default, (tuple, list)):
        is_list = isinstance(saved, (tuple, list)) and len(saved) == len(default)
        return is_list and all(map(_has_form, saved, default))
    return isinstance(saved, (int, float)) and abs(saved) <= MAX_FLOAT
