"""How a run has ended, for the code or the program that has started it."""

import json
import math
import os
from pathlib import Path
from typing import NamedTuple

from sample_factory.config.experiment_folder import (
    RESULT_FILE,
    RESULT_WITHOUT_FOLDER,
    write_atomically,
)
from sample_factory.monitoring.console import duration_text, short_number
from sample_factory.monitoring.policy_progress import PolicyProgress
from sample_factory.monitoring.run_progress import RunProgress
from sample_factory.runtime.failures import CommandFailed
from sample_factory.runtime.log import log

DONE = "done"
STOPPED = "stopped"
FAILED = "failed"


class PolicyResult(NamedTuple):
    """Results of one policy at the end of a run: means over its last --stats_avg episodes, or nan.

    For example `max(policy.reward for policy in result.policies)`.

    Attributes:
        env_frames: Env frames that the policy was trained on, in all runs of the experiment.
        num_episodes: Number of episodes in the means.
        reward: Mean sum of an episode's rewards.
        true_objective: Mean of the env's own score; the reward if the env reports no score.
        length: Mean length of an episode, in env frames.
        best_reward: Largest mean reward of this run; None before --stats_avg episodes have ended.
    """

    env_frames: int
    num_episodes: int
    reward: float
    true_objective: float
    length: float
    best_reward: float | None


class RunResult(NamedTuple):
    """Says how a run has ended and what it has reached; returned by `run`.

    For example:

        if result.status == "done" and result.reward > 400:
            print(result.experiment_dir, result.policies[0].best_reward)

    Attributes:
        status: "done", "stopped" (e.g. by Ctrl+C) or "failed". A run is done when a limit of the flags is
            reached or an observer has ended it.
        reason: One line that says why the run was stopped, was ended by an observer, has failed, or had
            nothing to do; otherwise empty.
        experiment_dir: Folder of the experiment. It does not exist if the run was stopped or failed before it
            learned anything.
        env_frames: Env frames that all policies together were trained on, in all runs of the experiment.
        fps: Mean number of env frames per second in this run.
        seconds: Duration of the training in this run.
        policies: Result of each policy; empty for a run that ended before training began.
    """

    status: str
    reason: str
    experiment_dir: Path
    env_frames: int = 0
    fps: float = 0.0
    seconds: float = 0.0
    policies: tuple[PolicyResult, ...] = ()

    def __repr__(self) -> str:
        """Returns one line, e.g. "RunResult(done, 200,704 frames in 18 s, reward 485, train_dir/pole)"."""
        parts = [self.status, f"{self.env_frames:,} frames in {duration_text(self.seconds)}"]
        parts += [f"reward {short_number(self.reward)}"] if not math.isnan(self.reward) else []
        parts += [self.reason] if self.reason else []
        return f"RunResult({', '.join([*parts, str(self.experiment_dir)])})"

    @property
    def reward(self) -> float:
        """Mean reward of the last episodes of the best policy; nan if no episode has ended."""
        rewards = [policy.reward for policy in self.policies if not math.isnan(policy.reward)]
        return max(rewards, default=math.nan)


class TrainingFailed(CommandFailed):
    """Raised when a run fails; the message says why.

    For example:

        try:
            sample_factory.run(MyEnv, "mine")
        except sample_factory.TrainingFailed as failed:
            print(failed, failed.result.env_frames)

    Attributes:
        result: A RunResult: what the run had reached.
    """

    def __init__(self, result: RunResult):
        super().__init__(result.reason)
        self.result = result


def result_of(status: str, reason: str, experiment_dir: Path, progress: RunProgress) -> RunResult:
    """Returns the result of a run that had started its workers. status, reason: as in RunResult."""
    policies = tuple(map(_policy_result, progress.policies))
    return RunResult(
        status, reason, experiment_dir, progress.total_frames, progress.mean_fps(), progress.seconds, policies
    )


def write_result(result: RunResult) -> None:
    """Writes status, reason and env_frames to RESULT_FILE in the experiment folder, as JSON, for the program
    that has started the run. If the run has left no folder, the file is the one in the environment variable
    RESULT_WITHOUT_FOLDER, if it is set. An OSError is logged."""
    folder = result.experiment_dir
    path = folder / RESULT_FILE if folder.is_dir() else os.environ.get(RESULT_WITHOUT_FOLDER)
    if path is None:
        return
    values = {"status": result.status, "reason": result.reason, "env_frames": result.env_frames}
    try:
        write_atomically(Path(path), json.dumps(values))
    except OSError as error:
        log.warning("could not write %s: %s", path, error.strerror)


def _policy_result(policy: PolicyProgress) -> PolicyResult:
    means = (policy.episodes.mean(metric, at_least=1) for metric in ("reward", "true_objective", "len"))
    reward, true_objective, length = (math.nan if mean is None else mean for mean in means)
    num_episodes = len(policy.episodes)
    return PolicyResult(policy.env_frames, num_episodes, reward, true_objective, length, policy.best_reward)
