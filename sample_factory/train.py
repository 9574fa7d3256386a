"""Trains agents: python -m sample_factory.train --env=doom_battle --experiment=my_experiment"""

import sys
from collections.abc import Sequence
from typing import Any

from sample_factory.config.commands import TRAIN, Command
from sample_factory.launch.exit_codes import run_command


def train(argv: Sequence[str], command: Command = TRAIN) -> int:
    """Runs the experiment that the flags describe; returns its exit code. command: what the help says."""
    from sample_factory.config.flags import ConfigError
    from sample_factory.config.parsing import parse_config
    from sample_factory.envs.env_registry import resolve_family

    config = parse_config(argv, resolve_family, command=command)
    if config.run.algo == "DUMMY_SAMPLER":
        raise ConfigError(f"--algo={config.run.algo}: use python -m sample_factory.dummy_sampler instead")
    from sample_factory.launch.run import run_experiment

    return run_experiment(config, resolve_family(config.env_name))


def run_rl(cfg: Any) -> int:
    """Trains with the cfg of version 2's `parse_full_cfg`; returns the exit code."""
    from sample_factory.version_2.running import run_rl

    return run_rl(cfg)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done or stopped, 1 failed, 2 bad input."""
    return run_command(train, argv)


def __getattr__(name: str) -> Any:
    """Raises ImportError, with what to write, for a name of version 2 that is not here."""
    from sample_factory.version_2.finder import find_old_name

    return find_old_name("train", name)


if __name__ == "__main__":
    sys.exit(main())
