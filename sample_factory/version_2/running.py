"""Version 2's functions for scripts: `parse_sf_args` and `parse_full_cfg` make a cfg, which the script may
change; `run_rl` and `enjoy` run it. `global_model_factory` registers an encoder. Imports no torch."""

import dataclasses
import enum
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sample_factory.config.command import TRAIN
from sample_factory.config.config import Config, FlagNamespace, with_lists
from sample_factory.config.experiment_folder import PROVENANCE_KEYS, experiment_folder
from sample_factory.config.flag_parser import add_flags, make_parser, parse_known
from sample_factory.config.flags import ConfigError, coerce
from sample_factory.config.parsing import as_arguments, parse_config
from sample_factory.config.sections import (
    FLAG_NAMES,
    RETIRED_FLAGS,
    TRAINING_SECTIONS,
    RetiredFlags,
    flat_values,
)
from sample_factory.config.trust import TRUST
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_registry import extend_family, extension_of
from sample_factory.envs.v1_registration import ParserRecorder, joined, values_of_script
from sample_factory.families.doom.doom_family import DOOM_SPECS, DoomSpec
from sample_factory.hub import ENJOY, EnjoyHubFlags
from sample_factory.launch.exit_codes import DONE, FAILED, run_command
from sample_factory.models.network_registry import BUILT_IN_ENCODERS, register_encoder
from sample_factory.runtime import gpu
from sample_factory.runtime.log import log, restored_logging, setup_logging
from sample_factory.runtime.registry import resolve
from sample_factory.training.run import train_config
from sample_factory.version_2.registration import add_to_family, family_of_script

if TYPE_CHECKING:
    from sample_factory.evaluation.results import Evaluation


ENCODER = "registered_factory"  # the value of --encoder_custom for the one encoder of a script
VIZDOOM = "vizdoom"
SILENT = TRAIN._replace(reads=None)  # reports no flags without effect: they are reported when the run begins


class ModelFactory:
    """Registers the encoder of a script, with the interface of version 2's class.

    Cores, decoders and whole networks have another interface here than in version 2, and are refused.
    encoder: the value of --encoder_custom that selects the registered encoder; None without one.
    """

    encoder: str | None = None

    def register_encoder_factory(self, make_encoder: Callable[[Any, Any], Any]) -> None:
        """Registers a function make_encoder(cfg, observation_space) that returns an `Encoder`.
        cfg: flags of the model and the env, as attributes."""

        def factory(flags: Any, observation_space: Any) -> Any:
            return make_encoder(FlagNamespace(**with_lists(vars(flags))), observation_space)

        self.encoder = VIZDOOM if make_encoder is make_vizdoom_encoder else ENCODER
        register_encoder(ENCODER, factory)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "encoder" and name != "make_model_encoder_func":
            getattr(self, name)  # raises
        vars(self)[name] = value
        if name == "make_model_encoder_func":
            self.register_encoder_factory(value)

    def __getattr__(self, name: str) -> Any:
        """Raises ConfigError, with what to write, for methods that register a core, a decoder and so on."""
        part = re.sub("^(register|make)_(model_)?|_(factory|func)$", "", name)
        raise ConfigError(
            f"{name} is not in this version: write sample_factory.register_{part}(name, factory), and "
            f"--{part}_custom=name; the docstring of register_{part} describes the factory"
        )


def make_vizdoom_encoder(cfg: Any, obs_space: Any) -> Any:
    """Returns the built-in encoder of Doom for observations of the space `obs_space`. Scripts of version 2
    register this function as their encoder, which makes "vizdoom" the default of --encoder_custom."""
    return resolve(BUILT_IN_ENCODERS[VIZDOOM])(cfg, obs_space)


_FACTORY = ModelFactory()


def global_model_factory() -> ModelFactory:
    """Returns the registry of networks, which has the interface of version 2."""
    return _FACTORY


# Names of the cfg that are no values of a script.
_NOTES = {*PROVENANCE_KEYS, "git_hash", "git_repo_name"}


def _others(evaluation: bool) -> set[str]:
    """Returns the names on a cfg that neither the script nor its env has added: flags of this package, flags
    of earlier versions, and notes on how the cfg was made.
    evaluation: whether the cfg is of a script that plays."""
    hub = {field.name for field in dataclasses.fields(EnjoyHubFlags)} if evaluation else set()
    return _NOTES | FLAG_NAMES | RETIRED_FLAGS.keys() | hub


class ScriptParser(ParserRecorder):
    """Records the arguments and defaults that a script adds between `parse_sf_args` and `parse_full_cfg`.
    evaluation: whether `parse_sf_args` was called for a script that plays."""

    def __init__(self, evaluation: bool):
        super().__init__(add_help=False, allow_abbrev=False)
        self.evaluation = evaluation


def parse_sf_args(
    argv: Sequence[str] | None = None, evaluation: bool = False
) -> tuple[ScriptParser, FlagNamespace]:
    """Returns (parser to which the script adds its arguments, flags that all envs have).
    argv: the arguments; None: the arguments of this process. evaluation: whether the script plays."""
    parser = make_parser()
    values: dict[str, Any] = {}
    for section in TRAINING_SECTIONS.values():
        add_flags(parser, section)
        values.update(flat_values(section()))
    add_flags(parser, RetiredFlags)
    try:
        typed, _ = parse_known(parser, sys.argv[1:] if argv is None else argv)
        for section in (*TRAINING_SECTIONS.values(), RetiredFlags):
            names = {field.name for field in dataclasses.fields(section)} & vars(typed).keys()
            values |= coerce(section, {name: vars(typed)[name] for name in names}, "the command line")
    except ConfigError as error:
        raise ended_by(error) from None
    return ScriptParser(evaluation), FlagNamespace(**with_lists(values))


def parse_full_cfg(parser: ScriptParser, argv: Sequence[str] | None = None) -> FlagNamespace:
    """Parses the command line, and returns all flags as the cfg for `run_rl` and `enjoy`.

    `cfg.cli_args` has only the typed flags. Arguments and defaults that the script has added to the parser
    become flags of the env. Envs and encoders may be registered later. An error is printed in one line, and
    ends the process with exit code 2, as argparse does.
    """
    if not isinstance(parser, ScriptParser):
        raise TypeError(f"parse_full_cfg: got a {type(parser).__name__}; give the parser of parse_sf_args")
    arguments = sys.argv[1:] if argv is None else argv
    try:
        parser.check_groups(arguments)
        _, known = parse_sf_args(arguments)
        if known.env is not None:
            # As in version 2, all envs use the encoder of the script.
            encoder = {} if _FACTORY.encoder is None else {"encoder_custom": _FACTORY.encoder}
            add_to_family(known.env, parser, _others(parser.evaluation), encoder)
        config = _parse(arguments, parser.evaluation)
    except (ConfigError, ImportError) as error:
        raise ended_by(error) from None
    cfg = config.namespace()
    cfg.cli_args, cfg.command_line = dict(config.typed), shlex.join(arguments)
    cfg.git_hash, cfg.git_repo_name = _git("rev-parse", "HEAD"), _git("remote", "get-url", "origin")
    return cfg


def _parse(argv: Sequence[str], evaluation: bool) -> Config:
    """Parses the arguments of a script. Reads no cfg.json, since the script may set the experiment later.
    evaluation: whether the script plays."""
    own = EnjoyHubFlags if evaluation else values_of_script({})
    return parse_config(argv, family_of_script, SILENT._replace(experiment="new", sections={"script": own}))


def _git(*words: str) -> str:
    """Runs git with these arguments in the working directory; returns its output, or "unknown"."""
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def ended_by(error: Exception) -> SystemExit:
    """Prints an error to stderr, and returns a SystemExit with code 2 that the caller raises."""
    print(f"error: {error}", file=sys.stderr)
    return SystemExit(2)


class ExperimentStatus(enum.IntEnum):
    """Version 2's names of exit codes. An interrupted run is a SUCCESS, since it has saved a checkpoint."""

    SUCCESS = 0
    FAILURE = 1
    INTERRUPTED = 2


def run_rl(cfg: Any) -> int:
    """Trains with a cfg of `parse_full_cfg`. Prints expected errors.
    Returns the exit code: 0 if the run is done or was stopped, 1 if it failed, 2 for bad input."""

    def train(_: Any) -> int:
        with restored_logging():
            setup_logging("main")
            result = train_config(config_of(cfg, "run_rl", evaluation=False))
        return FAILED if result.status == "failed" else DONE

    return run_command(train, [])


class Played(int):
    """Result of `enjoy`: an exit code of 0, which can also be unpacked as version 2's (status, reward)."""

    reward: float  # mean of all episodes

    def __getitem__(self, index: Any) -> Any:  # also unpacks it
        return (int(self), self.reward)[index]

    def __len__(self) -> int:
        return 2


def enjoy(cfg: Any) -> Played:
    """Plays the experiment of a cfg of `parse_full_cfg`; returns a status, and the mean reward of the
    episodes.

    Raises ConfigError if there is no checkpoint, CheckpointError if it cannot be read, VideoError if no video
    can be written.
    """
    from sample_factory.hub.push_to_hub import play_and_push

    with restored_logging():
        setup_logging("enjoy")
        config = config_of(cfg, "enjoy", evaluation=True)
        result: Evaluation = play_and_push(config)
    played = Played(ExperimentStatus.SUCCESS)
    played.reward = result.reward.mean
    return played


def load_from_checkpoint(cfg: Any) -> FlagNamespace:
    """Returns the saved flags of the cfg's experiment; typed flags replace saved ones.
    Raises ConfigError if `cfg` does not come from `parse_full_cfg`, or has bad flags."""
    loaded = config_of(cfg, "load_from_checkpoint", evaluation=True).namespace()
    if loaded.device == "auto":  # scripts take every other value than cpu for a GPU
        loaded.device = "gpu" if gpu.resolve_device("auto") != "cpu" else "cpu"
    for name in _NOTES & vars(cfg).keys():
        loaded[name] = cfg[name]
    return loaded


def config_of(cfg: Any, function: str, evaluation: bool) -> Config:
    """Converts a cfg of `parse_full_cfg`, which the script may have changed, to a Config.

    function: name of the function that the script has called, for messages. evaluation: whether it plays.
    Raises ConfigError for another kind of cfg, and for bad flags.
    """
    if not isinstance(cfg, FlagNamespace) or "cli_args" not in cfg:
        raise ConfigError(
            f"{function}(cfg): cfg is a {type(cfg).__name__}; it should be the result of parse_full_cfg, or "
            "call sample_factory.run(env=..., experiment=..., **flags)"
        )
    argv = shlex.split(cfg.command_line)
    parsed = _parse(argv, evaluation).namespace()
    changed = {
        name: value
        for name, value in vars(cfg).items()
        if name not in _NOTES and (name not in parsed or value != parsed[name])
    }
    if _FACTORY.encoder is not None and not {"encoder_custom"} & {*changed, *cfg.cli_args}:
        changed["encoder_custom"] = _FACTORY.encoder  # also one that was registered since
    family, (flags, defaults) = family_of_script(cfg.env), extension_of(cfg.env)
    own = values_of_script(family.without_flags(changed, _others(evaluation)))
    extend_family(cfg.env, joined(own, flags), defaults)
    command = ENJOY._replace(sections={"hub": EnjoyHubFlags}) if evaluation else TRAIN
    command = command._replace(instead={})  # scripts share flags between commands
    config = parse_config(argv, family_of_script, command, keywords=changed)
    return dataclasses.replace(config, argv=tuple(argv), is_of_script=True)


def config_of_values(cfg: Any) -> Config:
    """Converts a FlagNamespace, or a dict of flag -> value as read from a cfg.json, to a Config.

    A FlagNamespace or a signed dict may name code to import; any other dict is treated as the cfg.json of
    another account. Raises ConfigError for bad flags.
    """
    values = values_of_cfg(cfg)

    def resolve(env_name: str) -> EnvFamily:
        family = family_of_script(env_name)
        return family.extended(values_of_script(family.without_flags(values, _others(True))), {})

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cfg.json")
        path.write_text(json.dumps({"cli_args": {}, **values}))  # as in every cfg.json
        # The names of an experiment that does not exist, so that no other cfg.json is read.
        named = {"cfg": path, "experiment": path.name, "train_dir": folder}
        trusted = {TRUST: isinstance(cfg, FlagNamespace)}
        argv = as_arguments({**named, **trusted, "encoder_custom": _FACTORY.encoder})
        try:
            return parse_config(argv, resolve, command=SILENT, cfg_is_saved=True)
        except ConfigError as error:
            raise ConfigError(str(error).replace(str(path), "the cfg")) from None


def values_of_cfg(cfg: Any) -> dict[str, Any]:
    return dict(cfg) if isinstance(cfg, dict) else vars(cfg)


def experiment_dir(cfg: Any, mkdir: bool = True) -> str:
    """Returns the path of the experiment folder; creates the folder if `mkdir`.
    Raises ConfigError for names that lead out of --train_dir."""
    run: Any = types.SimpleNamespace(**{"experiments_root": None, **values_of_cfg(cfg)})
    path = str(experiment_folder(run))
    return ensure_dir_exists(path) if mkdir else path


def ensure_dir_exists(path: str) -> str:
    os.makedirs(path, exist_ok=True)
    return path


def seeds(num_seeds: int) -> list[int]:
    """Returns `num_seeds` different random seeds of seven digits."""
    return random.sample(range(1_000_000, 10_000_000), num_seeds)


def debug_log_every_n(n: int, message: str, *arguments: Any) -> None:
    """Logs a message at the level debug; unlike in version 2, on every call."""
    log.debug(message, *arguments)


# Of the package `sf_examples`, whose envs and networks are built in.
DOOM_ENVS = tuple(DOOM_SPECS.values())


def make_doom_env_from_spec(
    spec: DoomSpec, full_env_name: str, cfg: Any, env_config: Any, render_mode: str | None = None
) -> Any:
    """Makes the Doom env that `spec` describes. The other arguments are those that version 2 passes to every
    function that makes an env."""
    from sample_factory.families.doom.make_doom_env import make_doom_env  # loads the engine

    return make_doom_env(full_env_name, cfg, env_config, render_mode, spec)


def is_built_in(*arguments: Any) -> None:
    """Does nothing, in place of functions that register Doom, MuJoCo and Atari: these are built in here."""


add_doom_env_args = add_doom_env_eval_args = doom_override_defaults = is_built_in
register_vizdoom_components = register_mujoco_components = register_atari_components = is_built_in


def parse_cfg(argv: list[str] | None = None, evaluation: bool = False) -> FlagNamespace:
    """Parses the command line of a script that adds no arguments, and returns the cfg for `run_rl` and
    `enjoy`.
    argv: the arguments; None: the arguments of this process. evaluation: whether the script plays."""
    return parse_full_cfg(parse_sf_args(argv, evaluation)[0], argv)


parse_vizdoom_cfg = parse_mujoco_cfg = parse_atari_args = parse_cfg
