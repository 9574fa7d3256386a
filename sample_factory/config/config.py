"""The configuration of one experiment: frozen, written to cfg.json."""

import argparse
import dataclasses
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.config.command import TRAIN, Command
from sample_factory.config.experiment_folder import SAVED_NAMES, experiment_folder, write_atomically
from sample_factory.config.flag_parser import nearest_flag
from sample_factory.config.flags import shortened
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.config.monitoring_flags import EvaluationFlags, MonitoringFlags
from sample_factory.config.population_flags import PbtFlags, SelfplayFlags
from sample_factory.config.sampling_flags import ClusterFlags, SamplingFlags
from sample_factory.config.sections import (
    ALIASES,
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

    As in versions 1 and 2, this is an argparse.Namespace. Flags can also be read and set by their names in
    version 2: `cfg.rnn_size` is `cfg.hidden_size`; `vars(cfg)` has each flag once. Retired flags, such as
    `cfg.batched_sampling`, can always be read, but are in `vars(cfg)` only if they were set.
    """

    def __getattr__(self, name: str) -> Any:
        """Returns a flag by its name in version 2, or the default of a retired flag, for names not in `vars`.
        Raises AttributeError, with the nearest flag, for any other name."""
        flag = ALIASES.get(name)
        if flag is not None and flag in vars(self):
            return vars(self)[flag]
        if name in RETIRED_DEFAULTS:
            return RETIRED_DEFAULTS[name]
        hint = "" if name.startswith("_") else nearest_flag(name, vars(self)).replace("--", "")
        raise AttributeError(f"cfg has no flag {name}{hint}")

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(ALIASES.get(name, name), value)

    def __contains__(self, name: object) -> bool:
        return ALIASES.get(str(name), name) in vars(self) or name in RETIRED_DEFAULTS

    def __getitem__(self, name: str) -> Any:
        """Returns the value of a flag. Raises KeyError, which names the nearest flag, if there is no such
        flag."""
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
    """Formats the value of a flag for a message: the items of a list with spaces, "empty" for no items."""
    return shortened(" ".join(map(str, value)) or "empty" if isinstance(value, tuple) else str(value))


def with_lists(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns flag -> value, with lists where flags have tuples, as in versions 1 and 2."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


class Choice(NamedTuple):
    """A value of a flag, and the name of the layer that sets this value, e.g. "defaults of doom_battle"."""

    layer: str
    value: Any


class Change(NamedTuple):
    """A flag whose value given now differs from the value in the experiment's cfg.json."""

    flag: str
    saved: Any
    given: Any

    def __str__(self) -> str:
        return f"{self.flag} {as_text(self.saved)} -> {as_text(self.given)}"


class Resumed(NamedTuple):
    """The given flags that differ from the saved flags of the experiment that is resumed.

    changed: flags on the command line, which override the saved ones. ignored: flags in the --cfg file, which
    the saved ones override.
    """

    changed: tuple[Change, ...] = ()
    ignored: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Config:
    """The flags of an experiment: a frozen section per component, flat on the command line and in cfg.json.

    family: the flags of the env family, an instance of EnvFamily.flags; None if the family has none.
    typed: flag -> value, for the flags on the command line.
    choices: flag -> the values that layers give the flag, the one in effect last; no entry without a layer.
    unknown: key -> value, for keys of cfg.json that are no flags; they are written back unchanged.
    extra: section name -> section, for the sections that only one command has.
    argv: the arguments that were parsed; a script may have passed other arguments than those of its process.
    open_flags: flags that nothing has set, so that a training may choose them by the observation of the env,
        see observation_defaults.py.
    resumed: the flags that differ from the saved ones; None if no experiment is resumed.
    is_foreign: whether values come from a cfg.json of another account that --trust_code has not accepted;
        `save` does not sign such values.
    is_of_script: whether a script for version 2 starts the run; such scripts also look for config.json.
    command: the command for which the flags were parsed.
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
        """Name -> section, those of the command included; "family" for the flags of the env, if any."""
        of_family = {} if self.family is None else {"family": self.family}
        return {**{name: getattr(self, name) for name in TRAINING_SECTIONS}, **of_family, **self.extra}

    def flat(self) -> dict[str, Any]:
        """Returns flag -> value, for the flags of all sections."""
        values: dict[str, Any] = {}
        for section in self.sections.values():
            values.update(flat_values(section))
        return values

    def choose(self, layer: str, values: Mapping[str, Any]) -> "Config":
        """Returns the configuration with new values of shared flags, and the layer that chooses them."""
        sections = {}
        for name in TRAINING_SECTIONS:
            section = getattr(self, name)
            sections[name] = dataclasses.replace(
                section, **{flag: value for flag, value in values.items() if flag in vars(section)}
            )
        chosen = {flag: (*self.choices.get(flag, ()), Choice(layer, value)) for flag, value in values.items()}
        return dataclasses.replace(self, **sections, choices={**self.choices, **chosen})

    def could_choose(self, layer: str, values: Mapping[str, Any]) -> "Config":
        """Records the values that a layer would have chosen for flags that other layers have set, so that
        --explain can show them. Returns the configuration; its flags keep their values."""
        could = {flag: (Choice(layer, value), *self.choices.get(flag, ())) for flag, value in values.items()}
        return dataclasses.replace(self, choices={**self.choices, **could})

    def section_of(self, flag: str) -> str | None:
        """Returns the name of a flag's section; None if no section has the flag, such as a retired one."""
        return next((name for name, section in self.sections.items() if flag in vars(section)), None)

    def namespace(self) -> FlagNamespace:
        """Returns the `cfg` of `make_env` functions: flags, and keys of cfg.json that are no flags, as
        attributes; lists in place of tuples."""
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
        """Steps of backpropagation through time: --recurrence with a recurrent network, else the rollout."""
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
