"""The command `eval`: its flags, what it prints, and its files. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from sample_factory.config.commands import EVAL
from sample_factory.config.config import Config
from sample_factory.config.flags import flag
from sample_factory.config.parsing import parse_config
from sample_factory.evaluation.results import Evaluation, JsonFlags, ResultFiles, result_figures


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
    """Evaluates, prints the results and writes the files.

    Raises ConfigError for a missing checkpoint or a file that cannot be written, and
    ChildFailed for an unusable one, and for an env or a process that fails.
    """
    from sample_factory.envs.env_registry import resolve_family
    from sample_factory.evaluation.parallel import evaluate_in_parallel

    flags: EvalFlags = config.extra["results"]
    files = ResultFiles(flags.json, flags.csv)
    files.check()
    evaluations = evaluate_in_parallel(config, resolve_family(config.env_name))
    for evaluation in evaluations:
        print(f"{evaluation.choices[0]}: {evaluation.summary()}", flush=True)
    rows = [row for evaluation in evaluations for row in evaluation.rows()]
    files.write(result_figures(config, evaluations), rows)
    return evaluations
