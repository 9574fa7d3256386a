"""Version 1's command: python -m sample_factory.run_algorithm --algo=APPO|DUMMY_SAMPLER --env=... ..."""

import sys
from collections.abc import Sequence

from sample_factory.config.flag_parser import make_parser, parse_known
from sample_factory.launch.command_line import run
from sample_factory.training.command import RUN_ALGORITHM as COMMAND


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `sample_factory.train`, or `sample_factory.dummy_sampler`; returns its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    parser = make_parser()
    parser.add_argument("--algo", nargs="?", default="APPO")
    found, others = parse_known(parser, arguments)
    if found.algo == "DUMMY_SAMPLER":
        from sample_factory.dummy_sampler import main as sample

        return sample(others)
    return run(COMMAND, arguments)  # refuses an unknown algorithm, after it has checked all other flags


if __name__ == "__main__":
    sys.exit(main())
