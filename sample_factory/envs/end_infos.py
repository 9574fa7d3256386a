"""The info of an episode's end: its objective, level and further statistics, and what observers see of it."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sample_factory.envs.protocol import COST, EMPTY_INFO, EPISODE_CONTINUES, LEVEL, Info

OBJECTIVES = ("true_objective", "true_reward")  # keys of the info, the second one is version 1's
EXTRA_STATS = "episode_extra_stats"  # key of the info: further statistics by name
# Keys of an info that say something about the episode, or its last step.
REPORTED = {*OBJECTIVES, EXTRA_STATS, EPISODE_CONTINUES, LEVEL, COST}
MAX_DEPTH = 4  # of dicts within dicts, which may contain themselves
# Any report of an episode has to fit into a message.
MAX_STATS = 500  # further statistics of an episode
MAX_STAT_NAME = 80  # characters
MAX_INFO_ENTRIES = 30  # of an info that is reported
MAX_INFO_TEXT = 50  # characters of a text, or of a key, in it
MAX_INFO_BITS = 64  # of an integer in it
UNCHANGING = (str, bytes, int, float, np.generic, type(None))


def copy_info(info: Info, max_depth: int = MAX_DEPTH) -> dict[str, Any]:
    """Copies the numbers, texts, arrays and dicts of an info, because an env may return the same dict or
    array from every step, and clear it in the next `reset`. Arrays and tensors of one number become a number.
    max_depth: levels of dicts that are copied; deeper dicts are kept as they are."""
    return {key: _copy_value(value, max_depth) for key, value in info.items()}


def _copy_value(value: Any, max_depth: int) -> Any:
    if isinstance(value, UNCHANGING):
        return value
    if isinstance(value, Mapping):
        return copy_info(value, max_depth - 1) if max_depth > 1 else value
    if isinstance(value, np.ndarray):
        return value.item() if value.size == 1 else value.copy()
    number = to_float(value)
    return value if number is None else number


def true_objective(end_info: Info, episode_return: float) -> float:
    """Returns the score of an ended episode by which population-based training and evaluation compare
    policies.

    The score is the first number among: `true_objective` or (v1) `true_reward` in the info of the episode's
    end; `episode["r"]` from Gymnasium's RecordEpisodeStatistics, the sum of the rewards before the wrappers
    on top of it (such as TransformReward) change them; `episode_return`, the sum of raw rewards.
    """
    found = [end_info[key] for key in OBJECTIVES if key in end_info]
    statistics = end_info.get("episode")
    if isinstance(statistics, Mapping) and "r" in statistics:
        found.append(statistics["r"])
    numbers = (number for value in found if (number := to_float(value)) is not None)
    return next(numbers, episode_return)


def level_of(end_info: Info) -> str:
    """Returns the name of the level in which an ended episode was played; empty if the info has none, or has
    a value that is no printable text of at most MAX_STAT_NAME characters."""
    name = end_info.get(LEVEL, "")
    is_name = isinstance(name, str) and len(name) <= MAX_STAT_NAME and name.isprintable()
    return str(name) if is_name else ""


def extra_stats(end_info: Info) -> tuple[dict[str, float], dict[str, Any]]:
    """Returns the statistics that an env reports for an ended episode, and the reported values that cannot be
    used, for a warning.

    Both are dicts by name. The first has the numbers of `episode_extra_stats`; an entry of a dict in it is
    named "outer/inner". The second has values that are no numbers, names that are too long or not printable,
    the first entry beyond MAX_STATS, an objective that is no number, and a level that is no name.
    """
    numbers: dict[str, float] = {}
    left_out = {
        key: end_info[key] for key in OBJECTIVES if key in end_info and to_float(end_info[key]) is None
    }
    if LEVEL in end_info and not level_of(end_info):
        left_out[LEVEL] = end_info[LEVEL]
    reported = end_info.get(EXTRA_STATS, EMPTY_INFO)
    for path, value in leaves(reported if isinstance(reported, Mapping) else {EXTRA_STATS: reported}):
        name = "/".join(map(str, path))
        number = to_float(value)
        is_full = len(numbers) == MAX_STATS
        if number is None or is_full or len(name) > MAX_STAT_NAME or not name.isprintable():
            left_out[name] = value
        else:
            numbers[name] = number
        if is_full:  # there may be many more
            break
    return numbers, left_out


def to_float(value: Any) -> float | None:
    """Converts a number, a bool, or an array or tensor with one number to float; returns None for anything
    else."""
    if isinstance(value, (str, bytes)):
        return None
    try:
        return float(value.item() if isinstance(value, np.ndarray) else value)
    except Exception:  # what a user's class raises, or a tensor on a lost GPU
        return None


def portable_info(end_info: Info) -> dict[str, Any]:
    """Returns the numbers and short texts of an end info, including entries of dicts in it, to be sent in a
    report.

    At most MAX_INFO_ENTRIES are returned, so that they fit into a message. EXTRA_STATS is left out: see
    `extra_stats`.
    """
    found: dict[str, Any] = {}
    num_found = 0
    for path, value in leaves({key: value for key, value in end_info.items() if key != EXTRA_STATS}):
        if isinstance(value, (np.generic, np.ndarray)) and value.size == 1:
            value = value.item()
        is_small = isinstance(value, int) and value.bit_length() <= MAX_INFO_BITS
        is_portable = is_small or isinstance(value, float) or _is_short_text(value)
        if not is_portable or not all(map(_is_short_text, path)):
            continue
        inner = found
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = value
        num_found += 1
        if num_found == MAX_INFO_ENTRIES:
            break
    return found


def _is_short_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_INFO_TEXT


def leaves(values: Mapping[Any, Any], path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields the values of a nested dict as pairs (path, value): path is the tuple of keys that lead to the
    value. Dicts at MAX_DEPTH are yielded whole."""
    for key, value in values.items():
        if isinstance(value, Mapping) and len(path) + 1 < MAX_DEPTH:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value
