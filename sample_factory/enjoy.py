"""Shows and measures a trained policy.

python -m sample_factory.enjoy --env=doom_battle --experiment=my_experiment

With --save_video --no_render it writes a video on a machine without a display.
"""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sample_factory.launch.exit_codes import run_command

if TYPE_CHECKING:
    from sample_factory.config.config import Config, FlagNamespace
    from sample_factory.evaluation.results import Evaluation
    from sample_factory.version_2.running import Played


def enjoy(config: "Config | FlagNamespace") -> "Evaluation | Played":
    """Plays the policy of an experiment until --max_num_episodes, --max_num_frames, or Ctrl+C.

    With the cfg of version 2's `parse_full_cfg`, returns what version 2 does: a status, and the mean of the
    true objectives; for sys.exit both are the exit code 0. Raises ConfigError when there is no checkpoint,
    CheckpointError for an unusable one, VideoError.
    """
    from sample_factory.config.config import FlagNamespace
    from sample_factory.envs.env_registry import resolve_family
    from sample_factory.hub.push_to_hub import play_and_push

    if isinstance(config, FlagNamespace):
        from sample_factory.version_2.running import enjoy

        return enjoy(config)
    return play_and_push(config, resolve_family(config.env_name))


def main(argv: Sequence[str] | None = None, env: Callable[..., Any] | None = None) -> int:
    """Returns the exit code: 0 done or stopped, 1 the checkpoint or the video failed, 2 bad input."""

    def command(arguments: Sequence[str]) -> None:
        from sample_factory.config.commands import ENJOY
        from sample_factory.config.parsing import parse_config
        from sample_factory.envs.env_registry import resolve_trained_family
        from sample_factory.evaluation.results import ResultFlags
        from sample_factory.hub import EnjoyHubFlags
        from sample_factory.runtime.log import setup_logging

        setup_logging("enjoy")
        own = {"results": ResultFlags, "hub": EnjoyHubFlags}
        config = parse_config(
            arguments, resolve_trained_family, evaluation=True, extra_sections=own, command=ENJOY
        )
        enjoy(config)

    return run_command(command, argv, env)


if __name__ == "__main__":
    sys.exit(main())
