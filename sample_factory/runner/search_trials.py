"""Runs the trials of a search: Optuna proposes their flags, a Grid runs them, a pruner ends hopeless ones."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from sample_factory.config.flags import ConfigError
from sample_factory.plotting.metrics import read_experiment
from sample_factory.runner.grid import FRAMES, Grid, Row
from sample_factory.runner.run_job import FAILED, FINISHED
from sample_factory.runner.search_description import NOTE, VALUES, SearchDescription, short
from sample_factory.runtime.failures import CommandFailed, one_line
from sample_factory.runtime.safe_files import open_file

JOURNAL = "journal.log"
OBJECTIVE = "objective"  # user attribute of the study


def open_study(description: SearchDescription, folder: Path) -> optuna.Study:
    """Opens or creates the Optuna study of a search, which is stored in a journal in `folder`.

    No other process may use the journal. Raises ConfigError if the journal cannot be read, or belongs to a
    search with another objective.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path = folder / JOURNAL
    # What a killed search has left: its lock, and a line that was not written to its end.
    Path(f"{path}.lock").unlink(missing_ok=True)
    if path.is_symlink():
        raise ConfigError(f"{path} is a link: another file would be changed. Replace it by a copy")
    try:
        if path.exists():
            with open_file(path, "rb+") as journal:
                journal.truncate(journal.read().rfind(b"\n") + 1)
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(JournalFileBackend(str(path))),
            study_name=description.search_name,
            direction="maximize",
            load_if_exists=True,
            pruner=description.pruner or optuna.pruners.MedianPruner(),
        )
    except Exception as error:  # whatever a damaged journal makes Optuna raise
        raise ConfigError(f"{path} cannot be read as Optuna's journal: {one_line(error)}") from None
    # With the number of trials, a second start does not draw those of the first one again.
    study.sampler = description.sampler or optuna.samplers.TPESampler(seed=len(study.trials))
    before = study.user_attrs.get(OBJECTIVE, description.objective)
    if before != description.objective:
        raise ConfigError(
            f"{folder} has a search with {json.dumps(before)}, which its description has changed to "
            f"{json.dumps(description.objective)}; give it another search_name"
        )
    study.set_user_attr(OBJECTIVE, description.objective)
    for params in description.first:
        study.enqueue_trial(dict(params), skip_if_exists=True)
    return study


class Search:
    """Searches for the flags with the best score. Each trial is one proposal of Optuna: values of flags, with
    which a Grid trains in every env of the search, with one seed after another.

    Reports each trial's scores to Optuna while it runs. The trial ends when Optuna prunes it, when one of its
    runs fails, or when all have finished.
    """

    def __init__(
        self,
        description: SearchDescription,
        study: optuna.Study,
        train_dir: Path,
        grid: Grid,
        max_parallel: int,
    ):
        """Prepares to continue the open trials of the study, and to propose the trials that are still
        missing.

        grid: runs the jobs of the trials.
        max_parallel: new trials are proposed while fewer runs than this are unfinished.
        """
        self._description = description
        self._study = study
        self._train_dir = train_dir
        self._grid = grid
        self._max_parallel = max_parallel
        self._trials: list[Iterator[Sequence[Row]]] = []  # from `_play`; an ended trial yields no more
        self._num_open = 0  # trials that have not ended
        self._interrupted = study.get_trials(states=[TrialState.RUNNING])
        # Not those that have failed in an earlier start: others take their places.
        counted = (TrialState.RUNNING, TrialState.COMPLETE, TrialState.PRUNED)
        self._num_left = description.num_trials - len(study.get_trials(states=counted))

    def run(self) -> bool:
        """Runs the trials to their end. Returns False if a signal stopped the search or one of its runs."""
        return self._grid.run((), self._next_rows) and self._num_open == 0

    def _next_rows(self) -> list[Row]:
        """Advances the open trials, and proposes new ones while there is room; returns the runs to start."""
        rows = [row for trial in self._trials for row in next(trial, ())]
        while self._grid.num_unfinished + len(rows) < self._max_parallel:
            if self._interrupted:
                # Optuna has no public way to continue a trial. What has been drawn for it stays the same.
                proposed = optuna.Trial(self._study, self._interrupted.pop(0)._trial_id)
            elif self._num_left > 0:
                self._num_left -= 1
                proposed = self._study.ask()
            else:
                break
            self._trials.append(self._play(proposed))
            self._num_open += 1
            rows += next(self._trials[-1], ())
        return rows

    def _play(self, trial: optuna.Trial) -> Iterator[Sequence[Row]]:
        """Runs a trial to its end, then cancels the trial's unfinished runs. A generator, advanced every
        POLL_SECONDS: yields the rows to start now, often none."""
        d = self._description
        try:
            jobs = d.rounds(trial.number, d.space(trial), self._train_dir)
        except Exception as error:  # of the user's code, or of Optuna about the user's values
            self._end(trial, TrialState.FAIL, f"space: {one_line(error)}")
            return
        rounds = [list(map(Row, of_round)) for of_round in jobs]
        try:
            yield from self._judge(trial, rounds)
        except CommandFailed as error:
            self._end(trial, TrialState.FAIL, str(error))
        self._grid.cancel([row for rows in rounds for row in rows])

    def _judge(self, trial: optuna.Trial, rounds: Sequence[Sequence[Row]]) -> Iterator[Sequence[Row]]:
        """Starts the runs of one seed after another, reports the scores to Optuna, and ends the trial after
        the last seed or when Optuna prunes it.

        A generator: yields the rows to start now, an empty sequence while the trial waits for its runs.

        rounds: for each seed, a row for each env. Raises CommandFailed if a run has failed.
        """
        d = self._description
        values: dict[str, list[Any]] = {env: [] for env in d.envs}
        for index, rows in enumerate(rounds):
            yield rows
            before = values  # at the ends of the rounds before
            for point in range(1, d.num_reports + 1):
                while None in (reached := [self._value(row, point) for row in rows]):
                    yield ()
                values = {env: [*before[env], value] for env, value in zip(d.envs, reached)}
                score = fmean(d.score(env, value) for env in values for value in values[env])
                num_reports = index * d.num_reports + point
                if num_reports == len(rounds) * d.num_reports:
                    break
                # Optuna's step: the frames (or seconds) in each env, of all seeds so far.
                step = d.budget * num_reports // d.num_reports
                if step not in self._study.get_trials(deepcopy=False)[trial.number].intermediate_values:
                    trial.report(score, step)
                if trial.should_prune():
                    self._end(trial, TrialState.PRUNED, f"score {score:.3f} after {step:,} {d.unit}")
                    return
        trial.set_user_attr(VALUES, values)
        self._end(trial, TrialState.COMPLETE, "", score)

    def _value(self, row: Row, point: int) -> float | None:
        """Returns what SearchDescription.tag names, in a run at a point: the first value at or after the
        point, or the last value of a finished run; None if the run has not reached the point yet.

        point: 1 to num_reports; the points divide the run into equal parts.
        Raises CommandFailed if the run has failed, or has finished without a value of the tag.
        """
        d = self._description
        job = row.job
        if row.state == FAILED:
            raise CommandFailed(f"{job.name}: {row.note}; {job.last_line()}")
        length = d.budget * point / d.num_reports
        progress = row.figures[FRAMES] if d.frames else row.seconds  # its seconds begin before the training
        if row.state != FINISHED and (point == d.num_reports or progress < length):
            return None
        try:
            curve = read_experiment(job.folder, [d.tag], 0).curves[d.tag]
        except ConfigError as error:
            if row.state == FINISHED:
                raise CommandFailed(f"{job.name}: {error}") from None
            return None
        index = int((curve.steps if d.frames else curve.seconds).searchsorted(length))
        if index < len(curve.values) or row.state == FINISHED:
            return float(curve.values[min(index, len(curve.values) - 1)])
        return None

    def _end(self, trial: optuna.Trial, state: TrialState, note: str, score: float | None = None) -> None:
        """Reports to Optuna that a trial has ended, and prints a line about the trial.
        note: why the trial was pruned or has failed. score: score of a complete trial, otherwise None."""
        self._num_open -= 1
        trial.set_user_attr(NOTE, note)
        self._study.tell(trial, score, state)
        if score is not None:
            is_best = self._study.best_trial.number == trial.number
            note = f"score {score:.3f}{', the best so far' if is_best else ''}"
        params = ", ".join(f"{name}={short(value)}" for name, value in trial.params.items())
        self._grid.board.print(f"trial {trial.number} {state.name.lower()}: {note} ({params})")
