"""The flag --explain of every command that takes the flags of an experiment."""

import dataclasses
from dataclasses import dataclass

from sample_factory.config.command import Command
from sample_factory.config.config import Choice, Config, as_text
from sample_factory.config.experiment_folder import SAVED
from sample_factory.config.flags import default_of, flag
from sample_factory.envs.env_registry import resolve_family
from sample_factory.monitoring.console import aligned

SECTION = "explanation"


@dataclass(frozen=True)
class ExplanationFlags:
    """Flags of a command that only prints."""

    explain: bool = flag(False, "print what has set each flag, and run nothing", is_bare=True)


def with_explanation(command: Command) -> Command:
    """Returns a command of an experiment with the flag --explain added."""
    return command._replace(sections={**command.sections, SECTION: ExplanationFlags})


def explained(config: Config) -> tuple[Config, str | None]:
    """Returns the configuration without the section of --explain, and the text to print in place of running
    the command; the text is None without --explain.

    For a training, this tries out the env, since the env decides about flags too. Raises as `plan_run`.
    """
    flags = config.extra[SECTION]
    others = {name: section for name, section in config.extra.items() if name != SECTION}
    config = dataclasses.replace(config, extra=others)
    if not flags.explain:
        return config, None
    if config.command.experiment != "resumed":
        return config, explanation(config)
    from sample_factory.launch.plan import plan_run  # imports what sampling needs

    return config, explanation(plan_run(config, resolve_family(config.env_name)).config)


def explanation(config: Config) -> str:
    """Returns a table of the flags whose value is not the default, or was changed by the last layer that set
    it (such as a --cfg file or the command line): value, layer, and value without this layer."""
    rows = [("flag", "value", "set by", "otherwise")]
    for section in config.sections.values():
        for field in dataclasses.fields(section):
            default = Choice("", default_of(field))
            below, choice = (default, default, *config.choices.get(field.name, ()))[-2:]
            if choice.value != default.value or choice.value != below.value:
                otherwise = f"{as_text(below.value)} {_name(below) and f'({_name(below)})'}"
                rows.append((f"--{field.name}", as_text(choice.value), _name(choice), otherwise))
    return "\n".join(aligned(rows, "<"))


def _name(choice: Choice) -> str:
    """Returns the name of a layer for the table, without the path of a cfg.json."""
    return SAVED if choice.layer.startswith(SAVED) else choice.layer
