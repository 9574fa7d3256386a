"""What a batched simulator holds and returns besides observations: attributes, numbers by env, and infos."""

import functools
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from sample_factory.envs import contract
from sample_factory.envs.adapters.list_style import v1_attribute
from sample_factory.envs.adapters.tensors import Crossing, to_host
from sample_factory.envs.end_infos import EXTRA_STATS
from sample_factory.envs.protocol import EnvContractError
from sample_factory.runtime.log import log

# Keys of infos: statistics of the episodes that ended in this step. rsl_rl; its early versions; Brax.
LOGS = ("log", "episode", "episode_metrics")
SUMS = ("r", "l", "t")  # of an episode, by Gymnasium's RecordEpisodeStatistics


def find(env: Any, name: str) -> Any:
    """Returns an attribute of an env, or of the env in its wrappers; None if neither has it."""
    found = v1_attribute(env, name, None)
    return v1_attribute(v1_attribute(env, "unwrapped", env), name, None) if found is None else found


@functools.cache  # once in a process
def note_once(text: str, level: int = logging.INFO) -> None:
    log.log(level, text)


def shape_of(value: Any) -> tuple[int, ...] | None:
    """Returns the shape of an array or of nested lists; None if these have no common one."""
    try:
        return tuple(np.shape(value))
    except (TypeError, ValueError):
        return None


def numbers_by_env(name: str, values: Any, num_envs: int) -> np.ndarray:
    """Returns an array [N] of values [N] or [N, 1]. Raises EnvContractError unless there is a number for each
    env.

    name: says which values these are, for the error.
    """
    array = np.asarray(to_host(values))
    if array.shape not in ((num_envs,), (num_envs, 1)) or array.dtype.kind not in "biuf":
        raise EnvContractError(
            f"{name} is {contract.describe(array)}; it should have a number for each of the {num_envs} envs"
        )
    return array.reshape(num_envs)


class InfoReader:
    """Reads the infos of a simulator's steps. crossing: brings their tensors to the host."""

    def __init__(self, num_envs: int, crossing: Crossing):
        self._num_envs = num_envs
        self._shapes = ((num_envs,), (num_envs, 1))
        self._crossing = crossing

    def at_end(self, infos: Mapping[str, Any]) -> dict[str, Any]:
        """Returns entries of infos on the host: a text or a number for all envs, an array [N], and dicts of
        these. What is in LOGS, where the mean of an array counts as in rsl_rl's log, or has a name with a
        slash as craftax's achievements, becomes further statistics of episodes."""
        # Beneath a key, since the crossing keeps a buffer for each path.
        host = self._crossing.to_host({"infos": self._chosen(infos)})["infos"]
        kept: dict[str, Any] = self._plain(host)
        stats: dict[str, Any] = {name: kept.pop(name) for name in list(kept) if "/" in name}
        for name in LOGS:
            if isinstance(kept.get(name), Mapping):
                entries = kept.pop(name)
                sums = {key: entries.pop(key) for key in SUMS if key in entries}
                kept |= {name: sums} if sums else {}
                stats |= {key: value for key, value in entries.items() if not isinstance(value, str)}
        if stats:
            own = kept.get(EXTRA_STATS, {})
            kept[EXTRA_STATS] = {**stats, **(own if isinstance(own, Mapping) else {EXTRA_STATS: own})}
        return kept

    def _chosen(self, infos: Mapping[str, Any], is_log: bool = False) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        for key, value in infos.items():
            if isinstance(value, Mapping):
                chosen[key] = self._chosen(value, is_log or key in LOGS)
            elif (shape := shape_of(value)) is not None and (is_log or shape in ((), (1,), *self._shapes)):
                chosen[key] = value
        return chosen

    def _plain(self, value: Any) -> Any:
        """Returns an entry as `at_end` does; None for what is neither a number nor a text."""
        if isinstance(value, Mapping):
            plain = {key: self._plain(inner) for key, inner in value.items()}
            return {key: inner for key, inner in plain.items() if inner is not None}
        if isinstance(value, str):
            return value
        try:
            array = np.asarray(value)
        except TypeError:  # random keys of JAX
            return None
        if array.shape in self._shapes:
            return array.reshape(self._num_envs)
        if not array.size or array.dtype.kind not in "biuf":
            return None
        return float(array.item() if array.size == 1 else array.mean())
