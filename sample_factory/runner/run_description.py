"""The description of a grid of experiments, in Python, with the names of versions 1 and 2.

A module that describes a grid defines RUN_DESCRIPTION, a RunDescription.
"""

import importlib
import itertools
import json
import random
import re
import runpy
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sample_factory.config.flags import ConfigError
from sample_factory.runner.run_job import FOLDER, Job
from sample_factory.runtime.failures import CommandFailed, one_line

SHUFFLE_SEED = 0  # the same order in every start, as an experiment's name begins with its place in the order
LONG_NAME = 200  # characters; the file system allows 255, the names of the run's files have an ending
SHORT = 3  # letters of a parameter's last word in the name of an experiment
NO_FILE_NAME = re.compile(r"[/\\\s]+")

Params = Mapping[str, Any]


class ParamList:
    """Holds combinations of parameters, each a dict of parameter -> value, for an Experiment."""

    def __init__(self, combinations: Iterable[Params]):
        self.combinations = list(combinations)

    def generate_params(self, randomize: bool = True) -> Iterator[Params]:
        """Yields the combinations: dicts of parameter -> value.
        randomize: whether to shuffle the combinations; their order is the same in every start."""
        yield from _in_order(self.combinations, randomize)


class ParamGrid:
    """Holds all combinations of the values of several parameters, for an Experiment."""

    def __init__(self, grid_tuples: Iterable[tuple[Any, Sequence[Any]]]):
        """Makes the combinations; the last parameter varies fastest.

        grid_tuples: a pair (parameter, list of values) for each parameter. Parameters that vary together form
            one pair (tuple of parameters, list of tuples of values).
        """
        axes = [
            [{names: value} if isinstance(names, str) else dict(zip(names, value)) for value in values]
            for names, values in dict(grid_tuples).items()
        ]
        products = itertools.product(*axes) if axes else ()
        self.combinations = [{name: part[name] for part in parts for name in part} for parts in products]

    def generate_params(self, randomize: bool = False) -> Iterator[Params]:
        """Yields the combinations: dicts of parameter -> value.
        randomize: whether to shuffle the combinations; their order is the same in every start."""
        yield from _in_order(self.combinations, randomize)


def _in_order(combinations: Sequence[Params], randomize: bool) -> Sequence[Params]:
    return random.Random(SHUFFLE_SEED).sample(combinations, len(combinations)) if randomize else combinations


class Experiment:
    """Describes a command, and the combinations of parameters with which to run it."""

    def __init__(
        self,
        name: str,
        cmd: str,
        param_generator: Iterable[Params] = (),
        env_vars: Mapping[str, Any] | None = None,
    ):
        """Describes one run of `cmd` for each combination of parameters.

        name: part of the names of the runs.
        cmd: the command without the parameters, quoted as in a shell.
        param_generator: a dict of parameter -> value for each run; if empty, there is one run without
            parameters.
        env_vars: environment variables of the runs.
        """
        self.base_name = name
        self.cmd = cmd
        self.params = [dict(params) for params in param_generator]
        self.env_vars = {str(key): str(value) for key, value in (env_vars or {}).items()}


@dataclass
class RunDescription:
    """Describes a grid of experiments.

    run_name: folder in train_dir that holds all runs.
    experiment_arg_name: argument by which the command receives the name of the run.
    experiment_dir_arg_name: argument by which the command receives the folder for the run.
    customize_experiment_name: whether the names of runs contain their parameters.
    param_prefix: text before the name of each parameter on the command line, e.g. "" for Hydra.
    experiment_dirs_sf_format: whether the folder is passed as --train_dir and --experiments_root.
    """

    run_name: str
    experiments: Sequence[Experiment]
    experiment_arg_name: str = "--experiment"
    experiment_dir_arg_name: str = "--train_dir"
    customize_experiment_name: bool = True
    param_prefix: str = "--"
    experiment_dirs_sf_format: bool = False

    def plan(self, train_dir: Path, suffix: str = "") -> list[Job]:
        """Returns the jobs of all runs. `suffix`: appended to the name of each Experiment's folder.
        Raises ConfigError if there are no runs, two runs have the same name, or a command cannot be
        parsed."""
        jobs = [job for experiment in self.experiments for job in self._plan(experiment, train_dir, suffix)]
        names = [job.name for job in jobs]
        twice = [name for name in names if names.count(name) > 1]
        if not jobs:
            raise ConfigError(f"{self.run_name} has no experiments: give RunDescription at least one")
        if twice:
            raise ConfigError(
                f"{self.run_name}: several runs have the name {twice[0]}; give each Experiment another name"
            )
        return jobs

    def _plan(self, experiment: Experiment, train_dir: Path, suffix: str) -> Iterator[Job]:
        try:
            base = shlex.split(experiment.cmd)
        except ValueError as error:
            raise ConfigError(f"the command of Experiment {experiment.base_name!r}: {error}") from None
        if not base:
            raise ConfigError(f"Experiment {experiment.base_name!r} has no command: give cmd=...")
        group = "_".join(filter(None, [experiment.base_name, suffix]))
        folder = train_dir / self.run_name / group
        place = [f"{self.experiment_dir_arg_name}={folder}"]
        if self.experiment_dirs_sf_format:
            root = f"--experiments_root={Path(self.run_name, group)}"
            place = [f"{self.experiment_dir_arg_name}={train_dir}", root]
        for index, params in enumerate(experiment.params or [{}]):
            name = self._name(experiment.base_name, index, params)
            named = {f"{self.param_prefix}{key}": value for key, value in params.items()}
            flags = [word for flag, value in named.items() for word in as_words(flag, value)]
            command = (*base, *flags, f"{self.experiment_arg_name}={name}", *place)
            files = train_dir / self.run_name / FOLDER / suffix
            yield Job(command, folder / name, files, experiment.env_vars, params)

    def _name(self, base_name: str, index: int, params: Params) -> str:
        """Returns the name of run `index`, e.g. "03_battle_see_1111_l.rat_0.001". Raises ConfigError if the
        name is too long for a file."""
        parts = [f"{index:02d}", base_name]
        if self.customize_experiment_name:
            parts += [f"{short}_{as_typed(params[key])}" for key, short in short_names(params).items()]
        name = NO_FILE_NAME.sub("-", "_".join(parts))
        if len(name.encode()) > LONG_NAME:
            raise ConfigError(
                f"the name {name[:40]}... of a run is longer than {LONG_NAME} characters; give "
                "RunDescription customize_experiment_name=False"
            )
        return name


def short_names(params: Iterable[str]) -> dict[str, str]:
    """Returns parameter -> abbreviation: initials of all words but the last, which is cut to three letters,
    or more where needed to be unique.

    E.g. "seed" -> "see", "learning_rate" -> "l.rat".
    """
    short: dict[str, str] = {}
    for param in params:
        *first, last = re.split(r"[._-]", param)
        initials = "".join(f"{word[:1]}." for word in first)
        name = initials + last[:SHORT]
        size = SHORT
        while name in short.values():
            size += 1
            name = initials + last[:size].ljust(size, "_")
        short[param] = name
    return short


def as_words(flag: str, value: Any) -> list[str]:
    """Returns the words of a command line that set a parameter, e.g. ["--seed=1"] or ["--gpus", "0", "1"].
    flag: name of the parameter, with dashes if it is a flag."""
    if isinstance(value, list | tuple) and flag.startswith("-"):  # a flag takes its values one by one
        return [flag, *map(str, value)]
    return [f"{flag}={as_typed(value)}"]


def as_typed(value: Any) -> str:
    """Returns the value of a parameter as typed on a command line: dicts as JSON, lists with commas."""
    if isinstance(value, Mapping):  # for flags with JSON, such as --env_kwargs
        return json.dumps(value)
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def load_description(run: str) -> RunDescription:
    """Imports the module, or runs the .py file, that `run` names, and returns its variable RUN_DESCRIPTION.
    Raises ConfigError if the module or a valid description is missing, CommandFailed if the import raises."""
    described: RunDescription = load_variable(
        run, "RUN_DESCRIPTION", RunDescription, "'my_grid', experiments=[...]"
    )
    others = [item for item in described.experiments if not isinstance(item, Experiment)]
    if others:
        raise ConfigError(f"--run={run}: experiments should be Experiment objects, not {others[0]!r}")
    return described


def load_variable(run: str, variable: str, kind: type, arguments: str) -> Any:
    """Imports a module, or runs a file whose name ends in .py, and returns one of its variables.

    run: name of the module, or path of the file. kind: class of the variable's value. arguments: constructor
        arguments of this class, for an example in the error message.
    Raises ConfigError if there is no such module or variable, CommandFailed if the import raises.
    """
    is_file = run.endswith(".py")
    if is_file and not Path(run).is_file():
        raise ConfigError(f"--run={run}: there is no such file")
    # A script may import what lies beside it; a console script does not search the working directory.
    sys.path.insert(0, str(Path(run).parent.absolute()) if is_file else "")
    try:
        names = runpy.run_path(run) if is_file else vars(importlib.import_module(run))
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if is_file or missing is None or not f"{run}.".startswith(f"{missing}."):
            raise CommandFailed(f"--run={run}: {one_line(error)}") from error
        raise ConfigError(
            f"--run={run}: there is no module {missing}; give a module that can be imported from here, like "
            "my_package.my_grid, or a file like my_grid.py"
        ) from None
    described = names.get(variable)
    if not isinstance(described, kind):
        has = f"is no {kind.__name__}" if variable in names else "is missing"
        raise ConfigError(f"--run={run}: {variable} {has}; write {variable} = {kind.__name__}({arguments})")
    return described
