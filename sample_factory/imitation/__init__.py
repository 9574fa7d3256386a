"""Behaviour cloning: the flags of `imitate`, which trains a policy to act as recorded players do.

Imports no torch: bad flags are reported at once.
"""

from dataclasses import dataclass
from pathlib import Path

from sample_factory.checkpoints.milestones import find_checkpoints
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError, flag
from sample_factory.envs.packages import is_installed, missing_package


@dataclass(frozen=True)
class ImitateFlags:
    """The games to imitate, and the length of the training. Declares the flags that only the command
    `imitate` has."""

    teachers: tuple[str, ...] = flag(
        (),
        "scripted players of the env that are imitated; in each game, one of them is drawn for each agent; "
        "all that the env has if left out",
        metavar="NAME",
        only_with={"games": (None,)},
    )
    imitate_samples: int = flag(
        50_000, "number of actions to record", at_least=100, only_with={"games": (None,)}
    )
    imitate_epochs: int = flag(10, "passes over the recorded games", at_least=1)
    held_out_share: float = flag(
        0.1, "share of the episodes that are not trained on, to measure on", above=0, at_most=0.9
    )
    games: str | None = flag(
        None, "Minari data set to imitate, instead of playing: its folder or its name", metavar="FOLDER"
    )
    save_games: str | None = flag(
        None,
        "new folder for a Minari data set of the games that were played",
        metavar="FOLDER",
        only_with={"games": (None,)},
    )


def check(config: Config) -> None:
    """Checks the flags of `imitate` before any game is played. Raises ConfigError if the experiment would
    resume from checkpoints, if --games or --save_games is set but minari, pyarrow or Pillow is missing, or if
    --save_games exists or its parent folder does not."""
    flags: ImitateFlags = config.extra["imitate"]
    if config.run.restart_behavior == "resume" and find_checkpoints(config.experiment_dir, 0, "latest"):
        raise ConfigError(
            f"{config.run.experiment} has checkpoints already; choose another --experiment, or "
            "--restart_behavior=restart"
        )
    if flags.games is not None:
        check_data_set("games")
    if flags.games is None and flags.save_games is not None:
        check_data_set("save_games", flags.save_games)


def check_data_set(flag: str, new: str | None = None) -> None:
    """Raises ConfigError if minari, pyarrow or Pillow is missing, which read and write data sets, or if the
    folder `new` exists or its parent does not.
    flag: name of the flag that needs the packages, for the message. new: folder to write, the value of the
        flag; None: nothing is written."""
    for package in ("minari", "pyarrow", "PIL"):
        if not is_installed(package):
            raise missing_package(f"--{flag}", package, "record")
    if new is not None:
        folder = Path(new).expanduser().absolute()
        if folder.exists() or not folder.parent.is_dir():
            raise ConfigError(f"--{flag}={new} should be a new folder, in a folder that exists")
