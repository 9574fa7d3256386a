"""The whole configuration of an experiment: parsed once, frozen, written to cfg.json."""

import argparse
import dataclasses
import difflib
import json
import logging
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sample_factory.config import flags
from sample_factory.config.evaluation_flags import EvaluationFlags
from sample_factory.config.experiment_folder import (
    IDENTITY,
    SAVED,
    FileOfFlags,
    experiment_folder,
    read_file_of_flags,
    read_saved,
    write_atomically,
)
from sample_factory.config.flags import ConfigError
from sample_factory.config.pbt_flags import PbtFlags
from sample_factory.config.sections import (
    TRAINING_SECTIONS,
    EnvFlags,
    LearningFlags,
    ModelFlags,
    MonitoringFlags,
    RunFlags,
    SamplingFlags,
    flat_values,
)
from sample_factory.config.selfplay_flags import SelfplayFlags

log = logging.getLogger("sample_factory")

# How to run this time, not what the experiment is: never taken from a saved cfg.json. A folder once
# overwritten must not be wiped by the next resume.
SAID_AT_EACH_START = (
    "restart_behavior",
    "cfg",
    "load_checkpoint_kind",
    "sampler_only",
    "benchmark",
    "figures_file",
)
# Flags of the original that change nothing here: accepted, so that its commands work, and said so.
RETIRED_FLAGS = {
    "train_in_background_thread": "batching and training always overlap",
    "use_spectral_norm": "no built-in layer ever read it",
    "num_minibatches_to_accumulate": "use --num_batches_to_accumulate",
    "heartbeat_interval": "components are watched without heartbeats of their own",
    "batched_sampling": "a vectorised environment is always sampled as a batch",
    "pixel_format": "the layout of an image is told by its shape",
    "env_framestack": "no family here stacks frames",
    "use_env_info_cache": "the environment is probed at each start",
}
TYPED = "command line"
# Written to cfg.json for people to read; not flags.
PROVENANCE_KEYS = ("command_line", "cli_args")


class Family(Protocol):
    """What the configuration needs of an env family."""

    flags: type | None
    defaults: Mapping[str, Any]


@dataclass(frozen=True)
class Config:
    """One frozen section per component. Flat on the command line and in cfg.json."""

    run: RunFlags
    sampling: SamplingFlags
    learning: LearningFlags
    model: ModelFlags
    env: EnvFlags
    monitoring: MonitoringFlags
    population: PbtFlags
    selfplay: SelfplayFlags
    evaluation: EvaluationFlags
    family: Any = None  # the env family's own flags, an instance of Family.flags
    typed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    unknown: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # sections that only one program has

    def flat(self) -> dict[str, Any]:
        """Every flag by its name."""
        values: dict[str, Any] = {}
        for name in TRAINING_SECTIONS:
            values.update(flat_values(getattr(self, name)))
        for section in (self.family, *self.extra.values()):
            values.update(flat_values(section) if section is not None else {})
        return values

    def namespace(self) -> types.SimpleNamespace:
        """Every flag as an attribute: what `make_env` functions receive as `cfg`."""
        return types.SimpleNamespace(**self.flat())

    @property
    def experiment_dir(self) -> Path:
        """train_dir/[experiments_root/]experiment."""
        return experiment_folder(self.run)

    def save(self) -> None:
        """Writes cfg.json (flat, keys of v1) into the experiment folder, atomically.

        A disk that refuses is reported; it does not end the run that is under way.
        """
        provenance = {"command_line": " ".join(sys.argv[1:]), "cli_args": dict(self.typed)}
        path = self.experiment_dir / "cfg.json"
        try:
            write_atomically(path, json.dumps({**self.unknown, **self.flat(), **provenance}, indent=4) + "\n")
        except OSError as error:
            log.error(
                "COULD NOT WRITE %s: %s. Training goes on; the next start of this experiment writes it again",
                path,
                error.strerror,
            )


def parse_config(
    argv: Sequence[str],
    resolve_family: Callable[[str], Family],
    evaluation: bool = False,
    extra_sections: Mapping[str, type] | None = None,
) -> Config:
    """Command line to Config. Precedence: field default < family default < --cfg file < saved cfg.json <
    typed.

    `evaluation`: the experiment must exist, and its cfg.json also tells the env if it was not typed.
    `extra_sections`: flags that only this program has; in `Config.extra`. Without `evaluation`, such a
    program has no experiment, and no cfg.json is read.
    Raises ConfigError. Prints the help and exits with 0 on --help.
    """
    identity = _parse_identity(argv)
    file = read_file_of_flags(identity["cfg"]) if "cfg" in identity else FileOfFlags("", {})
    has_experiment = evaluation or not extra_sections
    saved = read_saved(identity, file.values, evaluation) if has_experiment else FileOfFlags(SAVED, {})
    env = identity.get("env") or saved.values.get("env") or file.values.get("env")
    if not env:
        raise ConfigError("--env is missing: the full name of an environment, e.g. --env=doom_battle")
    family = resolve_family(env)
    sections = {**TRAINING_SECTIONS, **(extra_sections or {})}
    if family.flags is not None:
        sections["family"] = family.flags
    _index_fields(sections)
    typed = _parse_typed(argv, sections, family.defaults, env)
    layers = [
        (f"defaults of {env}", dict(family.defaults)),
        file,
        (saved.source, {key: saved.values[key] for key in saved.values if key not in SAID_AT_EACH_START}),
        (TYPED, {**typed, "env": env}),
    ]
    return build_config(sections, layers, typed)


def build_config(
    sections: Mapping[str, type], layers: Sequence[tuple[str, Mapping[str, Any]]], typed: Mapping[str, Any]
) -> Config:
    """Sections from layers of (source, values), later ones win. Raises ConfigError for a bad value."""
    owner, canonical = _index_fields(sections)
    values: dict[str, dict[str, Any]] = {name: {} for name in sections}
    unknown: dict[str, Any] = {}
    sources: dict[str, str] = {}
    try:
        for source, layer in layers:
            for key, value in layer.items():
                key = canonical.get(key, key)
                if key not in owner:
                    _refuse_typo(key, source, [*owner, *canonical])
                    unknown[key] = value
                    continue
                section = owner[key]
                values[section].update(flags.coerce(sections[section], {key: value}, source))
                sources[key] = "" if source == TYPED else source
        built = {name: section(**values[name]) for name, section in sections.items()}
        for section in built.values():
            flags.check_values(section, sources)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    for key in PROVENANCE_KEYS:
        unknown.pop(key, None)
    fields = {field.name for field in dataclasses.fields(Config)}
    extra = {name: built.pop(name) for name in list(built) if name not in fields}
    config = Config(**built, typed=dict(typed), unknown=unknown, extra=extra)
    check_consistency(config)
    return config


def check_consistency(config: Config) -> None:
    """Rules between flags, each with its reason. Raises ConfigError."""
    _check_learning(config)
    _check_population(config)
    sampling = config.sampling
    if sampling.num_envs_per_worker % sampling.worker_num_splits:
        raise ConfigError(
            f"--num_envs_per_worker={sampling.num_envs_per_worker} must be a multiple of --worker_num_splits="
            f"{sampling.worker_num_splits}: each split gets equally many envs. An odd number works with "
            "--worker_num_splits=1"
        )
    if sampling.sampler_only and not sampling.async_rl:
        raise ConfigError(
            "--sampler_only=True needs --async_rl=True: without learning there is nothing to alternate"
        )
    if config.selfplay.selfplay_past_share > 0 and sampling.inline_samplers:
        raise ConfigError(
            "--selfplay_past_share does not work with --inline_samplers: news of past selves would not reach "
            "the envs"
        )
    figures_file = config.monitoring.figures_file
    if figures_file is not None and not Path(figures_file).expanduser().absolute().parent.is_dir():
        raise ConfigError(f"--figures_file={figures_file}: there is no such folder")
    experiment_folder(config.run)


def _check_population(config: Config) -> None:
    flags, sampling = config.population, config.sampling
    if not flags.with_pbt:
        return
    if sampling.num_policies < 2:
        raise ConfigError(
            f"--with_pbt=True needs a population: --num_policies is {sampling.num_policies}, and at least 2 "
            "policies can take over each other's weights"
        )
    if sampling.inline_samplers:
        raise ConfigError(
            "--with_pbt=True does not work with --inline_samplers: new reward shaping would not reach envs"
        )
    if flags.pbt_perturb_min > flags.pbt_perturb_max:
        raise ConfigError(
            f"--pbt_perturb_min={flags.pbt_perturb_min} must not be above --pbt_perturb_max="
            f"{flags.pbt_perturb_max}"
        )


def _check_learning(config: Config) -> None:
    learning = config.learning
    recurrence = learning.rollout if learning.recurrence == -1 else learning.recurrence
    if recurrence < 1 or learning.rollout % recurrence:
        raise ConfigError(
            f"--recurrence={learning.recurrence} must divide --rollout={learning.rollout}: a trajectory is "
            "cut into whole pieces for backpropagation through time"
        )
    if learning.use_cpc and learning.cpc_forward_steps > learning.rollout:
        raise ConfigError(
            f"--cpc_forward_steps={learning.cpc_forward_steps} must be at most --rollout={learning.rollout}: "
            "a trajectory holds no observation further ahead"
        )
    one_step = learning.ppo_epochs * learning.num_batches_per_iteration == 1
    if learning.lr_schedule.startswith("kl_adaptive") and one_step and not config.sampling.async_rl:
        raise ConfigError(
            f"--lr_schedule={learning.lr_schedule} needs several SGD steps per iteration (--ppo_epochs, "
            "--num_batches_per_iteration) or --async_rl=True: before the only step of an iteration, the "
            "policy still is the one that acted, and its KL 0"
        )
    if learning.lr_adaptive_min > learning.lr_adaptive_max:
        raise ConfigError(
            f"--lr_adaptive_min={learning.lr_adaptive_min} must be at most --lr_adaptive_max="
            f"{learning.lr_adaptive_max}"
        )
    if learning.batch_size % learning.rollout:
        raise ConfigError(
            f"--batch_size={learning.batch_size} must be a multiple of --rollout={learning.rollout}: a "
            "minibatch consists of whole trajectories"
        )


def chunk_length(config: Config) -> int:
    """Steps of one piece of a trajectory in training: `recurrence` with an RNN, else the whole rollout."""
    if not config.model.use_rnn or config.learning.recurrence == -1:
        return config.learning.rollout
    return config.learning.recurrence


def _refuse_typo(key: str, source: str, known: Sequence[str]) -> None:
    """An unknown key of a saved cfg.json is kept for whoever wrote it; elsewhere it is most likely a typo."""
    hint = nearest(key, known)
    if not source.startswith(SAVED) and key not in RETIRED_FLAGS and key not in PROVENANCE_KEYS and hint:
        raise ConfigError(f"{source}: unknown flag {key}{hint}")


def nearest(word: str, known: Sequence[str]) -> str:
    """'; did you mean X?' or an empty string."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def _parse_identity(argv: Sequence[str]) -> dict[str, Any]:
    """The flags that decide which other flags exist."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in (*IDENTITY, "cfg"):
        parser.add_argument(f"--{name}", default=argparse.SUPPRESS)
    try:
        return vars(parser.parse_known_args(list(argv))[0])
    except argparse.ArgumentError as error:
        raise ConfigError(str(error)) from None


def _parse_typed(
    argv: Sequence[str], sections: Mapping[str, type], defaults: Mapping[str, Any], env: str
) -> dict[str, Any]:
    """What was typed, by canonical name. Raises ConfigError for an unknown flag or one of the wrong type."""
    parser = argparse.ArgumentParser(
        usage=f"{os.path.basename(sys.argv[0])} --env={env} --experiment=NAME [flags]",
        description=f"The flags of {env}, with their defaults.",
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    parser.add_argument("-h", "--help", action="help", help="show this list and exit")
    for name, section in sections.items():
        title = (section.__doc__ or name).strip().splitlines()[0].rstrip(".")
        flags.add_flags(parser, section, title, defaults)
    for name in RETIRED_FLAGS:
        parser.add_argument(f"--{name}", nargs="?", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    try:
        typed, rest = parser.parse_known_args(list(argv))
    except argparse.ArgumentError as error:
        raise ConfigError(str(error)) from None
    if rest:
        known = [option for action in parser._actions for option in action.option_strings]
        word = rest[0].split("=")[0]
        raise ConfigError(f"unknown flag {rest[0]}{nearest(word, known)} (--help lists the flags of {env})")
    return dict(vars(typed).items())


def _index_fields(sections: Mapping[str, type]) -> tuple[dict[str, str], dict[str, str]]:
    """(field -> section, alias -> field)."""
    owner, canonical = {}, {}
    for name, section in sections.items():
        for field in dataclasses.fields(section):
            if "aliases" not in field.metadata:
                raise ConfigError(
                    f"{section.__name__}.{field.name} is no flag; write {field.name} = flag(default, help)"
                )
            if field.name in owner:
                raise ConfigError(
                    f"{section.__name__}.{field.name}: there is a flag --{field.name} already; choose "
                    "another name, or give it a default through register_env(defaults=...)"
                )
            owner[field.name] = name
            canonical.update(dict.fromkeys(field.metadata["aliases"], field.name))
    return owner, canonical
