"""The results of a run, for the last lines of its log."""

import math

from sample_factory.monitoring.console import duration_text, episodes_text
from sample_factory.monitoring.policy_progress import PolicyProgress
from sample_factory.monitoring.run_progress import RunProgress
from sample_factory.monitoring.status_line import best_policy, reward_text, short_count, short_number


def summary_lines(progress: RunProgress, outcome: str) -> list[str]:
    """Returns the results for the log file. outcome: "stopped", "failed", or begins with "finished"."""
    fps = f"{progress.mean_fps():,.0f} FPS on average"
    lines = [
        f"{_outcome(progress, outcome)}: {progress.new_frames:,} env frames in "
        f"{duration_text(progress.seconds)}, {fps}; {progress.total_frames:,} env frames in all runs of this "
        "experiment"
    ]
    for policy_id, policy in enumerate(progress.policies):
        results = f"{policy.env_frames:,} env frames, {episodes_text(policy.episodes)}"
        lines.append(f"Policy {policy_id}: {results}{_best(policy)}")
    return [*lines, *_incidents(progress)]


def short_summary_lines(progress: RunProgress, outcome: str) -> list[str]:
    """Returns the results for a terminal."""
    total = progress.total_frames
    resumed = f" ({short_count(total)} in all)" if total > progress.new_frames else ""
    lines = [
        f"{_outcome(progress, outcome)}: {short_count(progress.new_frames)} frames{resumed} in "
        f"{duration_text(progress.seconds)}, {progress.mean_fps():,.0f} FPS on average"
    ]
    best = best_policy(progress.policies)
    if best is not None:
        policy = progress.policies[best]
        which = f"the best is policy {best}: " if len(progress.policies) > 1 else ""
        lines.append(f"{which}{reward_text(policy.episodes)}{_best(policy)}")
    elif len(progress.policies) == 1:
        lines.append("no episode has ended")
    return [*lines, *_incidents(progress)]


def _outcome(progress: RunProgress, outcome: str) -> str:
    if outcome.startswith("finished") or progress.share_done is None:
        return outcome
    return f"{outcome} at {math.floor(100 * progress.share_done)} %"


def _best(policy: PolicyProgress) -> str:
    if policy.best_reward is None or policy.best_at is None:
        return ""
    return f"; best mean reward {short_number(policy.best_reward)} at {short_count(policy.best_at)} frames"


def _incidents(progress: RunProgress) -> list[str]:
    found = [f"{count:,} {kind.replace('_', ' ')}" for kind, count in progress.incidents.items() if count]
    return [f"incidents: {', '.join(found)}; see sf_log.txt"] if found else []
