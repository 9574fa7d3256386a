"""Evaluation as a function call: sample_factory.evaluate."""

import os
from typing import Any

from sample_factory.config.experiment_folder import find_experiment
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import as_arguments, in_words_of_python, parse_config
from sample_factory.envs.env_registry import UnknownEnvError, resolve_family, resolve_trained_family
from sample_factory.evaluation.parallel import evaluate_in_parallel
from sample_factory.evaluation.policy_choice import LATEST, chosen_policy
from sample_factory.evaluation.results import Evaluation


def evaluate(
    experiment: str | os.PathLike[str],
    train_dir: str | os.PathLike[str] | None = None,
    *,
    num_episodes: int = 100,
    policy_index: int | None = None,
    checkpoint: str | os.PathLike[str] = LATEST,
    deterministic: bool = False,
    **flags: Any,
) -> Evaluation:
    """Plays episodes with a trained policy, in many envs at once, and returns their results.

    For example `evaluate("cartpole", num_episodes=100).reward.mean`. It is the command `eval`: each env plays
    a number of episodes that is fixed in advance, so that short ones do not count more often.

    experiment: name of an experiment in `train_dir` (by default ./train_dir), its folder, or the file of a
        checkpoint in it.
    policy_index: which policy, of an experiment with several; 0 by default, and that of the file's folder.
    checkpoint: "latest", "best", "milestone:VERSION" or the path of a file; not beside a file.
    deterministic: take the most likely action, and the mean of a continuous one, instead of a random one.
    flags: other flags of evaluation, such as `seed`, and of the env, which replace those of the training.

    Returns an Evaluation: `episodes`, each with reward, length (in env frames), true_objective and
    extra_stats; and the statistics `reward`, `length` and `true_objective` of all of them, each with mean,
    std, and the interval from low to high that holds the true mean with 95 % confidence.

    Ctrl+C returns the episodes so far, which are too often short ones (`is_partial`); before the first
    episode, and a second time, it raises KeyboardInterrupt.

    Raises ConfigError (a ValueError) if there is no such experiment or checkpoint, or a flag is wrong;
    CheckpointError for a checkpoint that cannot be used; ChildFailed, with the reason in its first line, if
    an env or a process fails.
    """
    try:
        named = find_experiment(experiment, train_dir)
        choice = chosen_policy(named, policy_index, checkpoint)
        keywords = {
            **named.keywords,
            "policy_index": choice.policy_index,
            "checkpoint": choice.checkpoint,
            "eval_deterministic": deterministic,
            "eval_episodes": num_episodes,
            **flags,
        }
        config = parse_config(as_arguments(keywords), resolve_trained_family, evaluation=True)
        family = resolve_family(config.env_name)
        evaluations = list(evaluate_in_parallel(config, family, keeps_process=True))
    except (ConfigError, UnknownEnvError) as error:
        raise in_words_of_python(error) from None
    if not evaluations:
        raise KeyboardInterrupt  # it came before the first episode
    return evaluations[0]
