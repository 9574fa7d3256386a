"""Version 1's command: python -m sample_factory.run_algorithm --algo=APPO|DUMMY_SAMPLER --env=... ..."""

import argparse
import functools
import sys
from collections.abc import Sequence

from sample_factory.config.commands import RUN_ALGORITHM
from sample_factory.launch.exit_codes import run_command


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `sample_factory.train`, or `sample_factory.dummy_sampler`; returns its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--algo", nargs="?", default="APPO")
    found, others = parser.parse_known_args(list(arguments))
    if found.algo == "DUMMY_SAMPLER":
        from sample_factory.dummy_sampler import main as run

        return run(others)
    from sample_factory.train import train  # refuses an unknown one, after it has checked all other flags

    return run_command(functools.partial(train, command=RUN_ALGORITHM), arguments)


if __name__ == "__main__":
    sys.exit(main())
