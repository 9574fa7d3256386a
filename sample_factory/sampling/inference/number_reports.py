"""Reports numbers that an env or a network should not return: NaN, inf, observations outside of their space,
and action masks that allow nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.exchange.messages import Incident
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.spaces.actions import ACTION_MASK

CHECK_EVERY = 100  # batches
TOLERANCE = 1e-3  # relative to a bound above 1: rounding is no mistake


class NumberReports:
    """Reports NaN, inf and implausible numbers in one policy's observations, masks and outputs: counts every
    affected step, but logs each cause only once, since every step may be affected."""

    def __init__(
        self,
        policy_id: int,
        space: gym.spaces.Dict,
        discrete_sizes: Sequence[int],
        buffers: TrajectoryBuffers,
        report: Callable[[Incident], None],
    ):
        """Prepares the checks of one policy's numbers. space: observation space, a Dict of Box.
        discrete_sizes: number of choices of each discrete action. report: sends an incident to the main
        process."""
        self._policy_id = policy_id
        self._space_check = SpaceCheck(space)
        self._first_choices = np.cumsum([0, *discrete_sizes[:-1]])  # of each action, in a row of the mask
        self._buffers = buffers
        self._report = report
        self._logged_causes: set[str] = set()

    def check_observations(
        self, obs: Mapping[str, np.ndarray], indices: np.ndarray, finite: np.ndarray
    ) -> None:
        """Reports finite observations that lie outside of their space. Checks one batch in CHECK_EVERY.

        obs: [n, *shape] by key. indices: [n], index of the buffer of each row. finite: [n] bool, False for
        rows with NaN or inf.
        """
        outside = self._space_check.outside(obs)
        if outside is None:
            return
        is_outside, example = outside
        indices = indices[is_outside & finite]
        if len(indices):
            counts = f"(health/implausible_numbers counts them in one batch of {CHECK_EVERY})"
            text = f"{example}; such steps are trained on {counts}"
            self._report_rows("implausible_numbers", indices, "outside", text)

    def check_masks(self, obs: Mapping[str, np.ndarray], indices: np.ndarray) -> None:
        """Reports action masks that forbid every choice of an action; does nothing if the env has no mask.
        obs: [n, *shape] by key. indices: [n], index of the buffer of each row."""
        if ACTION_MASK not in obs:
            return
        allowed = obs[ACTION_MASK].reshape(len(indices), -1) != 0
        is_empty = ~np.logical_or.reduceat(allowed, self._first_choices, axis=1).all(axis=1)
        if is_empty.any():
            text = (
                "its action mask allowed nothing, so a forbidden action was drawn; it should allow a choice "
                "for each action (health/implausible_numbers counts such steps)"
            )
            self._report_rows("implausible_numbers", indices[is_empty], "mask", text)

    def report_broken(self, indices: np.ndarray, finite: np.ndarray, good: np.ndarray) -> None:
        """Reports rows with NaN or inf, and whether the env or the network caused them. indices: [n], index
        of the buffer of each row. finite: [n] bool, True if the observation is finite. good: [n] bool, True
        if both observation and outputs are finite."""
        answered = f"policy {self._policy_id} answered its finite observation with NaN or inf"
        for broken, cause in ((~finite, "its observation had NaN or inf"), (finite & ~good, answered)):
            if broken.any():
                text = f"{cause}; such steps are not trained on (health/broken_numbers counts them)"
                self._report_rows("broken_numbers", indices[broken], cause, text)

    def _report_rows(self, kind: str, indices: np.ndarray, cause: str, fault: str) -> None:
        """Sends an incident that counts n rows with a fault, with a text for the log if the cause of the
        fault occurs for the first time.

        kind: kind of the incident. indices: [n], index of the buffer of each row; the log names the agent of
        the first. cause: identifies the cause. fault: the text for the log.
        """
        text = ""
        if cause not in self._logged_causes:
            self._logged_causes.add(cause)
            topology = self._buffers.topology
            worker, agent = divmod(self._buffers.owner_of(indices[0]), topology.agents_per_worker)
            env, agent = divmod(agent, topology.agents_per_env)
            text = f"worker {worker}: env {env}, agent {agent}: {fault}"
        self._report(Incident(kind, text, len(indices)))


class SpaceCheck:
    """Compares the observations of the first batch, and of each CHECK_EVERYth after it, with their space.

    Checking an observation takes as long as copying it, and a mistake of an env seldom occurs only once.
    """

    def __init__(self, space: gym.spaces.Dict):
        """Prepares the check against `space`, the observation space, a Dict of Box."""
        boxes = {key: box for key, box in space.spaces.items() if isinstance(box, gym.spaces.Box)}
        self._bounds = {key: _bounds(box) for key, box in boxes.items() if not _allows_all(box)}
        self._num_batches = 0

    def outside(self, obs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, str] | None:
        """Returns ([B] bool, True for observations outside of their space; a text about the first of them).

        Returns None if all lie within their space, or if this batch is not checked. obs: [B, *shape] by key.
        """
        is_due = self._num_batches % CHECK_EVERY == 0
        self._num_batches += 1
        if is_due:
            for key, (low, high) in self._bounds.items():
                wrong = (obs[key] < low) | (obs[key] > high)
                if wrong.any():
                    value = obs[key][wrong][0]
                    example = f"its observation {key!r} has the value {value}, outside of its space"
                    return np.any(wrong.reshape(len(wrong), -1), axis=1), example
        return None


def _allows_all(box: gym.spaces.Box) -> bool:
    """Returns whether all numbers of a box's dtype lie within its bounds, so that no check is needed."""
    dtype: np.dtype[Any] = box.dtype
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return bool((box.low <= limits.min).all() and (box.high >= limits.max).all())


def _bounds(box: gym.spaces.Box) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bounds (low, high) of a box, widened by TOLERANCE, each [*shape] float64."""
    low, high = box.low.astype(float), box.high.astype(float)
    return low - TOLERANCE * np.maximum(1.0, np.abs(low)), high + TOLERANCE * np.maximum(1.0, np.abs(high))
