"""Pushes an experiment to the Hugging Face Hub, with a model card, the results of an evaluation and a video.

python -m sample_factory push_to_hub --experiment=my_experiment --hf_repository=user/name
"""

import contextlib
import dataclasses
import fnmatch
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sample_factory.checkpoints.milestones import (
    DONATION,
    PREFIXES,
    SNAPSHOT,
    find_checkpoints,
    version_of,
)
from sample_factory.config.command import OF_PLAYING_IN_PARALLEL, Command, counts_episodes
from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import SAVED_NAMES, read_json, write_atomically
from sample_factory.config.flag_parser import add_flags, make_parser, parse_known
from sample_factory.config.flags import NEVER, ConfigError
from sample_factory.config.trust import SIGNATURE
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_registry import resolve_family, resolve_trained_family
from sample_factory.evaluation.measurement import measure_checkpoints
from sample_factory.evaluation.policy_choice import PolicyChoice, chosen_policies, find_checkpoint
from sample_factory.evaluation.result_files import finite, result_figures
from sample_factory.evaluation.results import Evaluation, left_to_measure
from sample_factory.hub import PushFlags
from sample_factory.hub.hub_access import CARD, RESULTS, VIDEO, HubError, prepare_push, upload
from sample_factory.hub.model_card import model_card, results_section
from sample_factory.launch.command_line import run
from sample_factory.launch.exit_codes import run_command
from sample_factory.runtime.failures import one_line
from sample_factory.runtime.folder_lock import NAME as LOCK
from sample_factory.runtime.log import log

if TYPE_CHECKING:
    from huggingface_hub import HfApi

STAGING = ".push_to_hub"
VIDEO_SUM = "video_sha256"  # in evaluation.json
WRITTEN = (CARD, RESULTS, "*.mp4")  # by the push itself
# Without a meaning on another machine, or unfinished.
LOCAL = (LOCK, f"{STAGING}*", ".git*", ".cache/*", "wandb/*", f"*{SNAPSHOT}", f"*/{DONATION}")
LEFT_OUT = (*WRITTEN, *LOCAL, "*.tmp", "*/.temp_checkpoint", "*/superseded/*")
NEVER_CHANGED = (".pth", ".milestone", ".mp4")  # endings of files that are written once
# With the numbers that the card has: SGD steps and env frames.
CHECKPOINT_NAME = re.compile(r"(checkpoint|best)_\d+_\d+([._].*)?\.pth(\.milestone)?")


def push(config: Config) -> str:
    """Evaluates, films and pushes an experiment; returns the URL of the repository. Results and video stay in
    the folder of the experiment, so that a push that has failed can be repeated without another evaluation.
    Raises ConfigError for wrong flags, MissingPackage without huggingface_hub, HubError if the Hub refuses or
    the evaluation was stopped, CheckpointError for an unusable checkpoint, and Failure when an env or a
    process fails."""
    flags: PushFlags = config.extra["hub"]
    chosen = chosen_policies(config)
    files = [_find_pushed(config, choice) for choice in chosen]
    family = resolve_family(config.env_name)
    api = prepare_push(flags.hf_repository, flags.private_repository)
    if flags.with_evaluation:
        evaluations, played = [], []
        for evaluation in measure_checkpoints(config, family):
            print(f"{evaluation.first_of(chosen)}: {evaluation.summary()}", flush=True)
            evaluations.append(evaluation)
            played.append(_file_played(config, evaluation, evaluation.first_of(chosen)))
        whole = [] if left_to_measure(chosen, evaluations) else evaluations
        results = _save_results(config, whole, played)
        video = _film(config, family, evaluations[0]) if flags.with_video else None
        if video is not None:
            results = _save_results(config, whole, played, video)
        return _push(api, config, family, played[0], results, video)
    checkpoint = files[0]
    kept = _kept_results(config, checkpoint)
    video = _find_video(config, kept) if flags.with_video else None
    if flags.with_video and kept is not None and video is None:
        log.warning("The folder has no video of these results: the repository has none")
    return _push(api, config, family, checkpoint, kept, video)


def run_enjoy(config: Config) -> None:
    """Runs the command `enjoy`: plays, and pushes with --push_to_hub. Raises ConfigError for wrong flags,
    HubError if the push fails, CheckpointError for an unusable checkpoint, VideoError for a video that cannot
    be written, and any exception of the env."""
    play_and_push(config)


def play_and_push(config: Config) -> Evaluation:
    """Plays as `enjoy` does and returns the results; with --push_to_hub, also pushes the experiment with
    these results.
    config: may have a section "hub". Raises ConfigError for wrong flags, HubError if the push fails,
        CheckpointError for an unusable checkpoint, VideoError for a video that cannot be written, and any
        exception of the env."""
    from sample_factory.evaluation.enjoy import play

    family = resolve_trained_family(config.env_name)
    flags = config.extra.get("hub")
    if flags is None or not flags.push_to_hub:
        if flags is not None and flags.hf_repository is not None:  # before the games are played
            raise ConfigError("--hf_repository has no effect without --push_to_hub")
        return play(config, family)
    limits = config.evaluation
    if limits.max_num_episodes == NEVER:
        raise ConfigError("--push_to_hub needs --max_num_episodes=N: the model card has their mean reward")
    chosen = chosen_policies(config)
    _find_pushed(config, chosen[0])  # raises, before the games are played
    api = prepare_push(flags.hf_repository, flags.private_repository)
    evaluation = play(config, family)
    checkpoint = _file_played(config, evaluation, evaluation.first_of(chosen))
    num_episodes = len(evaluation.episodes)
    is_whole = num_episodes >= limits.max_num_episodes or evaluation.env_frames >= limits.max_num_frames
    results = _save_results(config, [evaluation] if is_whole else [], [checkpoint], evaluation.video)
    print(f"pushed: {_push(api, config, family, checkpoint, results, evaluation.video)}")
    return evaluation


def _find_pushed(config: Config, choice: PolicyChoice) -> Path:
    """Returns the file of a checkpoint, with links resolved. Raises ConfigError unless a push includes the
    file, and its name contains the version and env frames, which the card needs."""
    found, folder = find_checkpoint(config, choice).resolve(), config.experiment_dir.resolve()
    if not found.is_relative_to(folder):
        reason = f"{found} is outside the experiment, so the repository would not have it"
    elif _is_left_out(found.relative_to(folder).as_posix()):
        reason = f"{found} is one of the files that a push leaves out"
    elif CHECKPOINT_NAME.fullmatch(found.name) is None:
        reason = f"the name {found.name} does not have the SGD steps and env frames, which the card needs"
    else:
        return found
    raise ConfigError(
        f"--checkpoint={choice.checkpoint}: {reason}; a push takes a checkpoint in {config.experiment_dir} "
        "with the name that the training gave it, such as checkpoint_p0/checkpoint_000001000_64000.pth"
    )


def _file_played(config: Config, evaluation: Evaluation, choice: PolicyChoice) -> Path:
    """Returns the checkpoint file with which a policy has played; not always the newest file, which may be
    damaged or was saved meanwhile. Raises HubError if the file was deleted, and ConfigError if a push would
    leave it out or its name lacks the version and env frames."""
    if choice.checkpoint not in PREFIXES:
        return _find_pushed(config, choice)
    version = evaluation.versions[evaluation.choices.index(choice)]
    for path in find_checkpoints(config.experiment_dir, choice.policy_index, choice.checkpoint):
        if version_of(path) == version:
            return _find_pushed(config, PolicyChoice(choice.policy_index, str(path)))
    raise HubError(
        f"the file of {choice} with {version:,} SGD steps, which was played, has been deleted since, by a "
        "training or by hand: nothing was pushed; --save_milestones_sec keeps checkpoints"
    )


def _name_in(config: Config, checkpoint: Path) -> str:
    """Returns the path of a checkpoint relative to the experiment's folder. Unlike the file name, the path
    differs between policies."""
    return checkpoint.relative_to(config.experiment_dir.resolve()).as_posix()


def _save_results(
    config: Config, evaluations: Sequence[Evaluation], checkpoints: Sequence[Path], video: Path | None = None
) -> dict[str, Any]:
    """Writes evaluation.json and returns its contents: the contents of a --json file, the paths of the
    checkpoints in the folder, and the SHA-256 of the video.

    evaluations: all evaluations of the push; empty if the command was stopped before each had begun.
    checkpoints: file that each evaluation has played. video: video of these checkpoints.
    Raises HubError unless all evaluations have ended, and if the file cannot be written.
    """
    if not evaluations or any(one.is_partial or not one.episodes for one in evaluations):
        raise HubError("the evaluation was stopped before its episodes had ended: nothing was pushed")
    names = [_name_in(config, path) for path in checkpoints]
    own = {"experiment": config.run.experiment, "checkpoints": names}
    results: dict[str, Any] = finite({**result_figures(config, evaluations), **own})
    try:
        results[VIDEO_SUM] = None if video is None else _sha256(video)
        text = json.dumps(results, indent=4, allow_nan=False)
        write_atomically(config.experiment_dir / RESULTS, text + "\n")
    except OSError as error:
        raise HubError(f"cannot write to {config.experiment_dir}: {error.strerror}") from None
    return results


def _kept_results(config: Config, checkpoint: Path) -> dict[str, Any] | None:
    """Returns the contents of evaluation.json if the last push has measured this checkpoint; otherwise logs a
    warning and returns None. Raises ConfigError for a file of another form."""
    path = config.experiment_dir / RESULTS
    kept = read_json(path) if path.exists() else None
    try:
        is_of_checkpoint = kept is not None and kept["checkpoints"][0] == _name_in(config, checkpoint)
        results_section(kept if is_of_checkpoint else None)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise ConfigError(
            f"{path} does not have the form that an evaluation writes; delete it, or leave out "
            "--with_evaluation=False"
        ) from None
    if not is_of_checkpoint:
        log.warning("The folder has no results of %s: the card has none", checkpoint.name)
        return None
    return kept


def _find_video(config: Config, results: Mapping[str, Any] | None) -> Path | None:
    """Returns the video in the experiment's folder whose SHA-256 is in `results`; None if there is none. The
    name does not identify a video, since `enjoy` may have written videos of other checkpoints under any name.
    results: contents of evaluation.json. Raises HubError for a video that cannot be read."""
    if results is None or results.get(VIDEO_SUM) is None:
        return None
    videos = [path for path in config.experiment_dir.glob("*.mp4") if path.is_file()]
    try:
        return next((path for path in videos if _sha256(path) == results[VIDEO_SUM]), None)
    except OSError as error:
        raise HubError(f"cannot use {error.filename}: {error.strerror}") from None


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _film(config: Config, family: EnvFamily, measured: Evaluation) -> Path | None:
    """Writes a video of whole episodes, at least 10 seconds, with the checkpoint files that were measured.
    Returns its path; None if the env cannot be drawn, which is logged."""
    from sample_factory.evaluation.enjoy import play

    log.info("Writing a video ...")
    endless = {"max_num_episodes": NEVER, "max_num_frames": NEVER}
    filming: dict[str, Any] = {"save_video": True, "no_render": True, "video_name": VIDEO, **endless}
    policies = tuple(choice.policy_index for choice in measured.choices)
    files = tuple(str(_file_played(config, measured, choice)) for choice in measured.choices)
    evaluation = dataclasses.replace(config.evaluation, **filming, policy_index=policies, checkpoint=files)
    try:
        return play(dataclasses.replace(config, evaluation=evaluation), family).video
    except Exception as error:  # whatever an env raises that cannot be drawn here
        log.warning("There is no video: %s", one_line(error))
        return None


def _push(
    api: "HfApi",
    config: Config,
    family: EnvFamily,
    checkpoint: Path,
    results: Mapping[str, Any] | None,
    video: Path | None,
) -> str:
    """Uploads the experiment with a model card; returns the URL of the repository.

    checkpoint: file that the card describes. The caller chooses it before the evaluation, since a run that
        trains meanwhile saves newer ones.
    results: contents of evaluation.json; None without results.
    video: file to upload as replay.mp4; None without a video.
    """
    extra = {} if results is None else {RESULTS: config.experiment_dir / RESULTS}
    if video is not None:
        extra[VIDEO] = video
    try:
        with staged(config.experiment_dir, extra) as folder:
            (folder / CARD).write_text(model_card(config, family, checkpoint, results, video is not None))
            return upload(api, config.extra["hub"].hf_repository, folder, f"Push {config.run.experiment}")
    except HubError as error:
        raise HubError(
            f"{error}. Results and video are kept in {config.experiment_dir}; "
            "python -m sample_factory push_to_hub with --with_evaluation=False pushes them"
        ) from None
    except OSError as error:
        raise HubError(f"cannot use {error.filename}: {error.strerror}") from None


@contextlib.contextmanager
def staged(experiment_dir: Path, extra: Mapping[str, Path]) -> Iterator[Path]:
    """Yields a temporary folder with the files of an experiment that belong into a repository. They stay
    unchanged while a run trains on. The folder is deleted afterwards.
    extra: name in the folder -> a further file to copy. Raises OSError if a file cannot be copied."""
    folder = experiment_dir / f"{STAGING}.{os.getpid()}"
    try:
        folder.mkdir()
        for path in sorted(experiment_dir.rglob("*")):
            name = path.relative_to(experiment_dir).as_posix()
            if path.is_file() and not path.is_symlink() and not _is_left_out(name):
                with contextlib.suppress(FileNotFoundError):  # the run has replaced it since
                    _copy(path, folder / name)
        for name, path in extra.items():
            _copy(path, folder / name)
        settings = folder / SAVED_NAMES[0]
        if settings.exists():  # with its signature, a folder of somebody else could pass for one's own
            values = {key: value for key, value in read_json(settings).items() if key != SIGNATURE}
            settings.write_text(json.dumps(values, indent=4) + "\n")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_left_out(name: str) -> bool:
    """Returns whether a push leaves out the file with this path, relative to the experiment's folder."""
    return any(fnmatch.fnmatch(name, mask) for mask in LEFT_OUT)


def _copy(source: Path, target: Path) -> None:
    """Hard-links checkpoints and videos, which never change, and copies all other files."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix in NEVER_CHANGED:
        with contextlib.suppress(OSError):
            os.link(source, target)
            return
    shutil.copyfile(source, target)


def run_push(config: Config) -> None:
    """Runs the command `push_to_hub`: pushes an experiment, and prints the URL. Raises ConfigError for wrong
    flags, HubError if the Hub refuses or the evaluation was stopped, CheckpointError for an unusable
    checkpoint, and Failure when an env or a process fails."""
    print(f"pushed: {push(config)}")


COMMAND = Command(
    name="push_to_hub",
    experiment="saved",
    description="Plays episodes, writes a video, and pushes both with a model card and all files of the "
    "experiment. Needs a token: log in with `hf auth login`, or set HF_TOKEN.",
    examples="""
    # Measure over 50 episodes, and push.
    --experiment=basic --hf_repository=me/basic --eval_episodes=50
    # The best checkpoint, into a private repository.
    --experiment=basic --hf_repository=me/basic --checkpoint=best --private_repository
    # Push once more without playing.
    --experiment=basic --hf_repository=me/basic --with_evaluation=False
    """,
    run=run_push,
    sections={"hub": PushFlags},
    reads=OF_PLAYING_IN_PARALLEL
    | {"eval_episodes", "fps", "overlay", "video_frames", "render_action_repeat"},
    instead=counts_episodes("eval_episodes"),
)


def main(argv: Sequence[str] | None = None, env: Callable[..., Any] | None = None) -> int:
    """Runs the command `push_to_hub`. Returns the exit code: 0 done, 1 if the Hub, an env or a process
    failed, 2 for bad input. argv: the arguments; None: the arguments of this process. env: a class or
    function that makes the env, in place of --env."""
    return run_command(_run, argv, env)


def _run(words: Sequence[str]) -> int:
    """Runs the command `push_to_hub` with the arguments `words`, and returns its exit code; --experiment_dir
    replaces --experiment and --train_dir."""
    parser = make_parser()
    add_flags(parser, PushFlags)
    folder = vars(parse_known(parser, words)[0]).get("experiment_dir")
    if folder is not None:
        path = Path(folder).expanduser().absolute()
        words = [*words, f"--experiment={path.name}", f"--train_dir={path.parent}"]
    return run(COMMAND, words)


if __name__ == "__main__":
    sys.exit(main())
