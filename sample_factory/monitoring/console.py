"""Long texts about a run, for the log file and where there is no terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sample_factory.monitoring.policy_progress import EpisodeStats, PolicyProgress

MAX_PLAIN = 1e9  # larger numbers are shown in scientific notation


class FirstBatch(NamedTuple):
    """Samples taken while the first batch is collected.

    samples: agent steps of all policies. needed: about how many it takes until every policy has a batch.
    """

    samples: int
    needed: int


class Status(NamedTuple):
    """The state of a run at one moment.

    env_frames: of all policies, earlier runs included. target: those at which the run is done; None if there
        is no such limit.
    fps: length of the window in seconds -> frames per second, for the windows that the run has covered.
    steady_fps: over the last minute, or the whole run if it is shorter, up to the last batch: a batch may
        take many seconds. NaN if it is not known.
    progress: fraction of --train_for_env_steps; None without that limit.
    seconds_left: None if it is not known.
    bottleneck: a text; may be empty.
    first_batch: until the first batch is trained on; then None.
    """

    env_frames: int
    target: int | None
    fps: Mapping[float, float]
    steady_fps: float
    progress: float | None
    seconds_left: float | None
    bottleneck: str
    policies: Sequence[PolicyProgress]
    first_batch: FirstBatch | None = None


def status_text(status: Status) -> str:
    """Returns one line, followed by one line for each policy if there are several."""
    progress = [] if status.progress is None else [f"{100 * status.progress:.1f} %"]
    if status.seconds_left is not None and math.isfinite(status.seconds_left):
        progress.append(f"{duration_text(status.seconds_left)} left")
    frames = f"env frames {status.env_frames:,}" + (f" ({', '.join(progress)})" if progress else "")
    first_batch = "" if status.first_batch is None else first_batch_text(status.first_batch)
    rates = [f"{rate:,.0f} ({window:.0f} s)" for window, rate in status.fps.items() if math.isfinite(rate)]
    fps = f"FPS {', '.join(rates)}" if rates else ""
    if len(status.policies) == 1:
        return _joined([frames, first_batch, fps, *_policy_parts(status.policies[0]), status.bottleneck])
    lines = [_joined([frames, first_batch, fps, status.bottleneck])]
    for policy_id, policy in enumerate(status.policies):
        parts = [f"policy {policy_id}: env frames {policy.env_frames:,}", *_policy_parts(policy)]
        lines.append(f"    {_joined(parts)}")
    return "\n".join(lines)


def _joined(parts: Sequence[str]) -> str:
    return " | ".join(part for part in parts if part)


def _policy_parts(policy: PolicyProgress) -> list[str]:
    parts = [episodes_text(policy.episodes)]
    if policy.eval_reward is not None:
        parts.append(f"evaluated: {number_text(policy.eval_reward)}")
    if policy.lag is not None:
        parts.append(f"policy lag {policy.lag.mean:.1f} ({policy.lag.low:.0f} to {policy.lag.high:.0f})")
    return parts


def first_batch_text(first_batch: FirstBatch) -> str:
    """Returns how much of the first batch has been sampled."""
    if first_batch.samples == 0:  # rollout workers report every few seconds
        return f"collecting the first batch of {first_batch.needed:,} samples"
    if first_batch.samples > first_batch.needed:
        return f"the first batch is sampled ({first_batch.samples:,} samples so far)"
    return f"collecting the first batch: {first_batch.samples:,} of {first_batch.needed:,} samples"


def episodes_text(episodes: EpisodeStats) -> str:
    """Returns the means over the last episodes, and the number of episodes."""
    reward = episodes.spread("reward")
    length = episodes.spread("len")
    true_objective = episodes.spread("true_objective")
    if reward is None or length is None or true_objective is None:
        return "no episode has ended yet"
    objective = f", true objective {number_text(true_objective.mean)}" if episodes.has_own_objective else ""
    # Short episodes end first, so that the first means are those of short episodes.
    first = "the first " if episodes.are_first else ""
    number = "1 episode" if reward.num_episodes == 1 else f"{first}{reward.num_episodes} episodes"
    return f"reward {number_text(reward.mean)}{objective}, length {length.mean:.0f} frames ({number})"


def number_text(value: float) -> str:
    """Returns a number with three decimals; a very large one in the form 1.235e+38."""
    return f"{value:.3f}" if abs(value) < MAX_PLAIN else f"{value:.3e}"


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
