"""How a run has ended, for the Python code that has started it."""

import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sample_factory.config.experiment_folder import write_atomically
from sample_factory.monitoring.policy_progress import PolicyProgress
from sample_factory.monitoring.run_progress import RunProgress
from sample_factory.runtime.child import ChildFailed
from sample_factory.runtime.failures import CommandFailed

log = logging.getLogger("sample_factory")

DONE = "done"
STOPPED = "stopped"
FAILED = "failed"
RESULT_FILE = "result.json"  # in the experiment folder: how its last run has ended


class PolicyResult(NamedTuple):
    """One policy at the end of a run. Means are over its last --stats_avg episodes; nan if none has ended.

    env_frames: trained on in all runs of the experiment. num_episodes: those in the means. length: in env
    frames. true_objective: the reward where the env reports no other. best_reward: the largest mean reward of
    this run; None before there were --stats_avg episodes.
    """

    env_frames: int
    num_episodes: int
    reward: float
    true_objective: float
    length: float
    best_reward: float | None


class RunResult(NamedTuple):
    """How a run has ended.

    status: "done": it has trained for as long as the flags say; "stopped", e.g. by Ctrl+C; or "failed".
    reason: one line that says why a run was stopped, also by an observer, has failed, or had nothing to do;
        empty for others.
    experiment_dir: the folder of the experiment. A run that learned nothing before it was stopped or failed
        leaves none.
    env_frames: trained on in all runs of the experiment, by all policies.
    fps: env frames per second, the mean of this run. seconds: of training in this run.
    policies: results of each policy; empty for a run that ended before training began.
    """

    status: str
    reason: str
    experiment_dir: Path
    env_frames: int = 0
    fps: float = 0.0
    seconds: float = 0.0
    policies: tuple[PolicyResult, ...] = ()

    @property
    def reward(self) -> float:
        """Mean reward of the last episodes of the best policy; nan if no episode has ended."""
        rewards = [policy.reward for policy in self.policies if not math.isnan(policy.reward)]
        return max(rewards, default=math.nan)


class TrainingFailed(CommandFailed):
    """A run has failed; the message says why, and `result` has what was reached until then."""

    def __init__(self, result: RunResult):
        super().__init__(result.reason)
        self.result = result


class RunEnd(NamedTuple):
    """The end of a run whose workers had been started.

    failures: why it has failed; empty if it is done or was stopped.
    summary: of the training; None of an evaluation.
    stop_reason: why an observer has ended it early; empty otherwise.
    """

    failures: Sequence[ChildFailed]
    summary: RunProgress | None
    stop_reason: str = ""

    def raise_failure(self) -> None:
        """Raises the first failure, if there is one."""
        if self.failures:
            raise self.failures[0]


def result_of(status: str, reason: str, experiment_dir: Path, summary: RunProgress | None) -> RunResult:
    """Returns the result of a run. summary: None if it ended before any worker was started."""
    if summary is None:
        return RunResult(status, reason, experiment_dir)
    policies = tuple(map(_policy_result, summary.policies))
    return RunResult(
        status, reason, experiment_dir, summary.total_frames, summary.mean_fps(), summary.seconds, policies
    )


def write_result(result: RunResult) -> None:
    """Writes RESULT_FILE for programs that have started the run: status, reason and env_frames.

    Does nothing if the run has left no folder. A file that cannot be written is logged.
    """
    if not result.experiment_dir.is_dir():
        return
    values = {"status": result.status, "reason": result.reason, "env_frames": result.env_frames}
    try:
        write_atomically(result.experiment_dir / RESULT_FILE, json.dumps(values))
    except OSError as error:
        log.warning("could not write %s: %s", error.filename, error.strerror)


def _policy_result(policy: PolicyProgress) -> PolicyResult:
    means = (policy.episodes.mean(metric, at_least=1) for metric in ("reward", "true_objective", "len"))
    reward, true_objective, length = (math.nan if mean is None else mean for mean in means)
    num_episodes = len(policy.episodes)
    return PolicyResult(policy.env_frames, num_episodes, reward, true_objective, length, policy.best_reward)
