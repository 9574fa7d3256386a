"""From the command line, files of flags and defaults to a Config.

`parse_config` reads what the person, the files and the env's family say (`_read`), leaves out or refuses what
a file of another account must not decide (`_trusted`), and merges the rest (merging.py).
"""

import argparse
import dataclasses
import functools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sample_factory.config.algorithms import algorithm_info
from sample_factory.config.command import EVAL_FLAGS, TRAIN, Command
from sample_factory.config.config import Config
from sample_factory.config.consistency import check_resumed, check_values
from sample_factory.config.effects import report_without_effect
from sample_factory.config.experiment_folder import (
    SAVED,
    experiment_folder,
    folder_flags,
    read_file_of_flags,
    read_saved,
    was_saved,
)
from sample_factory.config.flag_parser import add_flags, envs_as_levels, make_parser, parse_all, parse_known
from sample_factory.config.flags import ConfigError, Layer, coerce
from sample_factory.config.help import EVERYTHING, command_help, show
from sample_factory.config.merging import COMMAND_LINE, all_sections, build_config, changes_of, read_layer
from sample_factory.config.sections import OWN_FOLDER, RetiredFlags, RunFlags, flat_values
from sample_factory.config.trust import TRUST, WANDB_RUN_ID, refuse_code, without_foreign_paths

# These flags say how to run this time, not what the experiment is: they are never taken from a saved
# cfg.json, neither of the experiment itself nor of another run. A folder that was overwritten once must not
# be deleted by the next resume.
NOT_RESUMED_FLAGS = (
    "restart_behavior",
    "cfg",
    "load_checkpoint_kind",
    "push_to_hub",
    "sampler_only",
    "benchmark",
    "figures_file",
    TRUST,
)
SCRIPT = "the script"
UNKNOWN = "; --help=all lists every flag, sample_factory/envs/NOT_LEARNING.md the names in other libraries"
HELP_FLAGS = {"-h", "--help", f"--help={EVERYTHING}"}


class Family(Protocol):
    """The part of an env family that parsing needs; `EnvFamily` implements it."""

    @property
    def flags(self) -> type | None:
        """Section of the family's flags, a frozen dataclass with fields `name = flag(...)`, or None."""

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Flag -> value, instead of the default of the flag's section."""

    @property
    def follows_observation(self) -> bool:
        """Whether flags that are left out get defaults that suit the observation of the env."""


class _Given(NamedTuple):
    """Holds the values that are read before the command line can be parsed as a whole: they decide which
    other flags exist, and which files are read.

    first: the typed flags of RunFlags, and "help". typed: names of all typed flags. file, saved: the --cfg
    file and cfg.json of the experiment; without values where there is no file.
    """

    first: Mapping[str, Any]
    typed: Collection[str]
    file: Layer
    saved: Layer

    def find(self, flag: str) -> Any:
        """Returns the value of a flag of RunFlags from the first source that has one, or None."""
        layers = (self.first, self.saved.values, self.file.values)
        return next(filter(None, (values.get(flag) for values in layers)), None)


def parse_config(
    argv: Sequence[str],
    resolve_family: Callable[[str], Family],
    command: Command = TRAIN,
    cfg_is_saved: bool = False,
    keywords: Mapping[str, Any] | None = None,
) -> Config:
    """Turns a command line, or the keywords of a call in Python, into a Config.

    Precedence: default of the flag < default by the observation, see observation_defaults.py < default of
    the family < default of the command < default of the algorithm < --cfg file < saved cfg.json < command
    line.

    argv: the flags as typed.
    resolve_family: returns the family of a full env name.
    command: its own sections are stored in `Config.extra`, its help is printed on --help, and flags that have
        no effect in it are reported.
    cfg_is_saved: the file that --cfg names is the cfg.json of a run, and no recipe.
    keywords: flag or alias -> value, which count as typed and override `argv`; see `with_names`.

    Raises ConfigError. Prints the help and exits with 0 on --help.
    """
    argv = envs_as_levels(argv)
    keywords = keywords or {}
    given = _read(argv, keywords, resolve_family, command, cfg_is_saved)
    env_name = given.find("env")
    family = resolve_family(env_name) if env_name else None
    given = given._replace(saved=_of_env(given.saved, env_name))
    algo = _algorithm(given, family, command)
    sections = all_sections(
        None if family is None else family.flags, command.sections, algorithm_info(algo).flags
    )
    defaults = _defaults(algo, env_name, family, command)
    follows = family is not None and family.follows_observation
    if "help" in given.first:
        of_env = {name: value for layer in defaults for name, value in layer.values.items()}
        everything = given.first["help"] == EVERYTHING
        show(command_help(command, sections, env_name, of_env, everything, follows))
        raise SystemExit(0)
    if family is None:
        raise ConfigError("--env is missing, e.g. --env=doom_basic; train --help lists the families of envs")
    given = _trusted(given, family.defaults, sections, command.sections)
    typed = Layer(COMMAND_LINE, _parse_typed(argv, sections))
    script = read_layer(sections, Layer(SCRIPT, keywords))
    now = Layer(COMMAND_LINE, {**typed.values, **script.values})
    may_resume = command.experiment != "saved"
    config = build_config(
        sections,
        [*defaults, given.file, given.saved, typed, script],
        now.values,
        follows and may_resume and not given.saved.values,
    )
    resumes = may_resume and bool(given.saved.values)
    config = dataclasses.replace(
        config,
        argv=(*argv, *as_arguments(keywords)),
        resumed=changes_of(sections, given.saved, now, given.file) if resumes else None,
        is_foreign=given.saved.foreign is not None or given.file.foreign is not None,
        command=command,
    )
    check_resumed(config)
    report_without_effect(config)
    return config


def named_folder(argv: Sequence[str], keywords: Mapping[str, Any]) -> Path:
    """Returns the experiment folder that flags, or their --cfg file, select. Raises ConfigError."""
    given = _read_typed_first(argv, keywords)
    named = {**_read_file_of_flags(given, cfg_is_saved=False).values, **given.first}
    return experiment_folder(folder_flags(named))


def _read(
    argv: Sequence[str],
    keywords: Mapping[str, Any],
    resolve_family: Callable[[str], Family],
    command: Command,
    cfg_is_saved: bool,
) -> _Given:
    """Reads what decides which flags exist: the typed flags of RunFlags, the --cfg file, and cfg.json if the
    command may use one. Arguments as for `parse_config`."""
    given = _read_typed_first(argv, keywords)
    given = given._replace(file=_read_file_of_flags(given, cfg_is_saved))
    if command.experiment == "new":
        return given
    return given._replace(saved=_read_saved(given, command.experiment == "saved", resolve_family))


def _read_typed_first(argv: Sequence[str], keywords: Mapping[str, Any]) -> _Given:
    """Parses the typed flags that decide which files are read and which other flags exist."""
    of_run = {name: value for name, value in keywords.items() if name in flat_values(RunFlags())}
    first = {**_parse_first(argv), **coerce(RunFlags, of_run, SCRIPT)}
    typed = {word[2:].partition("=")[0] for word in argv if word.startswith("--")} | keywords.keys()
    return _Given(first, typed, Layer("", {}), Layer(SAVED, {}))


def _read_file_of_flags(given: _Given, cfg_is_saved: bool) -> Layer:
    """Returns the flags in the --cfg file; no values without a file. Raises ConfigError for a foreign file
    with an env that names code, since resolving the family of the env would import that code."""
    if given.first.get("cfg") is None:
        return given.file
    file = read_file_of_flags(given.first["cfg"], cfg_is_saved, bool(given.first.get(TRUST)))
    if file.foreign is not None or cfg_is_saved or was_saved(file.values):
        # Two experiments must not write into one run of W&B; `saved` has the id if it is the same one.
        file = file.without(*NOT_RESUMED_FLAGS, WANDB_RUN_ID)
    if file.foreign is not None:
        file = file.without(*OWN_FOLDER)
    refuse_code(file, given.typed)
    return file


def _read_saved(given: _Given, must_exist: bool, resolve_family: Callable[[str], Family]) -> Layer:
    """Returns the flags in cfg.json of the experiment that the command line, the --cfg file or the defaults
    of the env's family select. No values without a file, or if the run replaces the experiment.

    must_exist: the command needs an experiment; then a missing file is an error, except for the help.
    Raises ConfigError, also for a foreign file with an env that names code, before that code is imported.
    """
    first = given.first
    named = {**given.file.values, **first}
    if named.get("env"):
        named = {**resolve_family(named["env"]).defaults, **named}
    # The help is not the help of an experiment that only has the default name.
    if "help" in first and "experiment" not in named:
        return given.saved
    saved = read_saved(named, must_exist, "help" not in first, bool(first.get(TRUST)))
    saved = saved.without(*NOT_RESUMED_FLAGS)
    refuse_code(saved, given.typed)
    return saved


def _algorithm(given: _Given, family: Family | None, command: Command) -> str:
    """Returns the name of the algorithm: as given, else the command's default, else the family's default."""
    of_family = {} if family is None else family.defaults
    return str(given.find("algo") or {"algo": RunFlags.algo, **of_family, **command.defaults}["algo"])


def _defaults(algo: str, env_name: str | None, family: Family | None, command: Command) -> list[Layer]:
    """Returns the defaults of family, command and algorithm, as layers of which later ones win."""
    of_family = {} if family is None else family.defaults
    return [
        Layer(f"defaults of {env_name}", of_family),
        Layer(f"defaults of {command.name}", command.defaults),
        Layer(f"defaults of --algo={algo}", algorithm_info(algo).defaults),
    ]


def _of_env(saved: Layer, env_name: str | None) -> Layer:
    """Returns the saved flags, without --levels if `env_name` is not the saved env, whose variants they
    name."""
    return saved if saved.values.get("env") == env_name else saved.without("levels")


def _trusted(
    given: _Given, of_family: Mapping[str, Any], sections: Mapping[str, type], own: Collection[str]
) -> _Given:
    """Removes from `given` what a file of another account must not decide. Raises ConfigError if such a file
    names code that neither the person nor the family has named.

    of_family: the family's defaults. own: names of the sections that only this command has.
    """
    known = {**of_family, **(given.file.values if given.file.foreign is None else {})}
    for layer in (given.saved, given.file):
        refuse_code(layer, given.typed, known)
    file, saved = (
        without_foreign_paths(layer, sections, own, given.typed) for layer in (given.file, given.saved)
    )
    return given._replace(file=file, saved=saved)


def parse_own_flags(argv: Sequence[str], command: Command) -> Any:
    """Parses the flags of a command that takes no flags of an experiment. Returns the command's section.

    Raises ConfigError. Prints the help and exits with 0 on --help.
    """
    if HELP_FLAGS & set(argv):
        show(command_help(command, command.sections, everything=True))
        raise SystemExit(0)
    (section,) = command.sections.values()
    parser = _parser_of((section,))
    flags = section(**coerce(section, parse_all(parser, argv, intermixed=True), COMMAND_LINE))
    check_values(flags)
    return flags


def _parse_first(argv: Sequence[str]) -> dict[str, Any]:
    """Parses --help and the flags of RunFlags, ignoring others. Returns name -> value, if typed."""
    parser = make_parser()
    add_flags(parser, RunFlags)
    parser.add_argument(
        "-h", "--help", nargs="?", const=False, choices=(EVERYTHING,), default=argparse.SUPPRESS
    )
    return vars(parse_known(parser, argv)[0])


def _parse_typed(argv: Sequence[str], sections: Mapping[str, type]) -> dict[str, Any]:
    """Returns flag -> value for the flags on the command line, aliases resolved.

    Raises ConfigError for an unknown flag and for a value of the wrong type.
    """
    parser = _parser_of((*sections.values(), RetiredFlags))
    return parse_all(parser, argv, hint=UNKNOWN)


@functools.lru_cache(maxsize=8)  # making it takes longer than parsing
def _parser_of(sections: tuple[type, ...]) -> argparse.ArgumentParser:
    parser = make_parser()
    for section in sections:
        add_flags(parser, section)
    return parser


def with_flags(config: Config, argv: Sequence[str], resolve_family: Callable[[str], Family]) -> Config:
    """Returns the Config of evaluations during a training: the training's, with the flags in `argv`
    (--eval_flags) changed; --env may be among these. Logs flags that have no effect in such an evaluation.
    Raises ConfigError."""
    argv = envs_as_levels(argv)
    env_name = _parse_first(argv).get("env", config.env_name)
    family = resolve_family(env_name)
    sections = all_sections(family.flags, {}, type(config.learning))
    flags = _parse_typed(argv, sections)
    # Another family has flags of its own, with its defaults.
    layers = [
        Layer(f"defaults of {env_name}", dict(family.defaults)),
        _of_env(Layer(SAVED, config.flat()), env_name),
        Layer(COMMAND_LINE, {**flags, "env": env_name}),
    ]
    changed = build_config(sections, layers, flags)
    changed = dataclasses.replace(
        changed,
        argv=config.argv,
        is_foreign=config.is_foreign,
        command=EVAL_FLAGS,
    )
    report_without_effect(changed)
    return changed


def as_arguments(keywords: Mapping[str, Any]) -> list[str]:
    """Returns keyword arguments of a Python function as command-line arguments; None is left out.

    A dict becomes JSON, for flags such as --env_kwargs; lists and tuples are for flags with several values.
    """
    arguments: list[str] = []
    for name, value in keywords.items():
        if isinstance(value, Mapping):
            arguments.append(f"--{name}={json.dumps(value)}")
        elif isinstance(value, (list, tuple)):
            arguments += [f"--{name}", *map(str, value)]
        elif value is not None:
            arguments.append(f"--{name}={value}")
    return arguments
