"""Searches flags: python -m sample_factory.runner.search --run=my_package.my_search"""

import sys
from collections.abc import Sequence

from sample_factory.config.commands import SEARCH
from sample_factory.launch.exit_codes import FAILED, INTERRUPTED, run_command
from sample_factory.runner.grid import Grid
from sample_factory.runner.run import open_backend, parse_arguments
from sample_factory.runner.run_job import FOLDER
from sample_factory.runner.search_description import VARIABLE, load_search


def run_search(argv: Sequence[str]) -> int:
    """Runs the search that the arguments describe; returns the exit code."""
    arguments = parse_arguments(argv, SEARCH, VARIABLE)
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise ImportError(f"a search needs Optuna ({error}): pip install -e '.[search]'") from None
    from sample_factory.runner.search_results import complete_trials, write_results
    from sample_factory.runner.search_trials import Search, open_study

    description = load_search(arguments.run)
    train_dir = arguments.train_dir.expanduser().absolute()
    folder = train_dir / description.search_name
    with open_backend(arguments, folder) as backend:
        study = open_study(description, folder)
        grid = Grid([], backend, arguments.pause_between)
        search = Search(description, study, train_dir, grid, arguments.max_parallel)
        ended = sum(trial.state.is_finished() for trial in study.trials)
        before = f" ({ended} have ended in an earlier start)" if ended else ""
        grid.board.print(
            f"{description.num_trials} trials{before} in {folder}; their output: {folder / FOLDER}/*.log"
        )
        has_ended = search.run()
        grid.board.print(grid.board.counts())
    print("\n".join(write_results(study, description, train_dir)), flush=True)
    if not has_ended:
        print("stopped; the same command continues", flush=True)
        return INTERRUPTED
    if not complete_trials(study):
        print("no trial is complete; with a larger num_trials, others follow", file=sys.stderr)
        return FAILED
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done, 1 no trial is complete, 2 bad input, 130 stopped."""
    return run_command(run_search, argv)


if __name__ == "__main__":
    sys.exit(main())
