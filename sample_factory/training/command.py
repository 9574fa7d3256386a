"""The command `train`."""

from sample_factory.config.command import TRAIN
from sample_factory.config.config import Config
from sample_factory.launch.exit_codes import DONE, FAILED
from sample_factory.launch.shared_imports import shared_imports


def train(config: Config) -> int:
    """Trains as the flags in `config` say; returns the exit code of the command `train`: 1 if the training
    failed, otherwise 0, also if a signal stopped it."""
    with shared_imports(config):
        from sample_factory.training.run import train_config  # imports much, meanwhile

        return FAILED if train_config(config).status == "failed" else DONE


COMMAND = TRAIN._replace(run=train)
