"""Converts an experiment of Sample Factory 1 or 2, with its checkpoints, into one of this version.

python -m sample_factory.hub.convert --source=old/train_dir/doom_battle --experiment=doom_battle
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sample_factory.config.commands import CONVERT
from sample_factory.config.flags import ConfigError
from sample_factory.config.help import make_command_parser
from sample_factory.config.sections import RunFlags
from sample_factory.config.unknown_flags import parse_words
from sample_factory.hub import SWITCH
from sample_factory.hub.load_from_hub import next_commands
from sample_factory.launch.exit_codes import run_command
from sample_factory.runtime.log import setup_logging


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Raises ConfigError. Prints the help and exits with 0 on --help."""
    parser = make_command_parser(CONVERT)
    add = parser.add_argument
    add("--source", type=Path, metavar="FOLDER", help="folder of the old experiment")
    add(
        "--experiment",
        metavar="NAME",
        help="name of the new experiment (default: the old folder's name)",
    )
    place = "where it is written (default: ./train_dir)"
    add("--train_dir", default=RunFlags().train_dir, metavar="FOLDER", help=place)
    add("--experiments_root", metavar="FOLDER", help="folder within --train_dir for a group of experiments")
    add("--env", metavar="NAME", help="name of the env here, if it differs, e.g. gym_CartPole-v1")
    trust = (
        "also import and call code that the settings name, and load checkpoints that hold more than tensors "
        "and numbers; that can run any code of their author (default: False)"
    )
    add("--trust_code", metavar="True|False", help=trust, **SWITCH)
    arguments = parse_words(parser, argv)
    if arguments.source is None:
        raise ConfigError("the old experiment is missing: --source=FOLDER")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done, 2 something cannot be converted."""

    def command(words: Sequence[str]) -> None:
        given = parse_arguments(words)
        from sample_factory.hub.convert_experiment import convert_experiment  # loads torch

        setup_logging("convert")
        source = given.source.expanduser().absolute()
        place = {"train_dir": given.train_dir, "experiments_root": given.experiments_root}
        destination = RunFlags(experiment=given.experiment or source.name, **place)
        folder = convert_experiment(source, destination, given.env, trust_code=given.trust_code)
        print("\n".join([f"converted: {folder}", *next_commands(folder)]))

    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
