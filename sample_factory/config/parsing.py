"""From the command line, files of flags and defaults to a Config."""

import argparse
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from sample_factory.config.algorithms import algorithm_info
from sample_factory.config.commands import TRAIN, Command
from sample_factory.config.config import Config
from sample_factory.config.consistency import check_consistency
from sample_factory.config.experiment_folder import (
    IDENTITY,
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
    parse_bool,
    parse_known,
)
from sample_factory.config.help import EVERYTHING, command_help, show
from sample_factory.config.keywords import KEYWORDS, as_arguments, plain_values, unknown_keyword
from sample_factory.config.resuming import compare, refuse_other_env
from sample_factory.config.retired_flags import RETIRED_FLAGS, RetiredFlags
from sample_factory.config.sections import OWN_FOLDER, TRAINING_SECTIONS, RunFlags
from sample_factory.config.trust import TRUST, refuse_code, without_foreign_paths
from sample_factory.config.unknown_flags import refuse_missing_env, refuse_unknown_flags, suggestion

# These flags say how to run this time, not what the experiment is: they are never taken from a saved
# cfg.json. A folder that was overwritten once must not be deleted by the next resume.
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
COMMAND_LINE = "command line"


class Family(Protocol):
    """The part of an env family that the configuration uses."""

    @property
    def flags(self) -> type | None:
        """A dataclass whose fields are `flag(...)`."""

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Flag -> value, instead of the default of the flag's section."""


def parse_config(
    argv: Sequence[str],
    resolve_family: Callable[[str], Family],
    evaluation: bool = False,
    extra_sections: Mapping[str, type] | None = None,
    command: Command = TRAIN,
    keywords: Mapping[str, Any] | None = None,
    cfg_is_saved: bool = False,
) -> Config:
    """Turns a command line into a Config.

    Precedence: default of the flag < default of the family < default of the algorithm < --cfg file < saved
    cfg.json < command line < keywords.

    resolve_family: returns the family of a full env name.
    evaluation: the experiment must exist, and --env may be left out, because its cfg.json has it.
    extra_sections: name -> section of the flags that only this program has; stored in `Config.extra`. Without
        `evaluation`, such a program has no experiment, and no cfg.json is read.
    command: what the help says.
    cfg_is_saved: the file that --cfg names is the cfg.json of a run, and no recipe.
    keywords: flag -> value, given by Python code; values as in `plain_values`.

    Raises ConfigError. Prints the help and exits with 0 on --help.
    """
    given = Layer(KEYWORDS, plain_values(keywords or {}))
    identity = {**_parse_identity(argv), **_identity_of(given)}
    asks_for_help = "help" in identity
    everything = identity.pop("help", None) == EVERYTHING
    has_experiment = evaluation or not extra_sections
    saved, file = _read_files(identity, has_experiment, evaluation, asks_for_help, cfg_is_saved)
    typed_names = _names_in(argv, given)
    for layer in (saved, file):
        refuse_code(layer, typed_names)  # an env that names code, before its family is resolved
    env_name = identity.get("env") or saved.values.get("env") or file.values.get("env")
    sections = {**TRAINING_SECTIONS, **(extra_sections or {})}
    family = resolve_family(env_name) if env_name else None
    if family is not None and family.flags is not None:
        sections["family"] = family.flags
    _index_fields(sections)
    algo = identity.pop("algo", None) or saved.values.get("algo") or file.values.get("algo") or RunFlags.algo
    own_defaults = Layer(f"defaults of --algo={algo}", algorithm_info(str(algo)).defaults)
    if asks_for_help:
        values = {**({} if family is None else family.defaults), **own_defaults.values}
        show(command_help(command, sections, env_name, values, tuple(extra_sections or ()), everything))
        raise SystemExit(0)
    if family is None:
        refuse_missing_env(argv, command)
    if not evaluation:
        refuse_other_env(saved.values, identity, file.values)
    defaults = [Layer(f"defaults of {env_name}", dict(family.defaults)), own_defaults]
    known = {**family.defaults, **(file.values if file.foreign is None else {})}
    for layer in (saved, file):
        refuse_code(layer, typed_names, known)
    of_program = extra_sections or ()
    saved, file = (without_foreign_paths(layer, sections, of_program, typed_names) for layer in (saved, file))
    flags = {**_parse_typed(argv, sections), **_flags_of_keywords(given, sections)}
    typed = Layer(COMMAND_LINE, {**flags, "env": env_name})
    config = build_config(sections, [*defaults, file, saved, typed], flags)
    is_foreign = any(layer.foreign is not None for layer in (saved, file))
    arguments = (*argv, *as_arguments(given.values))
    config = dataclasses.replace(config, argv=arguments, is_foreign=is_foreign)
    if evaluation or not saved.values:
        return config
    before, now, in_file = (_flags_of(layer, sections) for layer in (saved, typed, file))
    return dataclasses.replace(config, resumed=compare(before, now, in_file))


def _read_files(
    identity: dict[str, Any],
    has_experiment: bool,
    must_exist: bool,
    asks_for_help: bool,
    cfg_is_saved: bool,
) -> tuple[Layer, Layer]:
    """Returns the flags in cfg.json of the experiment and those in the --cfg file. Raises ConfigError.

    identity: loses --trust_code, with which the files count as those of this account.
    """
    trusts = bool(identity.pop(TRUST, False))
    file = Layer("", {})
    if "cfg" in identity:
        file = read_file_of_flags(identity["cfg"], cfg_is_saved, trusts)
    if file.foreign is not None:
        file = _without(file, (*NOT_RESUMED_FLAGS, *OWN_FOLDER))
    saved = Layer(SAVED, {})
    # The help is not that of an experiment which only has the default name.
    if has_experiment and (not asks_for_help or "experiment" in {**file.values, **identity}):
        saved = read_saved(identity, file.values, must_exist and not asks_for_help, trusts)
    return _without(saved, NOT_RESUMED_FLAGS), file


def _without(layer: Layer, names: Collection[str]) -> Layer:
    return layer._replace(values={name: value for name, value in layer.values.items() if name not in names})


def _names_in(argv: Sequence[str], given: Layer) -> set[str]:
    """Returns the names of all flags on the command line and of all keywords."""
    typed = {word[2:].partition("=")[0] for word in argv if word.startswith("--")}
    return typed | {name for name, value in given.values.items() if value is not None}


def with_flags(config: Config, argv: Sequence[str], resolve_family: Callable[[str], Family]) -> Config:
    """Returns a Config with other values of some flags, possibly of another env. Raises ConfigError."""
    env_name = _parse_identity(argv).get("env", config.env_name)
    family = resolve_family(env_name)
    sections = TRAINING_SECTIONS if family.flags is None else {**TRAINING_SECTIONS, "family": family.flags}
    flags = _parse_typed(argv, sections)
    # Another family has flags of its own, with its defaults.
    layers = [
        Layer(f"defaults of {env_name}", dict(family.defaults)),
        Layer(SAVED, config.flat()),
        Layer(COMMAND_LINE, {**flags, "env": env_name}),
    ]
    changed = build_config(sections, layers, flags)
    return dataclasses.replace(changed, argv=config.argv, is_foreign=config.is_foreign)


def _flags_of(layer: Layer, sections: Mapping[str, type]) -> dict[str, Any]:
    """Returns flag -> value of a layer with good values, with the types and the names of the flags."""
    index = _index_fields(sections)
    values: dict[str, Any] = {}
    for alias_or_flag, value in layer.values.items():
        key = index.flag_of_alias.get(alias_or_flag, alias_or_flag)
        if key in index.section_of_flag:
            values.update(coerce(sections[index.section_of_flag[key]], {key: value}, layer.source))
    return values


def build_config(sections: Mapping[str, type], layers: Sequence[Layer], typed: Mapping[str, Any]) -> Config:
    """Builds the sections from layers of values; later layers win.

    typed: flag -> value, for the flags on the command line. Raises ConfigError for a bad value.
    """
    index = _index_fields(sections)
    values: dict[str, dict[str, Any]] = {name: {} for name in sections}
    unknown: dict[str, Any] = {}
    sources: dict[str, str] = {}
    try:
        for layer in layers:
            for alias_or_flag, value in layer.values.items():
                key = index.flag_of_alias.get(alias_or_flag, alias_or_flag)
                if key not in index.section_of_flag:
                    known = [*index.section_of_flag, *index.flag_of_alias]
                    _refuse_unknown_key(key, layer, known)
                    unknown[key] = value
                    continue
                section = index.section_of_flag[key]
                values[section].update(coerce(sections[section], {key: value}, layer.source))
                sources[key] = "" if layer.source == COMMAND_LINE else layer.source
        built = {name: section(**values[name]) for name, section in sections.items()}
        for section_values in built.values():
            check_values(section_values, sources)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    for key in PROVENANCE_KEYS:
        unknown.pop(key, None)
    fields = {field.name for field in dataclasses.fields(Config)}
    extra = {name: built.pop(name) for name in list(built) if name not in fields}
    config = Config(**built, typed=dict(typed), unknown=unknown, extra=extra)
    check_consistency(config)
    return config


def _refuse_unknown_key(key: str, layer: Layer, known: Sequence[str]) -> None:
    """Raises ConfigError for a key that is no flag, unless another version or program may have written it.

    That is so for all keys of a saved cfg.json, also where --cfg names one.
    """
    is_saved = layer.source.startswith(SAVED) or was_saved(layer.values)
    if not is_saved and key not in RETIRED_FLAGS:
        hint = suggestion(key, known).replace("--", "")  # the keys of a file have no dashes
        raise ConfigError(f"{layer.source}: unknown flag {key}{hint}")


def _parse_identity(argv: Sequence[str]) -> dict[str, Any]:
    """Returns the flags that decide which other flags exist, and "help" if it is requested."""
    parser = make_parser()
    parser.add_argument(
        "-h", "--help", nargs="?", const=False, choices=(EVERYTHING,), default=argparse.SUPPRESS
    )
    for name in (*IDENTITY, "cfg", "algo"):
        parser.add_argument(f"--{name}", default=argparse.SUPPRESS)
    parser.add_argument(f"--{TRUST}", nargs="?", const=True, type=parse_bool, default=argparse.SUPPRESS)
    return vars(parse_known(parser, argv)[0])


def _parse_typed(argv: Sequence[str], sections: Mapping[str, type]) -> dict[str, Any]:
    """Returns flag -> value for the flags on the command line, aliases resolved.

    Raises ConfigError for an unknown flag and for a value of the wrong type.
    """
    parser = make_parser()
    for section in sections.values():
        add_flags(parser, section)
    add_flags(parser, RetiredFlags)
    typed, rest = parse_known(parser, argv)
    refuse_unknown_flags(parser, rest, " (--help=all lists every flag)")
    return dict(vars(typed))


def _identity_of(given: Layer) -> dict[str, Any]:
    """Returns the keywords that decide which flags exist. Raises ConfigError for a value of a wrong type."""
    named = {
        key: given.values[key]
        for key in (*IDENTITY, "cfg", "algo", TRUST)
        if given.values.get(key) is not None
    }
    try:
        return coerce(RunFlags, named, given.source)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _flags_of_keywords(given: Layer, sections: Mapping[str, type]) -> dict[str, Any]:
    """Returns flag -> value for keywords, aliases resolved.

    Raises ConfigError for an unknown keyword and for a value of the wrong type.
    """
    index = _index_fields(sections)
    known = [*index.section_of_flag, *index.flag_of_alias, *RETIRED_FLAGS]
    for key in given.values:
        if key not in known:
            raise unknown_keyword(key, suggestion(key, known), list(index.section_of_flag))
    retired = {key: value for key, value in given.values.items() if key in RETIRED_FLAGS}
    try:
        return {**_flags_of(given, sections), **coerce(RetiredFlags, retired, given.source)}
    except ValueError as error:
        raise ConfigError(str(error)) from None


class _FieldIndex(NamedTuple):
    """Names of all flags."""

    section_of_flag: Mapping[str, str]
    flag_of_alias: Mapping[str, str]


def _index_fields(sections: Mapping[str, type]) -> _FieldIndex:
    """Raises ConfigError for a field that is not a flag, and for two flags of one name."""
    section_of_flag: dict[str, str] = {}
    flag_of_alias: dict[str, str] = {}
    for name, section in sections.items():
        for field in dataclasses.fields(section):
            if "aliases" not in field.metadata:
                raise ConfigError(
                    f"{section.__name__}.{field.name} is no flag; write {field.name} = flag(default, help)"
                )
            if field.name in section_of_flag or field.name in RETIRED_FLAGS:
                raise ConfigError(
                    f"{section.__name__}.{field.name}: there is a flag --{field.name} already; choose "
                    "another name, or give it a default through register_env(defaults=...)"
                )
            section_of_flag[field.name] = name
            flag_of_alias.update(dict.fromkeys(field.metadata["aliases"], field.name))
    return _FieldIndex(section_of_flag, flag_of_alias)
