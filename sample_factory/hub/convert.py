"""Converts an experiment of Sample Factory 1 or 2, with its checkpoints, into one of this version.

python -m sample_factory convert --source=old/train_dir/doom_battle --experiment=doom_battle
"""

from dataclasses import dataclass
from pathlib import Path

from sample_factory.config.command import Command
from sample_factory.config.flags import ConfigError, flag
from sample_factory.config.sections import RunFlags
from sample_factory.hub.load_from_hub import next_commands


@dataclass(frozen=True)
class ConvertFlags:
    """Converting an experiment. Declares the flags of the command `convert`."""

    source: str | None = flag(None, "folder of the old experiment", metavar="FOLDER")
    experiment: str | None = flag(
        None, "name of the new experiment; that of the old folder if left out", metavar="NAME"
    )
    train_dir: str = flag(RunFlags.train_dir, "folder in which it is written", metavar="FOLDER")
    experiments_root: str | None = flag(
        None, "folder within --train_dir for a group of experiments", metavar="FOLDER"
    )
    env: str | None = flag(None, "name of the env here, if it differs, e.g. gym_CartPole-v1", metavar="NAME")
    trust_code: bool = flag(
        False,
        "also import and call code that the settings name, and load checkpoints that hold more than tensors "
        "and numbers; that can run any code of their author",
    )


def convert(flags: ConvertFlags) -> None:
    """Runs the command `convert`: converts an old experiment, and prints commands to use the new one. Raises
    ConfigError or UnknownEnvError if --source is missing or something cannot be converted."""
    if flags.source is None:
        raise ConfigError("the old experiment is missing: --source=FOLDER")
    from sample_factory.hub.convert_experiment import convert_experiment  # loads torch

    source = Path(flags.source).expanduser().absolute()
    destination = RunFlags(
        experiment=flags.experiment or source.name,
        experiments_root=flags.experiments_root,
        train_dir=flags.train_dir,
    )
    folder = convert_experiment(source, destination, flags.env, trust_code=flags.trust_code)
    print("\n".join([f"converted: {folder}", *next_commands(folder)]))


COMMAND = Command(
    name="convert",
    description="Converts an experiment of Sample Factory 1 or 2, with all its policies and checkpoints, into"
    " one of this version, which all commands accept: enjoy, eval, train. The old folder is only read.",
    examples="""
    # As train_dir/doom_battle.
    --source=old/train_dir/doom_battle
    # Under another name.
    --source=old/train_dir/doom_battle --experiment=from_v1
    # An env that has another name here.
    --source=old/cartpole --env=gym_CartPole-v1
    """,
    run=convert,
    sections={"convert": ConvertFlags},
)
