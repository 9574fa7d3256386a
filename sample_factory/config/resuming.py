"""Checks that a start fits the experiment that it resumes, and finds what it changes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sample_factory.config.flags import ConfigError, shortened

# They name the experiment or say how to run this time, so they are no change of an experiment.
NOT_COMPARED = ("env", "experiment", "experiments_root", "train_dir", "transfer_from")


class Change(NamedTuple):
    """A flag with two values."""

    flag: str
    saved: Any  # in cfg.json of the experiment
    given: Any

    def __str__(self) -> str:
        return f"{self.flag} {_text(self.saved)} -> {_text(self.given)}"


class Resumed(NamedTuple):
    """How the flags of a start differ from those of the experiment that it resumes.

    changed: flags on the command line. ignored: flags in the --cfg file, which the saved ones override.
    """

    changed: tuple[Change, ...] = ()
    ignored: tuple[Change, ...] = ()


def refuse_other_env(
    saved: Mapping[str, Any], typed: Mapping[str, Any], file_values: Mapping[str, Any]
) -> None:
    """Raises ConfigError if an experiment is to be resumed with another env than that of its training.

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


def compare(saved: Mapping[str, Any], typed: Mapping[str, Any], file_values: Mapping[str, Any]) -> Resumed:
    """Returns the differences; all values have the types of their flags."""

    def differences(given: Mapping[str, Any]) -> tuple[Change, ...]:
        return tuple(
            Change(flag, saved[flag], value)
            for flag, value in given.items()
            if flag in saved and value != saved[flag] and flag not in NOT_COMPARED
        )

    untyped = {flag: value for flag, value in file_values.items() if flag not in typed}
    return Resumed(differences(typed), differences(untyped))


def _text(value: Any) -> str:
    return shortened(" ".join(map(str, value)) or "empty" if isinstance(value, tuple) else str(value))
