"""The flags of `record`. Imports no torch: bad flags are reported at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sample_factory.config.commands import RECORD
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError, flag
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_trained_family
from sample_factory.imitation import check_data_set


@dataclass(frozen=True)
class RecordFlags:
    """Recording games of a policy."""

    episodes: int = flag(100, "number of episodes", between=(1, 10_000_000))
    out: str | None = flag(None, "new folder for the Minari data set", metavar="FOLDER")
    screens: bool = flag(
        False, "record also what the env draws for people, as the info `screen` of each step"
    )
    video_episodes: int = flag(3, "episodes in the video, video.mp4 in the folder; 0: no video", at_least=0)


def parse_arguments(argv: Sequence[str]) -> Config:
    """Raises ConfigError and UnknownEnvError. Prints the help and exits with 0 on --help."""
    own = {"record": RecordFlags}
    config = parse_config(argv, resolve_trained_family, evaluation=True, extra_sections=own, command=RECORD)
    flags: RecordFlags = config.extra["record"]
    if "eval_episodes" in config.typed:
        raise ConfigError(f"--eval_episodes is for eval; write --episodes={config.evaluation.eval_episodes}")
    if flags.out is None:
        raise ConfigError("--out=FOLDER is missing: the folder of the data set")
    check_data_set("out", flags.out)
    # Not above: the help needs neither torch nor gymnasium.
    from sample_factory.evaluation.policy_choice import chosen_policies, find_checkpoint

    chosen = chosen_policies(config)
    if len(chosen) > 1:
        raise ConfigError(f"{len(chosen)} checkpoints are chosen; a data set has the games of one")
    find_checkpoint(config, chosen[0])  # raises
    return replace(config, evaluation=replace(config.evaluation, eval_episodes=flags.episodes))
