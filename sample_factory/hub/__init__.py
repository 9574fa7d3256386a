"""The Hugging Face Hub: the flags of the commands that push an experiment, and `enjoy`. Imports no torch."""

from dataclasses import dataclass

from sample_factory.config.command import OF_CHOICE, OF_PLAYING, Command
from sample_factory.config.flags import flag
from sample_factory.config.monitoring_flags import EvaluationFlags
from sample_factory.config.sections import flags_of
from sample_factory.evaluation.result_files import ResultFlags


@dataclass(frozen=True)
class RepositoryFlags:
    """Hugging Face Hub. Declares the flags of all commands that push to a repository."""

    hf_repository: str | None = flag(None, "repository to push to", metavar="USER/NAME")
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
    """Hugging Face Hub. Declares the flags with which `enjoy` pushes to a repository."""

    push_to_hub: bool = flag(
        False, "push the experiment, the results of the episodes and the video to --hf_repository afterwards"
    )


@dataclass(frozen=True)
class PushFlags(RepositoryFlags):
    """Hugging Face Hub. Declares the flags that only the command `push_to_hub` has."""

    hf_repository: str | None = flag(None, "repository to push to", metavar="USER/NAME", aliases=("-r",))
    experiment_dir: str | None = flag(
        None,
        "folder of the experiment, instead of --experiment and --train_dir",
        metavar="FOLDER",
        aliases=("-d",),
    )
    with_evaluation: bool = flag(
        True,
        "play --eval_episodes episodes for the model card; False: use the results and the video of the last "
        "push, if they are of the same checkpoint",
    )
    with_video: bool = flag(True, "write a video, and push it")


ENJOY = Command(
    name="enjoy",
    experiment="saved",
    description="Shows a trained policy in a window and prints its scores, also while the training runs.",
    examples="""
    # Watch the latest checkpoint in a window.
    --experiment=basic
    # Write a video of three episodes; needs no display.
    --experiment=basic --no_render --save_video --max_num_episodes=3
    # Measure the best checkpoint over 100 episodes.
    --experiment=basic --no_render --load_checkpoint_kind=best --max_num_episodes=100
    """,
    run="sample_factory.hub.push_to_hub:run_enjoy",
    sections={"results": ResultFlags, "hub": EnjoyHubFlags},
    reads=OF_PLAYING | OF_CHOICE | flags_of(EvaluationFlags) | {"device"},
    instead={"eval_episodes": "write --max_num_episodes=N"},
)
