"""Evaluates and films an experiment, and pushes it to the Hugging Face Hub."""

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sample_factory.config.config import Config
from sample_factory.config.flags import NEVER, ConfigError
from sample_factory.envs.env_registry import EnvFamily, resolve_family
from sample_factory.evaluation.measure import measure_checkpoints
from sample_factory.evaluation.policy_choice import chosen_policies, find_checkpoint
from sample_factory.evaluation.results import Evaluation
from sample_factory.hub.hub_access import CARD, VIDEO, HubError, prepare_push, upload
from sample_factory.hub.hub_flags import PushFlags
from sample_factory.hub.model_card import write_model_card
from sample_factory.hub.repository_files import (
    newest_video,
    read_results,
    results_of,
    staged,
    write_results,
)
from sample_factory.runtime.failures import one_line

if TYPE_CHECKING:
    from huggingface_hub import HfApi

log = logging.getLogger("sample_factory")

STOPPED = "the evaluation was stopped before its episodes had ended: nothing was pushed"


def push(config: Config) -> str:
    """Evaluates, films and pushes an experiment; returns the address of the repository.

    Raises ConfigError, MissingPackage, HubError, and what an evaluation raises. Results and video stay in the
    folder of the experiment, so that a push that has failed can be repeated without another evaluation.
    """
    flags: PushFlags = config.extra["hub"]
    chosen = chosen_policies(config)
    checkpoints = [find_checkpoint(config, choice) for choice in chosen]
    family = resolve_family(config.env_name)
    api = prepare_push(flags.hf_repository, flags.private_repository)
    if not flags.with_evaluation:
        results = read_results(config.experiment_dir, checkpoints[0])
        if results is None:
            log.warning("The folder has no results of %s: the card has none", checkpoints[0].name)
        video = newest_video(config.experiment_dir) if flags.with_video else None
        return _push(api, config, family, checkpoints[0], results, video)
    evaluations = []
    for evaluation in measure_checkpoints(config, family):
        print(f"{evaluation.choices[0]}: {evaluation.summary()}", flush=True)
        evaluations.append(evaluation)
    if len(evaluations) < len(chosen):
        raise HubError(STOPPED)
    results = _checked_results(config, evaluations, checkpoints)
    video = _film(config, family) if flags.with_video else None
    return _push(api, config, family, checkpoints[0], results, video)


def play_and_push(config: Config, family: EnvFamily) -> Evaluation:
    """Plays as `enjoy` does; then pushes, where --push_to_hub, with the results of these episodes.

    config: may have a section "hub". Raises what `play` and `push` raise.
    """
    from sample_factory.evaluation.play import play

    flags = config.extra.get("hub")
    if flags is None or not flags.push_to_hub:
        if flags is not None and flags.hf_repository is not None:
            raise ConfigError("--hf_repository has no effect without --push_to_hub")
        return play(config, family)
    limits = config.evaluation
    if limits.max_num_episodes == NEVER:
        raise ConfigError("--push_to_hub needs --max_num_episodes=N: the model card has their mean reward")
    checkpoint = find_checkpoint(config, chosen_policies(config)[0])
    api = prepare_push(flags.hf_repository, flags.private_repository)
    evaluation = play(config, family)
    num_episodes = len(evaluation.episodes)
    if num_episodes < limits.max_num_episodes and evaluation.env_frames < limits.max_num_frames:
        raise HubError(STOPPED)
    results = _checked_results(config, [evaluation], [checkpoint])
    print(f"pushed: {_push(api, config, family, checkpoint, results, evaluation.video)}")
    return evaluation


def _checked_results(
    config: Config, evaluations: Sequence[Evaluation], checkpoints: Sequence[Path]
) -> dict[str, Any]:
    """Returns and writes the results. Raises HubError for an evaluation that was stopped.

    checkpoints: the file that each evaluation has played.
    """
    if any(evaluation.is_partial or not evaluation.episodes for evaluation in evaluations):
        raise HubError(STOPPED)
    results = results_of(config, evaluations, checkpoints)
    try:
        write_results(config.experiment_dir, results)
    except OSError as error:
        raise HubError(f"cannot write to {config.experiment_dir}: {error.strerror}") from None
    return results


def _film(config: Config, family: EnvFamily) -> Path | None:
    """Writes a video of whole episodes, at least 10 seconds. Returns None where the env cannot be drawn."""
    from sample_factory.evaluation.play import play

    log.info("Writing a video ...")
    evaluation = dataclasses.replace(
        config.evaluation,
        save_video=True,
        no_render=True,
        video_name=VIDEO,
        max_num_episodes=NEVER,
        max_num_frames=NEVER,
    )
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
    results: dict[str, Any] | None,
    video: Path | None,
) -> str:
    """Pushes; returns the address. checkpoint: that of the card; it is found before it is evaluated, since a
    run that trains meanwhile saves newer ones."""
    repository = config.extra["hub"].hf_repository
    try:
        with staged(config.experiment_dir, results, video) as folder:
            write_model_card(folder / CARD, config, family, checkpoint, results, video is not None)
            return upload(api, repository, folder, f"Push {config.run.experiment}")
    except HubError as error:
        raise HubError(
            f"{error}. Results and video are kept in {config.experiment_dir}; sample_factory.hub.push_to_hub "
            "with --with_evaluation=False pushes them"
        ) from None
    except OSError as error:
        raise HubError(f"cannot use {error.filename}: {error.strerror}") from None
