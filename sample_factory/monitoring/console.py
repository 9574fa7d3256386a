"""Long texts about a run, for the log file and where there is no terminal."""

import math

from sample_factory.monitoring.policy_progress import EpisodeStats, PolicyProgress
from sample_factory.monitoring.run_progress import RunProgress

MAX_PLAIN = 1e9  # larger numbers are shown in scientific notation


def status_text(progress: RunProgress, bottleneck: str) -> str:
    """Returns the state of a run in one line, followed by one line for each policy if there are several.

    bottleneck: a text; may be empty.
    """
    shares = [] if progress.share_done is None else [f"{100 * progress.share_done:.1f} %"]
    seconds_left = progress.seconds_left()
    if seconds_left is not None:
        shares.append(f"{duration_text(seconds_left)} left")
    frames = f"env frames {progress.total_frames:,}" + (f" ({', '.join(shares)})" if shares else "")
    first_batch = "" if progress.new_frames else first_batch_text(progress)
    rates = progress.shown_fps().items()
    texts = [f"{rate:,.0f} ({window:.0f} s)" for window, rate in rates if math.isfinite(rate)]
    fps = f"FPS {', '.join(texts)}" if texts else ""
    policies = progress.policies
    only = _policy_parts(policies[0]) if len(policies) == 1 else []
    rows = [[frames, first_batch, fps, *only, bottleneck]]
    for policy_id, policy in enumerate(policies if len(policies) > 1 else ()):
        rows.append([f"policy {policy_id}: env frames {policy.env_frames:,}", *_policy_parts(policy)])
    return "\n    ".join(" | ".join(filter(None, row)) for row in rows)


def _policy_parts(policy: PolicyProgress) -> list[str]:
    parts = [episodes_text(policy.episodes)]
    if policy.eval_reward is not None:
        parts.append(f"evaluated: {number_text(policy.eval_reward)}")
    if policy.lag is not None:
        parts.append(f"policy lag {policy.lag.mean:.1f} ({policy.lag.low:.0f} to {policy.lag.high:.0f})")
    return parts


def first_batch_text(progress: RunProgress) -> str:
    """Returns how much of the first batch has been sampled."""
    if progress.has_batch:  # counts of samples arrive later than batches
        return "learning from the first batch"
    samples, needed = progress.num_sampled, progress.first_batch
    if samples == 0:  # rollout workers report every few seconds
        return f"collecting the first batch of {needed:,} samples"
    if samples > needed:
        return f"the first batch is sampled ({samples:,} samples so far)"
    return f"collecting the first batch: {samples:,} of {needed:,} samples"


def episodes_text(episodes: EpisodeStats) -> str:
    """Returns the means over the last episodes, and the number of episodes."""
    reward = episodes.spread("reward")
    length = episodes.spread("len")
    true_objective = episodes.spread("true_objective")
    if reward is None or length is None or true_objective is None:
        return "no episode has ended yet"
    objective = f", true objective {number_text(true_objective.mean)}" if episodes.has_own_objective else ""
    # Short episodes end first, so the first means are over short episodes.
    first = "the first " if episodes.are_first else ""
    number = "1 episode" if reward.num_episodes == 1 else f"{first}{reward.num_episodes} episodes"
    return f"reward {number_text(reward.mean)}{objective}, length {length.mean:.0f} frames ({number})"


def number_text(value: float) -> str:
    """Returns a number with three decimals; a very large one in the form 1.235e+38."""
    return f"{value:.3f}" if abs(value) < MAX_PLAIN else f"{value:.3e}"


def short_number(value: float) -> str:
    """Returns a number with two decimals, or without any from 100 on: "0.25", "1,203"."""
    return number_text(value) if abs(value) >= MAX_PLAIN else f"{value:,.{2 if abs(value) < 100 else 0}f}"


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
