"""The trials of a search: Optuna proposes their flags, a Grid runs them, a pruner ends those without hope."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from sample_factory.config.flags import ConfigError
from sample_factory.plotting.read_summaries import read_experiment
from sample_factory.runner.grid import FRAMES, Grid, Row
from sample_factory.runner.run_job import FAILED, FINISHED, Job
from sample_factory.runner.search_description import SearchDescription
from sample_factory.runtime.failures import CommandFailed, one_line

JOURNAL = "journal.log"
# User attributes of trials and of the study.
NOTE = "note"
VALUES = "values"  # of the tag: env -> one for each seed
OBJECTIVE = "objective"
# How a trial has ended.
WORDS = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}


def short(value: Any) -> str:
    """Returns a value of a parameter for people: four digits of a float."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def open_study(description: SearchDescription, folder: Path) -> optuna.Study:
    """Opens the journal of a search, or begins it. No other process may write to it.

    Raises ConfigError if it belongs to a search with another objective.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path = folder / JOURNAL
    # What a killed search has left: its lock, and a line that was not written to its end.
    Path(f"{path}.lock").unlink(missing_ok=True)
    if path.exists():
        content = path.read_bytes()
        path.write_bytes(content[: content.rfind(b"\n") + 1])
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(JournalFileBackend(str(path))),
        study_name=description.search_name,
        direction="maximize",
        load_if_exists=True,
        pruner=description.pruner or optuna.pruners.MedianPruner(),
    )
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


class OpenTrial:
    """A trial that has not ended.

    rounds: its runs, for each seed one in each env. reported: steps that an earlier start has reported.
    round, point: index of the present round, and of its next report. values: of the tag at the ends of the
    rounds before, by env.
    """

    def __init__(self, trial: optuna.Trial, rounds: Sequence[Sequence[Job]], reported: set[int]):
        self.trial = trial
        self.rounds = rounds
        self.reported = reported
        self.round = 0
        self.point = 0
        self.values: dict[str, list[float]] = {}

    @property
    def jobs(self) -> Sequence[Job]:
        """The runs of the present round."""
        return self.rounds[self.round]


class Search:
    """Proposes trials, gives their runs to a grid, and ends each trial by what its runs have reached.

    A step of a trial, as Optuna calls it, is the number of frames (or seconds) in one env, over all seeds.
    """

    def __init__(
        self,
        description: SearchDescription,
        study: optuna.Study,
        train_dir: Path,
        grid: Grid,
        max_parallel: int,
    ):
        """max_parallel: a trial is proposed while fewer runs than this are unfinished."""
        self._description = description
        self._study = study
        self._train_dir = train_dir
        self._grid = grid
        self._max_parallel = max_parallel
        self._open: list[OpenTrial] = []
        self._interrupted = study.get_trials(states=[TrialState.RUNNING])
        self._num_left = description.num_trials - len(study.trials)
        self._num_left += len(study.get_trials(states=[TrialState.WAITING]))

    def run(self) -> bool:
        """Returns whether all trials have ended: not if a signal has stopped the search or runs of it."""
        return self._grid.run(self._next_jobs) and not self._open

    def _next_jobs(self) -> list[Job]:
        """Judges the open trials, proposes others; returns runs to start."""
        jobs = [job for trial in list(self._open) for job in self._judge(trial)]
        while self._grid.num_unfinished + len(jobs) < self._max_parallel:
            if self._interrupted:
                before = self._interrupted.pop(0)
                # Optuna has no public way to continue a trial. What it has drawn before stays the same.
                trial = optuna.Trial(self._study, before._trial_id)
                jobs += self._begin(trial, set(before.intermediate_values))
            elif self._num_left > 0:
                self._num_left -= 1
                jobs += self._begin(self._study.ask(), set())
            else:
                break
        return jobs

    def _begin(self, trial: optuna.Trial, reported: set[int]) -> Sequence[Job]:
        """Returns the runs of the first round of a trial; none if its flags cannot be drawn."""
        opened = OpenTrial(trial, [()], reported)
        self._open.append(opened)
        try:
            flags = self._description.space(trial)
            opened.rounds = self._description.rounds(trial.number, flags, self._train_dir)
        except Exception as error:  # of the user's code, or of Optuna about the user's values
            self._end(opened, TrialState.FAIL, f"space: {one_line(error)}")
        return opened.jobs

    def _judge(self, trial: OpenTrial) -> Sequence[Job]:
        """Reports what a trial has reached since the last call; returns the runs of a round that begins."""
        begun: Sequence[Job] = ()
        try:
            while trial in self._open and (values := self._reached(trial)) is not None:
                begun = self._report(trial, values)
        except CommandFailed as error:
            self._end(trial, TrialState.FAIL, str(error))
        return begun

    def _reached(self, trial: OpenTrial) -> dict[str, float] | None:
        """Returns env -> value of the tag at the next point; None if a run is not there yet.

        Raises CommandFailed if a run has failed, or has no values under the tag.
        """
        values = {}
        for env, job in zip(self._description.envs, trial.jobs):
            row = self._grid.row_of.get(job.name)
            if row is not None and row.state == FAILED:
                raise CommandFailed(f"{job.name}: {row.note}; {job.last_line()}")
            value = None if row is None else self._value(job, row, trial.point)
            if value is None:
                return None
            values[env] = value
        return values

    def _value(self, job: Job, row: Row, point: int) -> float | None:
        """Returns the value of the tag in a run: the first one at the point or after it, or the last one if the
        run is finished; None if the run is not there yet. Raises CommandFailed."""
        d = self._description
        length = d.budget * (point + 1) / d.num_reports
        is_finished = row.state == FINISHED
        progress = row.figures[FRAMES] if d.frames else row.seconds  # its seconds begin before the training
        if not is_finished and (point == d.num_reports - 1 or progress < length):
            return None
        try:
            curve = read_experiment(job.folder, [d.tag], 0).curves[d.tag]
        except ConfigError as error:
            if is_finished:
                raise CommandFailed(f"{job.name}: {error}") from None
            return None
        index = int((curve.steps if d.frames else curve.seconds).searchsorted(length))
        if index == len(curve.values):
            return float(curve.values[-1]) if is_finished else None
        return float(curve.values[index])

    def _report(self, trial: OpenTrial, reached: Mapping[str, float]) -> Sequence[Job]:
        """Reports the score at a point to Optuna, and ends the trial after the last point or without hope;
        returns the runs of a round that begins."""
        d = self._description
        values = {env: [*trial.values.get(env, ()), value] for env, value in reached.items()}
        score = fmean(d.score(env, value) for env in values for value in values[env])
        trial.point += 1
        step = trial.round * d.budget + d.budget * trial.point // d.num_reports
        is_round_over = trial.point == d.num_reports
        if is_round_over and trial.round == len(trial.rounds) - 1:
            trial.trial.set_user_attr(VALUES, values)
            self._end(trial, TrialState.COMPLETE, "", score)
            return ()
        if step not in trial.reported:
            trial.trial.report(score, step)
            if trial.trial.should_prune():
                self._end(trial, TrialState.PRUNED, f"score {score:.3f} after {step:,} {d.unit}")
                return ()
        if is_round_over:
            trial.values = values
            trial.point = 0
            trial.round += 1
            return trial.jobs
        return ()

    def _end(self, trial: OpenTrial, state: TrialState, note: str, score: float | None = None) -> None:
        """Ends a trial: stops its runs, and prints a line about it. score: of a complete one."""
        self._open.remove(trial)
        trial.trial.set_user_attr(NOTE, note)
        self._study.tell(trial.trial, score, state)
        self._grid.cancel(trial.jobs)
        if score is not None:
            is_best = self._study.best_trial.number == trial.trial.number
            note = f"score {score:.3f}{', the best so far' if is_best else ''}"
        params = ", ".join(f"{name}={short(value)}" for name, value in trial.trial.params.items())
        self._grid.board.print(f"trial {trial.trial.number} {WORDS[state]}: {note} ({params})")
