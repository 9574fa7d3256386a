"""Version 1's command: python -m sample_factory.run_algorithm --algo=APPO|DUMMY_SAMPLER --env=... ..."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from sample_factory.benchmarking.random_sampler import DUMMY_SAMPLER
from sample_factory.config.flag_parser import make_parser, parse_known
from sample_factory.launch.command_line import run
from sample_factory.training.command import COMMAND as TRAIN

COMMAND = TRAIN._replace(
    name="run_algorithm",
    description="The command of version 1. With --algo=APPO (the default) it is the command train, with "
    "--algo=DUMMY_SAMPLER it is dummy_sampler.",
)


def main(argv: Sequence[str] | None = None, env: Callable[..., Any] | None = None) -> int:
    """Runs `train` or, with --algo=DUMMY_SAMPLER, `dummy_sampler`; returns the exit code.

    argv: the arguments; None: the arguments of this process.
    env: a class of envs or a function that makes one, in place of --env.
    """
    arguments = sys.argv[1:] if argv is None else argv
    parser = make_parser()
    parser.add_argument("--algo", nargs="?", default="APPO")
    found, others = parse_known(parser, arguments)
    if found.algo == "DUMMY_SAMPLER":
        return run(DUMMY_SAMPLER, others, env)
    return run(COMMAND, arguments, env)  # refuses an unknown algorithm, after it has checked all other flags
