"""Shows and measures a trained policy: python -m sample_factory.enjoy --experiment=my_experiment"""

import functools
import sys
from typing import TYPE_CHECKING

from sample_factory.hub import ENJOY as COMMAND
from sample_factory.launch.command_line import main_of
from sample_factory.version_2.finder import find_old_name

if TYPE_CHECKING:
    from sample_factory.config.config import Config, FlagNamespace
    from sample_factory.evaluation.results import Evaluation
    from sample_factory.version_2.running import Played


def enjoy(config: "Config | FlagNamespace") -> "Evaluation | Played":
    """Plays the policy of an experiment until --max_num_episodes, --max_num_frames, or Ctrl+C.

    Returns the results. For a FlagNamespace, which version 2's `parse_full_cfg` returns, the result can be
    unpacked as in version 2: a status, and the mean reward of the episodes.

    Raises ConfigError if there is no checkpoint, CheckpointError if it cannot be read, VideoError if no video
    can be written.
    """
    from sample_factory.config.config import FlagNamespace

    if isinstance(config, FlagNamespace):
        from sample_factory.version_2.running import enjoy

        return enjoy(config)
    from sample_factory.hub.push_to_hub import play_and_push

    return play_and_push(config)


main = main_of(COMMAND)
__getattr__ = functools.partial(find_old_name, "enjoy")


if __name__ == "__main__":
    sys.exit(main())
