"""Texts about a run: lines of at most 76 characters, the same ones for terminals and files."""

import math
import re
import textwrap
from collections.abc import Sequence

from sample_factory.envs.protocol import COST
from sample_factory.monitoring.policy_progress import EpisodeStats, PolicyProgress
from sample_factory.monitoring.run_progress import RunProgress

MAX_PLAIN = 1e9  # larger numbers are shown in scientific notation
MAX_WIDTH = 66  # 76 without the time and the two spaces that the log writes before it
MAX_POLICIES = 8
SHOWN_LEVELS = 4  # at each end, where there are more than twice as many
MIN_WIDTHS = {"progress": len("41 %"), "left": len("4:52 left"), "fps": len("1,224 FPS")}
SEPARATORS = ("   ", "  ")
# The columns that are left out first where there is no room.
DROP_ORDER = ("lag", "objective", "eval", "cost", "progress", "left")


def first_batch_text(progress: RunProgress) -> str:
    """Returns a text that says how many samples of the first batch have been collected."""
    if progress.has_batch:  # counts of samples arrive later than batches
        return "learning from the first batch"
    samples, needed = progress.num_sampled, progress.first_batch
    if samples == 0:  # rollout workers report every few seconds
        return f"collecting the first batch of {needed:,} samples"
    if samples > needed:
        return f"the first batch is sampled ({samples:,} samples so far)"
    return f"collecting the first batch: {samples:,} of {needed:,} samples"


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


class StatusLine:
    """Formats the status of a run as one line of text; columns stay aligned from line to line."""

    def __init__(self) -> None:
        self._widths = dict(MIN_WIDTHS)
        self._separator = SEPARATORS[0]

    def text(self, progress: RunProgress) -> str:
        """Returns the status of a run as one line, e.g. "1.2M / 5M   24 %   4:52 left   1,224 FPS   reward
        12.3"."""
        policies = progress.policies
        if not progress.new_frames and len(policies) == 1:
            return first_batch_text(progress)
        cells = {"frames": short_count(progress.total_frames)}
        if progress.target is not None:
            target = re.sub(r"\.0+(?=[kMG])", "", short_count(progress.target))
            cells["frames"] = f"{short_count(progress.frames_to_target):>4} / {target}"
        if progress.share_done is not None:
            cells["progress"] = f"{math.floor(100 * progress.share_done)} %"
        seconds_left = progress.seconds_left()
        if seconds_left is not None:
            cells["left"] = f"{clock_text(seconds_left)} left"
        fps = progress.steady_fps()
        if math.isfinite(fps):
            cells["fps"] = f"{fps:,.0f} FPS" if fps < 1e5 else f"{short_count(fps)} FPS"
        if len(policies) == 1:
            cells.update(_policy_cells(policies[0]))
        else:
            best = best_policy(policies)
            cells["reward"] = "no episode ended yet"
            if best is not None:
                reward = short_number(_mean_rewards(policies)[best])
                cells["reward"] = f"best reward {reward} (policy {best})"
        return self._aligned(cells)

    def _aligned(self, cells: dict[str, str]) -> str:
        """Joins cells (column -> text) to one line, and drops columns in DROP_ORDER until the line fits
        MAX_WIDTH."""
        for dropped in range(len(DROP_ORDER) + 1):
            kept = {name: text for name, text in cells.items() if name not in DROP_ORDER[:dropped]}
            padded = [self._padded(name, text) for name, text in kept.items()]
            for separator in SEPARATORS[SEPARATORS.index(self._separator) :]:
                line = separator.join(padded).rstrip()
                if len(line) <= MAX_WIDTH:
                    self._separator = separator  # later lines do not use a wider one
                    return line
        return line

    def _padded(self, name: str, text: str) -> str:
        # A reward has a remark at first, after which its column should be narrow again.
        if not text.endswith(")"):
            self._widths[name] = max(self._widths.get(name, 0), len(text))
        width = self._widths.get(name, 0)
        return text.ljust(width) if name == "reward" else text.rjust(width)


def reward_text(episodes: EpisodeStats) -> str:
    """Returns a text with the mean reward, marked "(first N)" while only the first episodes have ended; empty
    if none has ended."""
    spread = episodes.spread("reward")
    if spread is None:
        return ""
    first = f" (first {spread.num_episodes})" if episodes.are_first else ""
    return f"reward {short_number(spread.mean)}{first}"


def policy_rows(policies: Sequence[PolicyProgress]) -> list[str]:
    """Returns at most MAX_POLICIES lines of text, one for each policy; with more policies, the last line sums
    up the remaining ones."""
    shown = policies if len(policies) <= MAX_POLICIES else policies[: MAX_POLICIES - 1]
    rows = [
        [f"policy {policy_id}", short_count(policy.env_frames), *_policy_cells(policy).values()]
        for policy_id, policy in enumerate(shown)
    ]
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(max(map(len, rows)))]
    lines = ["   ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    if len(shown) < len(policies):
        rewards = _mean_rewards(policies[len(shown) :]).values()
        text = f": reward {short_number(min(rewards))} to {short_number(max(rewards))}" if rewards else ""
        lines.append(f"{len(policies) - len(shown)} more{text}")
    return lines


def level_lines(episodes: EpisodeStats, whose: str = "") -> list[str]:
    """Returns lines of text with the mean reward in each level, or in the best and worst of many levels;
    empty for an env without levels.
    whose: beginning of the first line, e.g. "policy 1: "."""
    means = {level: spread.mean for level, spread in episodes.by_level("reward").items()}
    if not means:
        return []
    mean = sum(means.values()) / len(means)
    parts = [f"{level} {short_number(value)}" for level, value in means.items()]
    if len(means) > 2 * SHOWN_LEVELS:
        ranked = sorted(means, key=lambda level: means[level])
        best, worst = (
            ", ".join(f"{level} {short_number(means[level])}" for level in chosen)
            for chosen in (ranked[: -SHOWN_LEVELS - 1 : -1], ranked[:SHOWN_LEVELS])
        )
        parts = [f"best {best}; worst {worst}"]
    count = f"{len(means)} level{'s' * (len(means) > 1)}"
    text = f"{whose}{count}, mean reward {short_number(mean)}: {', '.join(parts)}"
    return textwrap.wrap(text, MAX_WIDTH, break_long_words=False, break_on_hyphens=False)


def aligned(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Returns the lines of a table with aligned columns.
    sides: alignment of each column, "<" (left, for words) or ">" (right, for numbers); the last one also
        applies to further columns."""
    sides = sides.ljust(len(rows[0]), sides[-1])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths)).rstrip()
        for row in rows
    ]


def short_count(count: float) -> str:
    """Returns a count in at most five characters, e.g. 950, 4.1k, 20k, 182k, 1.82M."""
    power = 0 if count < 1e3 else min(3, math.floor(math.log10(count)) // 3)
    suffix = ("", "k", "M", "G")[power]
    value = count / 1000**power
    most = (0, 1, 2, 2)[power]
    digits = max(0, most + 1 - len(f"{math.floor(value)}")) if most else 0
    return f"{math.floor(value * 10**digits) / 10**digits:.{digits}f}{suffix}"


def short_number(value: float) -> str:
    """Returns a number with about three digits, e.g. 1.75e+38, 1,754, 492, 12.3, 0.78, 0.0031."""
    size = abs(value)
    if size >= MAX_PLAIN:
        return f"{value:.2e}"
    if size >= 100 or value == 0:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.01 else f"{value:.2g}"


def clock_text(seconds: float) -> str:
    """Returns a duration in a few characters, for narrow columns: 0:09, 4:52, 1h05m or 2d03h."""
    minutes, whole_seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24}d{hours % 24:02d}h"
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}:{whole_seconds:02d}"


def _policy_cells(policy: PolicyProgress) -> dict[str, str]:
    cells = {"reward": reward_text(policy.episodes) or "no episode ended yet"}
    objective = policy.episodes.spread("true_objective")
    if objective is not None and policy.episodes.has_own_objective:
        cells["objective"] = f"objective {short_number(objective.mean)}"
    cost = policy.episodes.spread(COST)
    if cost is not None:
        cells["cost"] = f"cost {short_number(cost.mean)}"
    if policy.eval_reward is not None:
        cells["eval"] = f"eval {short_number(policy.eval_reward)}"
    if policy.lag is not None:
        cells["lag"] = f"lag {policy.lag:.1f}"
    return cells


def best_policy(policies: Sequence[PolicyProgress]) -> int | None:
    """Returns the policy with the largest mean reward; None if no episode has ended."""
    rewards = _mean_rewards(policies)
    return max(rewards, key=lambda policy_id: rewards[policy_id]) if rewards else None


def _mean_rewards(policies: Sequence[PolicyProgress]) -> dict[int, float]:
    """Returns policy id -> mean reward of its last episodes, for policies that have ended at least one."""
    spreads = [policy.episodes.spread("reward") for policy in policies]
    return {policy_id: spread.mean for policy_id, spread in enumerate(spreads) if spread is not None}


def summary_lines(progress: RunProgress, outcome: str) -> list[str]:
    """Returns lines of text with the results of a run.
    outcome: "stopped", "failed", or a text that begins with "finished"."""
    total = progress.total_frames
    resumed = f" ({total:,} in all)" if total > progress.new_frames else ""
    lines = [
        f"{_outcome(progress, outcome)}: {progress.new_frames:,} env frames{resumed} in "
        f"{duration_text(progress.seconds)}, {progress.mean_fps():,.0f} FPS on average"
    ]
    policies = progress.policies
    best = best_policy(policies)
    if len(policies) > 1:
        lines += [f" {row}" for row in policy_rows(policies)]
    if best is not None:
        which = f"the best is policy {best}: " if len(policies) > 1 else ""
        lines.append(f"{which}{reward_text(policies[best].episodes)}{_best(policies[best])}")
        lines += level_lines(policies[best].episodes)
        if not any(policy.episodes.had_reward for policy in policies):
            lines.append("every episode had a reward of 0: see sample_factory/envs/NOT_LEARNING.md")
    elif len(policies) == 1:
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
