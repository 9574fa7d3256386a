"""Merges layers of flags into a Config: the defaults, files, the command line."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sample_factory.config.config import Change, Choice, Config, Resumed
from sample_factory.config.consistency import check_consistency, check_values
from sample_factory.config.experiment_folder import PROVENANCE_KEYS, SAVED, was_saved
from sample_factory.config.flag_parser import nearest_flag
from sample_factory.config.flags import ConfigError, Layer, coerce
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.config.sections import RETIRED_FLAGS, TRAINING_SECTIONS

COMMAND_LINE = "command line"
# They name the experiment or say how to run this time, so they are no change of an experiment.
NOT_COMPARED = ("env", "experiment", "experiments_root", "train_dir", "transfer_from")


def build_config(
    sections: Mapping[str, type],
    layers: Sequence[Layer],
    typed: Mapping[str, Any],
    follows_observation: bool = False,
) -> Config:
    """Builds a Config from layers of values, of which later ones win, and checks the flags.

    typed: flag -> value, for the flags on the command line. follows_observation: whether flags that no layer
    has may be chosen by the observation of the env. Raises ConfigError for a bad value.
    """
    flag_of = _flag_table(sections)
    values: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    choices: dict[str, tuple[Choice, ...]] = {}
    for layer in layers:
        known, rest = _read_layer(layer, flag_of)
        values.update(known)
        unknown.update(rest)
        for key in filter(flag_of.__contains__, layer.values):
            flag = flag_of[key][1]
            source = layer.source if key == flag else f"{layer.source}, as {key}"
            choices[flag] = (*choices.get(flag, ()), Choice(source, known[flag]))
    built = {}
    for name, section in sections.items():
        flags = [field.name for field in dataclasses.fields(section) if field.name in values]
        try:
            built[name] = section(**{flag: values[flag] for flag in flags})
        except ValueError as error:  # of a check that the section makes itself
            raise ConfigError(str(error)) from None
    sources = {flag: found[-1].layer for flag, found in choices.items() if found[-1].layer != COMMAND_LINE}
    for section_values in built.values():
        check_values(section_values, sources)
    for key in PROVENANCE_KEYS:
        unknown.pop(key, None)
    fields = {field.name for field in dataclasses.fields(Config)}
    extra = {name: built.pop(name) for name in list(built) if name not in fields}
    unset = frozenset(flag for _, flag in flag_of.values()) - choices.keys()
    open_flags = unset if follows_observation else frozenset()
    config = Config(
        **built, typed=dict(typed), choices=choices, unknown=unknown, extra=extra, open_flags=open_flags
    )
    check_consistency(config)
    return config


def changes_of(sections: Mapping[str, type], saved: Layer, typed: Layer, file: Layer) -> Resumed:
    """Returns the flags on the command line (`typed`) and in the --cfg file that differ from saved ones."""
    flag_of = _flag_table(sections)
    old, given, recipe = (_read_layer(layer, flag_of)[0] for layer in (saved, typed, file))

    def differences(values: Mapping[str, Any]) -> tuple[Change, ...]:
        changed = (Change(flag, old[flag], value) for flag, value in values.items() if flag in old)
        return tuple(one for one in changed if one.given != one.saved and one.flag not in NOT_COMPARED)

    untyped = {flag: value for flag, value in recipe.items() if flag not in given}
    return Resumed(differences(given), differences(untyped))


def read_layer(sections: Mapping[str, type], layer: Layer) -> Layer:
    """Returns the layer with values of the flags' types, and with flags in place of aliases.

    Raises ConfigError for a bad value and for an unknown flag.
    """
    known, rest = _read_layer(layer, _flag_table(sections))
    return layer._replace(values={**known, **rest})


def _read_layer(
    layer: Layer, flag_of: Mapping[str, tuple[type, str]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits a layer into the values of flags, converted to the flags' types and without aliases, and other
    keys.

    flag_of: from `_flag_table`. Raises ConfigError for a bad value, and for a key that is no flag, unless
    another version or program may have written the key, as in any cfg.json that a run has saved.
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
            hint = nearest_flag(key, flag_of).replace("--", "")  # the keys of a file have no dashes
            raise ConfigError(f"{layer.source}: unknown flag {key}{hint}")
    return values, unknown


def all_sections(
    of_family: type | None, own_sections: Mapping[str, type], learning: type = LearningFlags
) -> dict[str, type]:
    """Returns name -> section, for all flags that a command accepts.

    of_family: section of the env family's flags, or None. own_sections: sections that only the command has.
    learning: section of learning, to which an algorithm may have added flags.

    Raises ConfigError for a field that is not a flag, and for two flags of one name.
    """
    family = {} if of_family is None else {"family": of_family}
    sections = {**TRAINING_SECTIONS, "learning": learning, **own_sections, **family}
    _flag_table(sections)
    return sections


def _flag_table(sections: Mapping[str, type]) -> dict[str, tuple[type, str]]:
    """Returns flag or alias -> (section, name of the flag). Raises ConfigError for a field that is not a
    flag, and for two flags of one name."""
    table: dict[str, tuple[type, str]] = {}
    for section in sections.values():
        for field in dataclasses.fields(section):
            if "aliases" not in field.metadata:
                raise ConfigError(
                    f"{section.__name__}.{field.name} is no flag; write {field.name} = flag(default, help)"
                )
            for name in (field.name, *field.metadata["aliases"]):
                if name in table or name in RETIRED_FLAGS:
                    raise ConfigError(
                        f"{section.__name__}.{field.name}: there is a flag --{name} already; choose "
                        "another name, or give it a default through register_env(defaults=...)"
                    )
                table[name] = section, field.name
    return table
