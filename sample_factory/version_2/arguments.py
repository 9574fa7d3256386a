"""Version 2's `parse_sf_args` and `parse_full_cfg`, for scripts that were written for it."""

import sys
from collections.abc import Sequence
from typing import Any

from sample_factory.config.config import FlagNamespace
from sample_factory.config.flags import ConfigError, add_flags, make_parser, parse_known
from sample_factory.config.parsing import parse_config
from sample_factory.config.sections import TRAINING_SECTIONS, RetiredFlags, flat_values
from sample_factory.envs.env_registry import (
    UnknownEnvError,
    extend_family,
    resolve_family,
    resolve_trained_family,
)
from sample_factory.envs.v1_registration import ParserRecorder
from sample_factory.hub.hub_flags import EnjoyHubFlags
from sample_factory.version_2.model_factory import encoder_default


class ScriptParser(ParserRecorder):
    """The parser between the two calls, to which a script adds its arguments and defaults.

    evaluation: whether `parse_sf_args` was called for a script that plays.
    """

    def __init__(self, evaluation: bool):
        super().__init__(add_help=False)
        self.evaluation = evaluation


def parse_sf_args(
    argv: Sequence[str] | None = None, evaluation: bool = False
) -> tuple[ScriptParser, FlagNamespace]:
    """Returns a parser for the script's own arguments, and the flags so far, without those of the env.

    argv: None: the arguments of this process.
    """
    parser = make_parser()
    values: dict[str, Any] = {}
    for section in TRAINING_SECTIONS.values():
        add_flags(parser, section)
        values.update(flat_values(section()))
    add_flags(parser, RetiredFlags)
    try:
        typed, _ = parse_known(parser, sys.argv[1:] if argv is None else argv)
    except ConfigError as error:
        raise ended_by(error) from None
    return ScriptParser(evaluation), FlagNamespace(**{**values, **vars(typed)})


def parse_full_cfg(parser: ScriptParser, argv: Sequence[str] | None = None) -> FlagNamespace:
    """Returns all flags, for `run_rl` and `enjoy`; `cfg.cli_args` has those that were typed.

    The arguments and defaults that the script has added to the parser become those of the family of --env.
    An error is printed in one line, and ends the process with exit code 2, as argparse does.
    """
    if not isinstance(parser, ScriptParser):
        raise TypeError(f"parse_full_cfg: got a {type(parser).__name__}; give the parser of parse_sf_args")
    arguments = sys.argv[1:] if argv is None else argv
    try:
        _, known = parse_sf_args(arguments)
        if known.env is not None:
            extend_family(known.env, parser.flags_type(), {**encoder_default(), **parser.recorded_defaults})
        resolve = resolve_trained_family if parser.evaluation else resolve_family
        # Without `evaluation`, no cfg.json is read: a script may name its experiment after this call.
        own = {"hub": EnjoyHubFlags} if parser.evaluation else None
        config = parse_config(arguments, resolve, extra_sections=own)
    except (ConfigError, UnknownEnvError, ImportError) as error:
        raise ended_by(error) from None
    cfg = config.namespace()
    cfg.cli_args = dict(config.typed)
    return cfg


def ended_by(error: Exception) -> SystemExit:
    """Prints an error; returns the exception that ends the process."""
    print(f"error: {error}", file=sys.stderr)
    return SystemExit(2)
