"""From the command line, files of flags and defaults to a Config."""

import argparse
import dataclasses
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from sample_factory.config.algorithms import algorithm_info
from sample_factory.config.command import EVAL_FLAGS, TRAIN, Command
from sample_factory.config.config import Change, Config, Resumed
from sample_factory.config.consistency import check_consistency
from sample_factory.config.effects import report_without_effect
from sample_factory.config.experiment_folder import (
    PROVENANCE_KEYS,
    SAVED,
    read_file_of_flags,
    read_saved,
    was_saved,
)
from sample_factory.config.flags import (
    ConfigError,
    Layer,
    add_flags,
    check_values,
    coerce,
    make_parser,
    parse_known,
    shortened,
)
from sample_factory.config.help import EVERYTHING, command_help, show
from sample_factory.config.sections import (
    OWN_FOLDER,
    RETIRED_FLAGS,
    TRAINING_SECTIONS,
    RetiredFlags,
    RunFlags,
    flat_values,
)
from sample_factory.config.trust import TRUST, WANDB_RUN_ID, refuse_code, without_foreign_paths
from sample_factory.config.unknown_flags import refuse_missing_env, refuse_unknown_flags, suggestion

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
# They name the experiment or say how to run this time, so they are no change of an experiment.
NOT_COMPARED = ("env", "experiment", "experiments_root", "train_dir", "transfer_from")
COMMAND_LINE = "command line"
HELP_FLAGS = {"-h", "--help", f"--help={EVERYTHING}"}
SCRIPT = "the script"


class Family(Protocol):
    """The part of an env family that the configuration uses."""

    @property
    def flags(self) -> type | None:
        """A dataclass whose fields are `flag(...)`."""

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Flag -> value, instead of the default of the flag's section."""

    @property
    def follows_observation(self) -> bool:
        """Whether flags that are left out get defaults that suit the observation of the env."""


def parse_config(
    argv: Sequence[str],
    resolve_family: Callable[[str], Family],
    evaluation: bool = False,
    extra_sections: Mapping[str, type] | None = None,
    command: Command = TRAIN,
    cfg_is_saved: bool = False,
    changes: Mapping[str, Any] | None = None,
) -> Config:
    """Turns a command line into a Config.

    Precedence: default of the flag < default by the observation, see observation_defaults.py < default of
    the family < default of the command < default of the algorithm < --cfg file < saved cfg.json < command
    line.

    argv: the flags as typed; `as_arguments` makes them from keywords of Python.
    resolve_family: returns the family of a full env name.
    evaluation: the experiment must exist, and --env may be left out, because its cfg.json has it.
    extra_sections: name -> section of the flags that only this program has; stored in `Config.extra`. Without
        `evaluation`, such a program has no experiment, and no cfg.json is read.
    command: whose help --help prints, and whose flags without effect are reported.
    cfg_is_saved: the file that --cfg names is the cfg.json of a run, and no recipe.
    changes: flag -> value that a script for version 2 has set after it has parsed the command line, which
        count as typed; None: there is no such script.

    Raises ConfigError. Prints the help and exits with 0 on --help.
    """
    own_sections = extra_sections or {}
    is_of_script, changes = changes is not None, changes or {}
    of_run = {name: value for name, value in changes.items() if name in flat_values(RunFlags())}
    first = {**_parse_first(argv), **coerce(RunFlags, of_run, SCRIPT)}
    typed_names = {word[2:].partition("=")[0] for word in argv if word.startswith("--")} | changes.keys()
    has_experiment = evaluation or not own_sections
    file = _read_file_of_flags(first, typed_names, cfg_is_saved)
    saved = Layer(SAVED, {})
    if has_experiment:
        saved = _read_saved(first, file.values, typed_names, evaluation, resolve_family)
    given = (first, saved.values, file.values)
    env_name, algo = (next(filter(None, (v.get(name) for v in given)), None) for name in ("env", "algo"))
    family = resolve_family(env_name) if env_name else None
    sections = _sections(family, own_sections)
    of_family = Layer(f"defaults of {env_name}", {} if family is None else dict(family.defaults))
    of_algo = Layer(f"defaults of --algo={algo}", algorithm_info(str(algo or RunFlags.algo)).defaults)
    of_command = Layer(f"defaults of {command.name}", command.defaults)
    if "help" in first:
        defaults = {**of_family.values, **of_command.values, **of_algo.values}
        follows = family is not None and family.follows_observation
        everything = first["help"] == EVERYTHING
        show(command_help(command, sections, env_name, defaults, own_sections, everything, follows))
        raise SystemExit(0)
    if family is None:
        refuse_missing_env(argv, command)
    if not evaluation:
        _refuse_other_env(saved.values, first, file.values)
    own_values = {**of_family.values, **(file.values if file.foreign is None else {})}
    for layer in (saved, file):
        refuse_code(layer, typed_names, own_values)
    file, saved = (
        without_foreign_paths(layer, sections, own_sections, typed_names) for layer in (file, saved)
    )
    flags = _parse_typed(argv, sections)
    typed, script = Layer(COMMAND_LINE, {**flags, "env": env_name}), Layer(SCRIPT, changes)

    config = build_config(
        sections, [of_family, of_command, of_algo, file, saved, typed, script], {**flags, **changes}
    )
    given_now = typed._replace(values={**typed.values, **changes})
    resumed = _changes(sections, saved, given_now, file) if saved.values and not evaluation else None
    is_foreign = saved.foreign is not None or file.foreign is not None
    is_new = not evaluation and not saved.values
    open_flags = config.open_flags if is_new and family and family.follows_observation else frozenset()
    config = dataclasses.replace(
        config,
        argv=tuple(argv),
        open_flags=open_flags,
        resumed=resumed,
        is_foreign=is_foreign,
        is_of_script=is_of_script,
        command=command,
    )
    report_without_effect(config)
    return config


def parse_own_flags(argv: Sequence[str], command: Command) -> Any:
    """Returns the section of a command that takes no flags of an experiment.

    Raises ConfigError. Prints the help and exits with 0 on --help.
    """
    if HELP_FLAGS & set(argv):
        show(command_help(command, command.sections, own_sections=command.sections, everything=True))
        raise SystemExit(0)
    (section,) = command.sections.values()
    parser = make_parser()
    add_flags(parser, section)
    typed, rest = parse_known(parser, argv, intermixed=True)
    refuse_unknown_flags(parser, rest)
    flags = section(**coerce(section, vars(typed), COMMAND_LINE))
    check_values(flags)
    return flags


def _parse_first(argv: Sequence[str]) -> dict[str, Any]:
    """Returns the flags that decide which files are read and which other flags exist, and "help"."""
    parser = make_parser()
    add_flags(parser, RunFlags)
    parser.add_argument(
        "-h", "--help", nargs="?", const=False, choices=(EVERYTHING,), default=argparse.SUPPRESS
    )
    return vars(parse_known(parser, argv)[0])


def _read_file_of_flags(first: Mapping[str, Any], typed_names: Collection[str], cfg_is_saved: bool) -> Layer:
    """Returns the flags in the --cfg file; none without one. Raises ConfigError for an env that names code,
    since resolving its family would import it."""
    if first.get("cfg") is None:
        return Layer("", {})
    file = read_file_of_flags(first["cfg"], cfg_is_saved, bool(first.get(TRUST)))
    if file.foreign is not None or cfg_is_saved or was_saved(file.values):
        # Two experiments must not write into one run of W&B; `saved` has the id if it is the same one.
        file = file.without(*NOT_RESUMED_FLAGS, WANDB_RUN_ID)
    if file.foreign is not None:
        file = file.without(*OWN_FOLDER)
    refuse_code(file, typed_names)
    return file


def _read_saved(
    first: Mapping[str, Any],
    file_values: Mapping[str, Any],
    typed_names: Collection[str],
    must_exist: bool,
    resolve_family: Callable[[str], Family],
) -> Layer:
    """Returns the flags in cfg.json of the experiment, which the command line, the --cfg file or the defaults
    of the env's family name; none without one. Raises ConfigError as `_read_file_of_flags`."""
    named = {**file_values, **first}
    if named.get("env"):
        named = {**resolve_family(named["env"]).defaults, **named}
    # The help is not the help of an experiment that only has the default name.
    if "help" in first and "experiment" not in named:
        return Layer(SAVED, {})
    saved = read_saved(named, must_exist, "help" not in first, bool(first.get(TRUST)))
    saved = saved.without(*NOT_RESUMED_FLAGS)
    refuse_code(saved, typed_names)
    return saved


def _refuse_other_env(
    saved: Mapping[str, Any], typed: Mapping[str, Any], file_values: Mapping[str, Any]
) -> None:
    """Raises ConfigError if an experiment is to be resumed with another env than it was trained on.

    saved, typed, file_values: flag -> value in cfg.json of the experiment (empty if there is none), on the
    command line and in the --cfg file.
    """
    given = typed.get("env", file_values.get("env"))
    if "env" not in saved or given in (None, saved["env"]):
        return
    name, trained = saved["experiment"], shortened(str(saved["env"]))
    source, mend = f"env={given} in --cfg={typed.get('cfg')}", "Choose"
    if "env" in typed:
        source, mend = f"--env={given}", "Leave --env out, or choose"
    raise ConfigError(
        f"experiment {name} was trained on {trained}, and {source} was given: its curves would be mixed. "
        f"{mend} another --experiment; --transfer_from={name} starts that one with these weights"
    )


def _changes(sections: Mapping[str, type], saved: Layer, typed: Layer, file: Layer) -> Resumed:
    """Returns which flags on the command line and in the --cfg file differ from the saved ones."""
    flag_of = _flag_table(sections)
    old, given, recipe = (_read_layer(layer, flag_of)[0] for layer in (saved, typed, file))

    def differences(values: Mapping[str, Any]) -> tuple[Change, ...]:
        changed = (Change(flag, old[flag], value) for flag, value in values.items() if flag in old)
        return tuple(one for one in changed if one.given != one.saved and one.flag not in NOT_COMPARED)

    untyped = {flag: value for flag, value in recipe.items() if flag not in given}
    return Resumed(differences(given), differences(untyped))


def _parse_typed(argv: Sequence[str], sections: Mapping[str, type]) -> dict[str, Any]:
    """Returns flag -> value for the flags on the command line, aliases resolved.

    Raises ConfigError for an unknown flag and for a value of the wrong type.
    """
    parser = make_parser()
    for section in (*sections.values(), RetiredFlags):
        add_flags(parser, section)
    typed, rest = parse_known(parser, argv)
    refuse_unknown_flags(parser, rest, " (--help=all lists every flag)")
    return vars(typed)


def with_flags(config: Config, argv: Sequence[str], resolve_family: Callable[[str], Family]) -> Config:
    """Returns a Config for evaluations during a training, with other values of some flags, possibly of
    another env. Logs the flags without effect there. Raises ConfigError."""
    env_name = _parse_first(argv).get("env", config.env_name)
    family = resolve_family(env_name)
    sections = _sections(family, {})
    flags = _parse_typed(argv, sections)
    # Another family has flags of its own, with its defaults.
    layers = [
        Layer(f"defaults of {env_name}", dict(family.defaults)),
        Layer(SAVED, config.flat()),
        Layer(COMMAND_LINE, {**flags, "env": env_name}),
    ]
    changed = build_config(sections, layers, flags)
    changed = dataclasses.replace(
        changed,
        argv=config.argv,
        open_flags=frozenset(),
        is_foreign=config.is_foreign,
        command=EVAL_FLAGS,
    )
    report_without_effect(changed)
    return changed


def build_config(sections: Mapping[str, type], layers: Sequence[Layer], typed: Mapping[str, Any]) -> Config:
    """Builds the sections from layers of values; later layers win.

    typed: flag -> value, for the flags on the command line. Raises ConfigError for a bad value.
    """
    flag_of = _flag_table(sections)
    values: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for layer in layers:
        known, rest = _read_layer(layer, flag_of)
        values.update(known)
        unknown.update(rest)
        sources.update(dict.fromkeys(known, "" if layer.source == COMMAND_LINE else layer.source))
    built = {}
    for name, section in sections.items():
        flags = [field.name for field in dataclasses.fields(section) if field.name in values]
        try:
            built[name] = section(**{flag: values[flag] for flag in flags})
        except ValueError as error:  # of a check that the section makes itself
            raise ConfigError(str(error)) from None
    for section_values in built.values():
        check_values(section_values, sources)
    for key in PROVENANCE_KEYS:
        unknown.pop(key, None)
    fields = {field.name for field in dataclasses.fields(Config)}
    extra = {name: built.pop(name) for name in list(built) if name not in fields}
    open_flags = frozenset(flag for _, flag in flag_of.values()) - sources.keys()
    config = Config(**built, typed=dict(typed), unknown=unknown, extra=extra, open_flags=open_flags)
    check_consistency(config)
    return config


def _read_layer(
    layer: Layer, flag_of: Mapping[str, tuple[type, str]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the flags of a layer, with their own names and types, and its other keys.

    flag_of: from `_flag_table`. Raises ConfigError for a bad value, and for a key that is no flag, unless
    another version or program may have written it, as in any cfg.json that a run has saved.
    """
    is_saved = layer.source.startswith(SAVED) or was_saved(layer.values)
    values: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    for key, value in layer.values.items():
        if key in flag_of:
            section, flag = flag_of[key]
            values.update(coerce(section, {flag: value}, layer.source))
        elif is_saved or key in RETIRED_FLAGS:
            unknown[key] = value
        else:
            hint = suggestion(key, flag_of).replace("--", "")  # the keys of a file have no dashes
            raise ConfigError(f"{layer.source}: unknown flag {key}{hint}")
    return values, unknown


def _sections(family: Family | None, own_sections: Mapping[str, type]) -> dict[str, type]:
    """Returns name -> section of all flags of a program. Raises ConfigError, see `_flag_table`."""
    of_family = {} if family is None or family.flags is None else {"family": family.flags}
    sections = {**TRAINING_SECTIONS, **own_sections, **of_family}
    _flag_table(sections)
    return sections


def _flag_table(sections: Mapping[str, type]) -> dict[str, tuple[type, str]]:
    """Returns flag or alias -> (section, flag).

    Raises ConfigError for a field that is not a flag, and for two flags of one name.
    """
    table: dict[str, tuple[type, str]] = {}
    aliases: dict[str, tuple[type, str]] = {}
    for section in sections.values():
        for field in dataclasses.fields(section):
            if "aliases" not in field.metadata:
                raise ConfigError(
                    f"{section.__name__}.{field.name} is no flag; write {field.name} = flag(default, help)"
                )
            if field.name in table or field.name in RETIRED_FLAGS:
                raise ConfigError(
                    f"{section.__name__}.{field.name}: there is a flag --{field.name} already; choose "
                    "another name, or give it a default through register_env(defaults=...)"
                )
            table[field.name] = section, field.name
            aliases.update(dict.fromkeys(field.metadata["aliases"], table[field.name]))
    return {**aliases, **table}


# A command, in which flags keep their dashes; or the dashes of a flag.
_COMMAND_OR_FLAG = re.compile(r"(python -m [^;,()]*)|--(?!help)(?=[a-z])")


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


def in_words_of_python(error: Exception) -> ConfigError:
    """Returns a ConfigError with keywords in place of flags: "--gamma=2: ..." becomes "gamma=2: ..."."""
    text = str(error).replace("unknown flag --", "unknown keyword ")
    text = text.replace("(--help=all", "(python -m sample_factory.train --help=all")
    return ConfigError(_COMMAND_OR_FLAG.sub(lambda match: match[1] or "", text))
