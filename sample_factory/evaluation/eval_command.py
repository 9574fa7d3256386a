"""The command `eval`: its flags, what it prints, and its files. Imports no torch."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from sample_factory.config.commands import EVAL
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError, flag
from sample_factory.config.parsing import parse_config
from sample_factory.evaluation.results import (
    Evaluation,
    FailedEvaluation,
    JsonFlags,
    ResultFiles,
    result_figures,
)
from sample_factory.launch.exit_codes import describe
from sample_factory.runtime.failures import ChildFailed, describe_exception


@dataclass(frozen=True)
class EvalFlags(JsonFlags):
    """Files for the results."""

    csv: str | None = flag(None, "file for a table with a row for each episode", metavar="FILE")


def parse_arguments(argv: Sequence[str]) -> Config:
    """Raises ConfigError and UnknownEnvError. Prints the help and exits with 0 on --help."""
    from sample_factory.envs.env_registry import resolve_trained_family

    own = {"results": EvalFlags}
    return parse_config(argv, resolve_trained_family, evaluation=True, extra_sections=own, command=EVAL)


def run_eval(config: Config) -> list[Evaluation]:
    """Evaluates, prints each result when it is complete, and writes the files.

    When a later evaluation fails, the files have the results of those before it, and say so.

    Raises ConfigError for a missing checkpoint or a file that cannot be written, CheckpointError for an
    unusable checkpoint, ChildFailed for an env or a process that fails.
    """
    from sample_factory.envs.env_registry import resolve_family
    from sample_factory.evaluation.parallel import chosen_policies, evaluate_in_parallel

    flags: EvalFlags = config.extra["results"]
    files = ResultFiles(flags.json, flags.csv)
    files.check()
    evaluations: list[Evaluation] = []
    try:
        for evaluation in evaluate_in_parallel(config, resolve_family(config.env_name)):
            print(f"{evaluation.choices[0]}: {evaluation.summary()}", flush=True)
            evaluations.append(evaluation)
    except Exception as error:  # whatever an env raises with --serial_mode
        if evaluations:
            chosen = chosen_policies(config)
            failed = FailedEvaluation(chosen[len(evaluations)], _reason(error, config))
            print(f"INCOMPLETE: {len(evaluations)} of {len(chosen)} checkpoints; {failed.choice} failed")
            try:
                _write(files, config, evaluations, failed)
            except ConfigError as unwritten:
                print(f"error: {unwritten}", file=sys.stderr)  # `error` has a line of its own
        raise
    _write(files, config, evaluations)
    return evaluations


def _reason(error: Exception, config: Config) -> str:
    """Returns why an evaluation failed, in one line."""
    if isinstance(error, ChildFailed):
        return describe(error, config.env_name)
    return describe_exception(error).error


def _write(
    files: ResultFiles,
    config: Config,
    evaluations: Sequence[Evaluation],
    failed: FailedEvaluation | None = None,
) -> None:
    rows = [row for evaluation in evaluations for row in evaluation.rows()]
    if failed is not None:
        rows.append(failed.row())
    files.write(result_figures(config, evaluations, failed), rows)
