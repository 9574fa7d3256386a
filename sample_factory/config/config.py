"""The configuration of one experiment: frozen, written to cfg.json."""

import argparse
import dataclasses
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from sample_factory.config.command import TRAIN, Command
from sample_factory.config.experiment_folder import SAVED_NAMES, experiment_folder, write_atomically
from sample_factory.config.flag_parser import nearest_flag
from sample_factory.config.flags import section_fields, shortened
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.config.monitoring_flags import EvaluationFlags, MonitoringFlags
from sample_factory.config.population_flags import PbtFlags, SelfplayFlags
from sample_factory.config.sampling_flags import ClusterFlags, SamplingFlags
from sample_factory.config.sections import (
    RETIRED_DEFAULTS,
    TRAINING_SECTIONS,
    EnvFlags,
    ModelFlags,
    RunFlags,
    flat_values,
)
from sample_factory.config.trust import signed
from sample_factory.config.versions import VERSIONS_KEY, versions
from sample_factory.runtime.log import log


class FlagNamespace(argparse.Namespace):
    """All flags of an experiment: `cfg.gamma`, `cfg["gamma"]`, `"gamma" in cfg`, `cfg.get("gamma")`.

    As in versions 1 and 2 it is an argparse.Namespace. Names of version 2 are read and set as the flags that
    they are aliases of: `cfg.rnn_size` is `cfg.hidden_size`. `vars(cfg)` has each flag once. Flags
    without an effect here, such as `cfg.batched_sampling`, are in it only if set, and can always be read.
    """

    _ALIASES: ClassVar[Mapping[str, str]] = {
        alias: field.name
        for section in TRAINING_SECTIONS.values()
        for field, _ in section_fields(section)
        for alias in field.metadata["aliases"]
    }

    def __getattr__(self, name: str) -> Any:
        """Called for a name that is no flag. Raises AttributeError, with the nearest flag."""
        flag = self._ALIASES.get(name)
        if flag is not None and flag in vars(self):
            return vars(self)[flag]
        if name in RETIRED_DEFAULTS:
            return RETIRED_DEFAULTS[name]
        hint = "" if name.startswith("_") else nearest_flag(name, vars(self)).replace("--", "")
        raise AttributeError(f"cfg has no flag {name}{hint}")

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(self._ALIASES.get(name, name), value)

    def __contains__(self, name: object) -> bool:
        return self._ALIASES.get(str(name), name) in vars(self) or name in RETIRED_DEFAULTS

    def __getitem__(self, name: str) -> Any:
        """Returns the value of a flag. Raises KeyError, with the nearest flag."""
        try:
            return getattr(self, name)
        except AttributeError as error:
            raise KeyError(str(error)) from None

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the value of a flag, or the default if there is no such flag."""
        return getattr(self, name, default)


def as_text(value: Any) -> str:
    """Returns the value of a flag for a message."""
    return shortened(" ".join(map(str, value)) or "empty" if isinstance(value, tuple) else str(value))


def with_lists(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns flag -> value, with lists where flags have tuples, as in versions 1 and 2."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


class Choice(NamedTuple):
    """A value of a flag, and the layer that has it, e.g. "defaults of doom_battle"."""

    layer: str
    value: Any


class Change(NamedTuple):
    """A flag with two values: in cfg.json of the experiment, and given now."""

    flag: str
    saved: Any
    given: Any

    def __str__(self) -> str:
        return f"{self.flag} {as_text(self.saved)} -> {as_text(self.given)}"


class Resumed(NamedTuple):
    """The flags of a start that differ from the saved flags of the experiment that it resumes.

    changed: flags on the command line. ignored: flags in the --cfg file, which the saved ones override.
    """

    changed: tuple[Change, ...] = ()
    ignored: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Config:
    """One frozen section per component. Flat on the command line and in cfg.json.

    family: the flags of the env family, an instance of EnvFamily.flags; None if it has none.
    typed: flag -> value, for the flags on the command line.
    choices: flag -> its values by layer, the one that wins last; empty for a flag that no layer has.
    unknown: key -> value, for keys of cfg.json that are no flags. They are written back unchanged.
    extra: section name -> section, for the sections that only one program has.
    argv: the arguments that were parsed; a script may have given others than its own.
    open_flags: flags that nothing has set, so that a training may choose them by the observation of the env,
        see observation_defaults.py.
    resumed: the flags that differ from the saved ones; None if no experiment is resumed.
    is_foreign: whether values come from a cfg.json of another account, which --trust_code has not accepted;
        `save` does not sign them.
    is_of_script: whether a script for version 2 starts it, which also finds cfg.json as config.json.
    command: what the flags were parsed for.
    """

    run: RunFlags
    sampling: SamplingFlags
    learning: LearningFlags
    model: ModelFlags
    env: EnvFlags
    monitoring: MonitoringFlags
    population: PbtFlags
    selfplay: SelfplayFlags
    evaluation: EvaluationFlags
    cluster: ClusterFlags
    family: Any = None
    typed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    choices: Mapping[str, tuple[Choice, ...]] = dataclasses.field(default_factory=dict, compare=False)
    unknown: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    argv: tuple[str, ...] = ()
    open_flags: frozenset[str] = frozenset()
    resumed: Resumed | None = None
    is_foreign: bool = False
    is_of_script: bool = False
    command: Command = TRAIN

    @property
    def sections(self) -> dict[str, Any]:
        """Name -> section; "family" for the flags of the env, if it has any."""
        of_family = {} if self.family is None else {"family": self.family}
        return {**{name: getattr(self, name) for name in TRAINING_SECTIONS}, **of_family, **self.extra}

    def flat(self) -> dict[str, Any]:
        """Returns flag -> value."""
        values: dict[str, Any] = {}
        for section in self.sections.values():
            values.update(flat_values(section))
        return values

    def choose(self, layer: str, values: Mapping[str, Any]) -> "Config":
        """Returns the configuration with other values of flags that every training has, and their layer."""
        sections = {}
        for name in TRAINING_SECTIONS:
            section = getattr(self, name)
            sections[name] = dataclasses.replace(
                section, **{flag: value for flag, value in values.items() if flag in vars(section)}
            )
        chosen = {flag: (*self.choices.get(flag, ()), Choice(layer, value)) for flag, value in values.items()}
        return dataclasses.replace(self, **sections, choices={**self.choices, **chosen})

    def could_choose(self, layer: str, values: Mapping[str, Any]) -> "Config":
        """Returns the configuration with a layer below all others, which another one overrides, or which has
        values that are for `--explain` only."""
        could = {flag: (Choice(layer, value), *self.choices.get(flag, ())) for flag, value in values.items()}
        return dataclasses.replace(self, choices={**self.choices, **could})

    def section_of(self, flag: str) -> str | None:
        """Returns the name of a flag's section; None for a flag that none has, such as a retired one."""
        return next((name for name, section in self.sections.items() if flag in vars(section)), None)

    def namespace(self) -> FlagNamespace:
        """Returns all flags as attributes, with lists for several values: the `cfg` of `make_env` functions.
        It also has the keys of cfg.json that are no flags."""
        return FlagNamespace(**with_lists({**self.unknown, **self.flat()}))

    @property
    def env_name(self) -> str:
        """Full name of the environment, --env."""
        assert self.run.env is not None, "parse_config refuses a command line without --env"
        return self.run.env

    @property
    def experiment_dir(self) -> Path:
        """The folder train_dir/[experiments_root/]experiment."""
        return experiment_folder(self.run)

    @property
    def chunk_length(self) -> int:
        """Steps of a chunk: --recurrence for a network with a memory, else the whole rollout."""
        if not self.model.may_remember or self.learning.recurrence == -1:
            return self.learning.rollout
        return self.learning.recurrence

    def save(self) -> None:
        """Writes cfg.json (flat, keys of v1) into the experiment folder, signed and atomically.

        An OSError, e.g. for a full disk, is logged and does not end the run.
        """
        provenance = {
            "command_line": shlex.join(self.argv),
            "cli_args": dict(self.typed),
            VERSIONS_KEY: dict(versions()),
        }
        values = {**self.unknown, **self.flat(), **provenance}
        path, second = (self.experiment_dir / name for name in SAVED_NAMES)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            contents = values if self.is_foreign else signed(values)
            write_atomically(path, json.dumps(contents, indent=4) + "\n")
            if self.is_of_script and not os.path.lexists(second):
                second.symlink_to(path.name)  # the name in version 2
        except OSError as error:
            log.error(
                "COULD NOT WRITE %s: %s. Training continues; it is written again later, or by the next start "
                "of this experiment",
                error.filename2 or path,
                error.strerror,
            )
