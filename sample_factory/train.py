"""Trains agents: python -m sample_factory.train --env=doom_battle --experiment=my_experiment"""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done or stopped, 1 failed, 2 bad input."""
    from sample_factory.config.config import ConfigError, parse_config
    from sample_factory.envs.env_registry import UnknownEnvError, resolve_family

    try:
        config = parse_config(sys.argv[1:] if argv is None else argv, resolve_family)
        if config.run.algo == "DUMMY_SAMPLER":
            raise ConfigError(f"--algo={config.run.algo}: use python -m sample_factory.run_algorithm for it")
        from sample_factory.experiment.run import run_experiment

        return run_experiment(config, resolve_family(config.run.env))
    except (ConfigError, UnknownEnvError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
