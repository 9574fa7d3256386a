"""Evaluation as a function call: sample_factory.evaluate."""

import os
from typing import Any

from sample_factory.config.experiment_names import find_experiment
from sample_factory.config.flags import ConfigError
from sample_factory.config.keywords import in_words_of_python
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import UnknownEnvError, resolve_family, resolve_trained_family
from sample_factory.evaluation.evaluate import evaluate as evaluate_config
from sample_factory.evaluation.results import Evaluation


def evaluate(
    experiment: str | os.PathLike[str],
    train_dir: str | os.PathLike[str] | None = None,
    *,
    num_episodes: int = 100,
    policy_index: int | None = None,
    checkpoint: str | os.PathLike[str] = "latest",
    deterministic: bool = False,
    **flags: Any,
) -> Evaluation:
    """Plays episodes with a trained policy, and returns their results.

    For example `evaluate("cartpole", num_episodes=100).reward.mean`.

    experiment: name of an experiment in `train_dir` (by default ./train_dir), its folder, or the file of a
        checkpoint in it.
    policy_index: which policy, of an experiment with several; 0 by default.
    checkpoint: "latest", "best", "milestone:VERSION" or the path of a file.
    deterministic: take the most likely action, and the mean of a continuous one, instead of a random one.
    flags: other flags of evaluation, such as `seed`, and of the env, which replace those of the training.

    Returns an Evaluation: episodes (each with reward, length in env frames, and true_objective), and the
    statistics reward, length and true_objective of all of them.

    Raises ConfigError (a ValueError) if there is no such experiment or checkpoint, or a flag is wrong;
    CheckpointError for a checkpoint that cannot be used; and what the env raises.
    """
    try:
        named = find_experiment(experiment, train_dir)
        index = named.policy_index if policy_index is None else policy_index
        keywords = {
            **named.keywords,
            "policy_index": index or 0,
            "checkpoint": str(named.checkpoint or checkpoint),
            "eval_deterministic": deterministic,
            "max_num_episodes": num_episodes,
            "no_render": True,
            **flags,
        }
        config = parse_config([], resolve_trained_family, evaluation=True, keywords=keywords)
        return evaluate_config(config, resolve_family(config.env_name))
    except (ConfigError, UnknownEnvError) as error:
        raise in_words_of_python(error) from None
