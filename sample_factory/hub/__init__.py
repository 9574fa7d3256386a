"""The Hugging Face Hub: the flags of the commands that push an experiment. Imports no torch."""

from dataclasses import dataclass
from typing import Any

from sample_factory.config.flags import flag, parse_bool

# Keywords of add_argument for a flag that may be given without a value.
SWITCH: dict[str, Any] = {"type": parse_bool, "nargs": "?", "const": True, "default": False}


@dataclass(frozen=True)
class RepositoryFlags:
    """Hugging Face Hub."""

    hf_repository: str | None = flag(None, "repository to push to", metavar="USER/NAME", never_foreign=True)
    private_repository: bool = flag(
        False, "make a repository that does not exist yet a private one", only_with={"push_to_hub": (True,)}
    )
    train_script: str | None = flag(
        None,
        "module that the model card names for training; sample_factory.train if left out",
        metavar="MODULE",
        only_with={"push_to_hub": (True,)},
    )
    enjoy_script: str | None = flag(
        None,
        "module that the model card names for watching; sample_factory.enjoy if left out",
        metavar="MODULE",
        only_with={"push_to_hub": (True,)},
    )


@dataclass(frozen=True)
class EnjoyHubFlags(RepositoryFlags):
    """Hugging Face Hub."""

    push_to_hub: bool = flag(
        False, "push the experiment, the results of the episodes and the video to --hf_repository afterwards"
    )


@dataclass(frozen=True)
class PushFlags(RepositoryFlags):
    """Hugging Face Hub."""

    experiment_dir: str | None = flag(
        None, "folder of the experiment, instead of --experiment and --train_dir", metavar="FOLDER"
    )
    with_evaluation: bool = flag(
        True,
        "play --eval_episodes episodes for the model card; False: use the results and the video of the last "
        "push, if they are of the same checkpoint",
    )
    with_video: bool = flag(True, "write a video, and push it")
