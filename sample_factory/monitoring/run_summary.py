"""The results of a run, for the last lines of its log."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sample_factory.monitoring.console import duration_text, episodes_text
from sample_factory.monitoring.policy_progress import PolicyProgress
from sample_factory.monitoring.status_line import best_policy, reward_text, short_count, short_number


class RunSummary(NamedTuple):
    """The results of a run.

    new_frames: env frames of this run; total_frames: of all runs of the experiment. seconds: of training.
    progress: fraction of --train_for_env_steps; None without that limit.
    incidents: counts of handled failures by kind.
    """

    new_frames: int
    total_frames: int
    seconds: float
    mean_fps: float
    progress: float | None
    incidents: Mapping[str, int]
    policies: Sequence[PolicyProgress]


def summary_lines(summary: RunSummary, outcome: str) -> list[str]:
    """Returns the results for the log file. outcome: "stopped", "failed", or begins with "finished"."""
    fps = f"{summary.mean_fps:,.0f} FPS on average"
    lines = [
        f"{_outcome(summary, outcome)}: {summary.new_frames:,} env frames in "
        f"{duration_text(summary.seconds)}, {fps}; {summary.total_frames:,} env frames in all runs of this "
        "experiment"
    ]
    for policy_id, policy in enumerate(summary.policies):
        results = f"{policy.env_frames:,} env frames, {episodes_text(policy.episodes)}"
        lines.append(f"Policy {policy_id}: {results}{_best(policy)}")
    return [*lines, *_incidents(summary)]


def short_summary_lines(summary: RunSummary, outcome: str) -> list[str]:
    """Returns the results for a terminal."""
    resumed = (
        f" ({short_count(summary.total_frames)} in all)" if summary.total_frames > summary.new_frames else ""
    )
    lines = [
        f"{_outcome(summary, outcome)}: {short_count(summary.new_frames)} frames{resumed} in "
        f"{duration_text(summary.seconds)}, {summary.mean_fps:,.0f} FPS on average"
    ]
    policies = summary.policies
    if len(policies) == 1:
        lines.append(f"{reward_text(policies[0].episodes) or 'no episode has ended'}{_best(policies[0])}")
        return [*lines, *_incidents(summary)]
    best = best_policy(policies)
    if best is not None:
        lines.append(
            f"the best is policy {best}: {reward_text(policies[best].episodes)}{_best(policies[best])}"
        )
    return [*lines, *_incidents(summary)]


def _outcome(summary: RunSummary, outcome: str) -> str:
    if outcome.startswith("finished") or summary.progress is None:
        return outcome
    return f"{outcome} at {math.floor(100 * summary.progress)} %"


def _best(policy: PolicyProgress) -> str:
    if policy.best is None:
        return ""
    return (
        f"; best mean reward {short_number(policy.best.mean)} at {short_count(policy.best.env_frames)} frames"
    )


def _incidents(summary: RunSummary) -> list[str]:
    found = [f"{count:,} {kind.replace('_', ' ')}" for kind, count in summary.incidents.items() if count]
    return [f"incidents: {', '.join(found)}; see sf_log.txt"] if found else []
