"""The trials of a search: Optuna proposes their flags, a Grid runs them, a pruner ends those without hope."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import optuna
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from sample_factory.config.flags import ConfigError
from sample_factory.plotting.read_summaries import read_experiment
from sample_factory.runner.grid import FRAMES, Grid
from sample_factory.runner.run_job import FAILED, FINISHED, Job
from sample_factory.runner.search_description import NOTE, VALUES, SearchDescription, short
from sample_factory.runtime.failures import CommandFailed, one_line

JOURNAL = "journal.log"
OBJECTIVE = "objective"  # user attribute of the study


def open_study(description: SearchDescription, folder: Path) -> optuna.Study:
    """Opens the journal of a search, or begins it; no other process may write to it.

    Raises ConfigError if it belongs to a search with another objective.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path = folder / JOURNAL
    # What a killed search has left: its lock, and a line that was not written to its end.
    Path(f"{path}.lock").unlink(missing_ok=True)
    if path.exists():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
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


@dataclass(eq=False)
class OpenTrial:
    """A trial that has not ended.

    rounds: its runs; for each seed, one in each env. num_reports: how many points have been judged.
    values: env -> those of the tag at the ends of the rounds before the present one.
    """

    trial: optuna.Trial
    rounds: Sequence[Sequence[Job]] = ((),)
    num_reports: int = 0
    values: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Search:
    """Proposes trials, gives their runs to a grid, and ends each trial by what its runs have reached."""

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
        # Not those that have failed in an earlier start: others take their places.
        counted = (TrialState.RUNNING, TrialState.COMPLETE, TrialState.PRUNED)
        self._num_left = description.num_trials - len(study.get_trials(states=counted))

    def run(self) -> bool:
        """Returns whether all trials have ended: not if a signal has stopped the search or runs of it."""
        return self._grid.run(self._next_jobs) and not self._open

    def _next_jobs(self) -> list[Job]:
        """Judges the open trials, proposes others; returns runs to start."""
        jobs = [job for trial in list(self._open) for job in self._judge(trial)]
        while self._grid.num_unfinished + len(jobs) < self._max_parallel:
            if self._interrupted:
                # Optuna has no public way to continue a trial. What has been drawn for it stays the same.
                jobs += self._begin(optuna.Trial(self._study, self._interrupted.pop(0)._trial_id))
            elif self._num_left > 0:
                self._num_left -= 1
                jobs += self._begin(self._study.ask())
            else:
                break
        return jobs

    def _begin(self, trial: optuna.Trial) -> Sequence[Job]:
        """Returns the runs of the first round of a trial; none if its flags cannot be drawn."""
        opened = OpenTrial(trial)
        self._open.append(opened)
        try:
            flags = self._description.space(trial)
            opened.rounds = self._description.rounds(trial.number, flags, self._train_dir)
        except Exception as error:  # of the user's code, or of Optuna about the user's values
            self._end(opened, TrialState.FAIL, f"space: {one_line(error)}")
        return opened.rounds[0]

    def _judge(self, trial: OpenTrial) -> Sequence[Job]:
        """Reports the scores that a trial has reached since the last call, and ends it after the last one, or
        if it has failed or is hopeless. Returns the runs of a round that begins."""
        d = self._description
        while True:
            index, point = divmod(trial.num_reports, d.num_reports)
            runs = trial.rounds[index]
            try:
                reached = [value for job in runs if (value := self._value(job, point)) is not None]
            except CommandFailed as error:
                self._end(trial, TrialState.FAIL, str(error))
                return ()
            if len(reached) < len(runs):
                return ()
            values = {env: [*trial.values.get(env, ()), value] for env, value in zip(d.envs, reached)}
            score = fmean(d.score(env, value) for env in values for value in values[env])
            trial.num_reports += 1
            if trial.num_reports == d.num_reports * len(trial.rounds):
                trial.trial.set_user_attr(VALUES, values)
                self._end(trial, TrialState.COMPLETE, "", score)
                return ()
            # Optuna's step: the frames (or seconds) in each env, of all seeds so far.
            step = d.budget * trial.num_reports // d.num_reports
            if step not in self._study.get_trials(deepcopy=False)[trial.trial.number].intermediate_values:
                trial.trial.report(score, step)
            if trial.trial.should_prune():
                self._end(trial, TrialState.PRUNED, f"score {score:.3f} after {step:,} {d.unit}")
                return ()
            if point == d.num_reports - 1:
                trial.values = values
                return trial.rounds[index + 1]

    def _value(self, job: Job, point: int) -> float | None:
        """Returns the value of the tag in a run: the first one at or after the point, or the last one if the
        run is finished; None if the run is not there yet.

        Raises CommandFailed if the run has failed, or has no values under the tag.
        """
        d = self._description
        row = self._grid.row_of.get(job.name)
        if row is None:  # it has just been returned by `_next_jobs`
            return None
        if row.state == FAILED:
            raise CommandFailed(f"{job.name}: {row.note}; {job.last_line()}")
        length = d.budget * (point + 1) / d.num_reports
        progress = row.figures[FRAMES] if d.frames else row.seconds  # its seconds begin before the training
        if row.state != FINISHED and (point == d.num_reports - 1 or progress < length):
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

    def _end(self, trial: OpenTrial, state: TrialState, note: str, score: float | None = None) -> None:
        """Ends a trial: stops its runs, and prints a line about it. score: of a complete one."""
        self._open.remove(trial)
        trial.trial.set_user_attr(NOTE, note)
        self._study.tell(trial.trial, score, state)
        self._grid.cancel(job for runs in trial.rounds for job in runs)
        if score is not None:
            is_best = self._study.best_trial.number == trial.trial.number
            note = f"score {score:.3f}{', the best so far' if is_best else ''}"
        params = ", ".join(f"{name}={short(value)}" for name, value in trial.trial.params.items())
        self._grid.board.print(f"trial {trial.trial.number} {state.name.lower()}: {note} ({params})")
