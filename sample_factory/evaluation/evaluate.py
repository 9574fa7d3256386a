"""The command `eval` and the function `sample_factory.evaluate`. Bad flags are reported at once."""

import os
import sys
from typing import Any

from sample_factory.config.command import FILMS, OF_PLAYING_IN_PARALLEL, Command, counts_episodes
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family, resolve_trained_family
from sample_factory.evaluation.policy_choice import LATEST, flags_of_call, measured_policies
from sample_factory.evaluation.result_files import ResultFlags, level_matrix, write_results
from sample_factory.evaluation.results import Evaluation, left_to_measure
from sample_factory.launch.objects_of_call import with_names
from sample_factory.runtime.failures import Failure


def run_eval(config: Config) -> None:
    """Runs the command `eval`: measures checkpoints, prints each result, and writes --json and --csv. If a
    checkpoint fails, the files contain the results of the checkpoints before it, and the failure. Raises
    ConfigError for a missing checkpoint or a file that cannot be written, CheckpointError for an unusable
    checkpoint, Failure if an env or a process fails."""
    # Not at the top of the file: it imports much that --help does not need.
    from sample_factory.evaluation.measurement import measure_checkpoints

    chosen = measured_policies(config)
    evaluations: list[Evaluation] = []
    try:
        for evaluation in measure_checkpoints(config, resolve_family(config.env_name)):
            print(f"{evaluation.first_of(chosen)}: {evaluation.summary()}", flush=True)
            evaluations.append(evaluation)
    except Exception as error:  # whatever an env raises with --serial_mode
        if evaluations:
            left = left_to_measure(chosen, evaluations)
            failed = left[0]
            print(f"INCOMPLETE: {len(chosen) - len(left)} of {len(chosen)} checkpoints; {failed} failed")
            try:
                write_results(config, evaluations, failed, str(Failure.of(error, "")))
            except ConfigError as unwritten:
                print(f"error: {unwritten}", file=sys.stderr)  # `error` has a line of its own
        raise
    matrix = level_matrix(config, evaluations)
    if matrix is not None:
        print("\n".join(matrix.lines()))
    write_results(config, evaluations)


EVAL = Command(
    name="eval",
    experiment="saved",
    description="Plays episodes with one or several checkpoints, in as many envs and processes as the "
    "training has, and reports mean, spread and confidence interval. Ctrl+C prints the results so far.",
    examples="""
    # Measure the latest checkpoint.
    --experiment=basic --eval_episodes=1000
    # Measure the best checkpoint, with all results in files.
    --experiment=basic --checkpoint=best --json=eval.json --csv=eval.csv
    # The most likely actions in place of random ones, in four processes.
    --experiment=basic --eval_deterministic=True --num_workers=4
    """,
    run=run_eval,
    sections={"results": ResultFlags},
    reads=OF_PLAYING_IN_PARALLEL | {"eval_episodes"},
    instead={**counts_episodes("eval_episodes"), **FILMS},
)


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

    For example:

        evaluation = sample_factory.evaluate("cartpole", num_episodes=100, deterministic=True)
        print(evaluation.reward.mean, evaluation.reward.low, evaluation.reward.high)

    The command `eval` does the same. Each env plays a number of episodes that is fixed in advance, so that
    short episodes are not favoured.

    Args:
        experiment: Name of an experiment in `train_dir`, its folder, or the file of a checkpoint in it.
        train_dir: Folder of all experiments; by default ./train_dir.
        num_episodes: Number of episodes in each level, over all envs and agents.
        policy_index: Index of the policy, in an experiment with several; by default 0, or the index in the
            name of the checkpoint file's folder.
        checkpoint: "latest", "best", "milestone:VERSION" or the path of a file, unless `experiment` is one.
        deterministic: Whether to take the most likely action, or the mean of a continuous one, instead of a
            random one.
        flags: Other flags of evaluation, such as `seed`, and flags of the env, which replace the values that
            were used in training.

    Returns:
        An Evaluation, with `episodes`, each with reward, length (in env frames), true_objective and
            extra_stats; with the statistics `reward`, `length` and `true_objective` of all episodes, each
            with mean, std, and the interval from low to high that holds the true mean with 95 % confidence
            (nan below ten episodes); and with `by_level`, an Evaluation for each level.

    Raises:
        ConfigError: There is no such experiment or checkpoint, or a flag is wrong; a subclass of ValueError.
        CheckpointError: The checkpoint cannot be used.
        Failure: An env or a process failed; the message is one line with the reason.
        KeyboardInterrupt: Ctrl+C was pressed before the first episode had ended, or twice. Otherwise Ctrl+C
            returns the episodes so far (`is_partial`), too many of which are short.
    """
    from sample_factory.evaluation.measurement import measure_checkpoints

    keywords = {
        **flags_of_call(experiment, train_dir, policy_index, checkpoint),
        "eval_deterministic": deterministic,
        "eval_episodes": num_episodes,
        **flags,
    }
    config = parse_config([], resolve_trained_family, EVAL, keywords=with_names(keywords))
    family = resolve_family(config.env_name)
    evaluations = list(measure_checkpoints(config, family, keeps_process=True))
    if not evaluations:
        raise KeyboardInterrupt  # it came before the first episode
    return evaluations[0]
