"""The description of a search of flags, in Python.

A module that describes a search defines SEARCH, a SearchDescription.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sample_factory.config.flags import ConfigError
from sample_factory.runner.run_description import (
    Experiment,
    ParamGrid,
    Params,
    RunDescription,
    as_words,
    load_variable,
)
from sample_factory.runner.run_job import Job

# User attributes of Optuna's trials.
NOTE = "note"  # why it was pruned or has failed
VALUES = "values"  # of the tag: env -> one for each seed


@dataclass
class SearchDescription:
    """Describes a search for the flags with which a command reaches the highest mean score over envs and
    seeds.

    search_name: folder in train_dir that holds all runs.
    cmd: the command without the flags that are searched; quoted as in a shell.
    space: function of an optuna.Trial that draws values by e.g. `trial.suggest_float`; returns flag -> value.
    envs: env -> (low, high), the values of `tag` that count as scores of 0 and 1 in this env.
    frames, seconds: length of each run in env frames or in seconds; one of them must be 0.
    seeds: a trial has a run with each seed in each env, one seed after another.
    tag: TensorBoard tag, or name of a metric, e.g. "true_objective".
    num_trials: number of trials. A second start replaces failed trials by new ones.
    num_reports: number of points in each run at which the trial may be pruned.
    first: trials to begin with, e.g. the present flags: dicts of name -> value, with the names in `space`.
    sampler, pruner: objects of Optuna; by default a TPESampler and a MedianPruner.
    env_vars: environment variables of the runs.
    """

    search_name: str
    cmd: str
    space: Callable[[Any], Params]
    envs: Mapping[str, tuple[float, float]]
    frames: int = 0
    seconds: int = 0
    seeds: Sequence[int] = (1, 2)
    tag: str = "reward"
    num_trials: int = 30
    num_reports: int = 5
    first: Sequence[Params] = ()
    sampler: Any = None
    pruner: Any = None
    env_vars: Mapping[str, Any] | None = None

    @property
    def budget(self) -> int:
        """Returns the length of each run, in env frames or in seconds, as `unit` says."""
        return self.frames or self.seconds

    @property
    def unit(self) -> str:
        return "frames" if self.frames else "seconds"

    @property
    def objective(self) -> dict[str, Any]:
        """Returns the fields that define the score, as JSON values; they must not change between two
        starts."""
        ranges = {env: list(map(float, scores)) for env, scores in self.envs.items()}
        return {"envs": ranges, "seeds": list(self.seeds), self.unit: self.budget, "tag": self.tag}

    def score(self, env: str, value: float) -> float:
        """Converts a value of `tag` to a score, linearly: the env's two values in `envs` become 0 and 1."""
        low, high = self.envs[env]
        return (value - low) / (high - low)

    def rounds(self, number: int, flags: Params, train_dir: Path) -> list[list[Job]]:
        """Returns the jobs of a trial: for each seed, a list with a job for each env.

        number: number of the trial. flags: the values drawn for the trial, flag -> value.
        Raises ConfigError if `cmd` cannot be parsed.
        """
        limit = "train_for_env_steps" if self.frames else "train_for_seconds"
        named = {f"--{name}": value for name, value in {**flags, limit: self.budget}.items()}
        words = [word for flag, value in named.items() for word in as_words(flag, value)]
        runs = ParamGrid([("seed", self.seeds), ("env", list(self.envs))]).generate_params()
        command = f"{self.cmd} {shlex.join(words)}"
        trial = Experiment(f"trial_{number:03d}", command, runs, self.env_vars)
        jobs = RunDescription(self.search_name, [trial]).plan(train_dir)
        return [jobs[start : start + len(self.envs)] for start in range(0, len(jobs), len(self.envs))]

    def check(self) -> None:
        """Checks the fields. Raises ConfigError for fields that contradict each other or a faulty command."""
        ranges = self.envs.values()
        faults = {
            "give either frames=... or seconds=...": (self.frames > 0) == (self.seconds > 0),
            "envs and seeds should not be empty": not self.envs or not self.seeds,
            "num_trials and num_reports should be at least 1": min(self.num_trials, self.num_reports) < 1,
            "an env needs two values, those that count as 0 and as 1": any(
                low == high for low, high in ranges
            ),
        }
        for fault, is_there in faults.items():
            if is_there:
                raise ConfigError(f"{self.search_name}: {fault}")
        self.rounds(0, {}, Path())  # raises for a faulty command


def short(value: Any) -> str:
    """Formats a value for a table: a float with four significant digits, anything else by `str`."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def load_search(run: str) -> SearchDescription:
    """Imports the module, or runs the .py file, that `run` names, and returns its variable SEARCH, checked.
    Raises ConfigError if the module or a valid search is missing, CommandFailed if the import raises."""
    described: SearchDescription = load_variable(run, "SEARCH", SearchDescription, "'name', cmd, space, envs")
    described.check()
    return described
