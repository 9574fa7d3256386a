"""Texts about a run for the log."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sample_factory.monitoring.policy_progress import EpisodeStats, Lag, PolicyProgress


class Status(NamedTuple):
    """The state of a run at one moment.

    env_frames: of all policies, earlier runs included.
    fps: length of the window in seconds -> frames per second, for the windows that the run has covered.
    progress: fraction of --train_for_env_steps; None without that limit.
    seconds_left: None if it is not known.
    bottleneck: a text; may be empty.
    """

    env_frames: int
    fps: Mapping[float, float]
    progress: float | None
    seconds_left: float | None
    bottleneck: str
    policies: Sequence[PolicyProgress]


def status_text(status: Status) -> str:
    """Returns one line, followed by one line for each policy if there are several."""
    parts = [f"env frames {status.env_frames:,}{_progress_text(status)}", _fps_text(status.fps)]
    if len(status.policies) == 1:
        parts += [*_policy_parts(status.policies[0]), status.bottleneck]
        return " | ".join(part for part in parts if part)
    lines = [" | ".join(part for part in [*parts, status.bottleneck] if part)]
    for policy_id, policy in enumerate(status.policies):
        parts = [f"policy {policy_id}: env frames {policy.env_frames:,}", *_policy_parts(policy)]
        lines.append("    " + " | ".join(part for part in parts if part))
    return "\n".join(lines)


def episodes_text(episodes: EpisodeStats) -> str:
    """Returns the means over the last episodes, and the number of episodes."""
    reward = episodes.spread("reward")
    length = episodes.spread("len")
    true_objective = episodes.spread("true_objective")
    if reward is None or length is None or true_objective is None:
        return "no episode has ended yet"
    objective = f", true objective {true_objective.mean:.3f}" if episodes.has_own_objective else ""
    number = "1 episode" if reward.num_episodes == 1 else f"{reward.num_episodes} episodes"
    return f"reward {reward.mean:.3f}{objective}, length {length.mean:.0f} frames ({number})"


def duration_text(seconds: float) -> str:
    """Returns a duration in its two largest units, e.g. "2 h 05 min"."""
    minutes, whole_seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours:02d} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {whole_seconds:02d} s" if minutes else f"{whole_seconds} s"


def _progress_text(status: Status) -> str:
    parts = [] if status.progress is None else [f"{100 * status.progress:.1f} %"]
    if status.seconds_left is not None and math.isfinite(status.seconds_left):
        parts.append(f"{duration_text(status.seconds_left)} left")
    return f" ({', '.join(parts)})" if parts else ""


def _fps_text(fps: Mapping[float, float]) -> str:
    known = [f"{rate:,.0f} ({seconds:.0f} s)" for seconds, rate in fps.items() if math.isfinite(rate)]
    return "FPS " + ", ".join(known) if known else ""


def _policy_parts(policy: PolicyProgress) -> list[str]:
    return [episodes_text(policy.episodes), _lag_text(policy.lag)]


def _lag_text(lag: Lag | None) -> str:
    return "" if lag is None else f"policy lag {lag.mean:.1f} ({lag.low:.0f} to {lag.high:.0f})"
