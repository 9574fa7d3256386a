"""When a batched simulator resets an env: in the step that ends an episode, or in the next one."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from sample_factory.envs.adapters.simulator_values import find, name_of, note_once, numbers_by_env
from sample_factory.envs.adapters.vector_env import FINAL_KEYS, MODES_OF_STEP, recognised_mode
from sample_factory.envs.protocol import EnvContractError

# Attributes: steps of the current episode of each env, [N]. rsl_rl, Isaac Lab and mjlab; Isaac Gym.
AGES = ("episode_length_buf", "progress_buf")


class Resets:
    """Finds out by AGES when a simulator resets its envs, and which envs a step has only reset.

    mode: attribute; None until the first end of an episode, unless the simulator declares it.
    waiting: attribute; envs that the coming step only resets, [N] bool.
    """

    def __init__(self, env: Any, num_envs: int, mode: AutoresetMode | None):
        self._env = env
        self._num_envs = num_envs
        self.mode = mode
        self.waiting = np.zeros(num_envs, bool)
        self._is_proven = mode is not None  # that it resets as the mode says
        self._ages_before: np.ndarray | None = None

    def begin(self) -> None:
        """Call after a reset of the whole simulator."""
        self.waiting = self._unbegun()

    def before_step(self) -> None:
        self._ages_before = None if self._is_proven else self._ages()

    def after_step(self, ended: np.ndarray, infos: Mapping[str, Any], num_ends: int) -> np.ndarray:
        """Returns the envs that this step has only reset, [N] bool: nothing in them was played.

        ended: [N] bool. num_ends: 1 if `step` returns `done`, 2 for `terminated` and `truncated`. Raises
        EnvContractError if an env was not reset, or if it remains unknown when envs are.
        """
        only_reset = self.waiting
        if only_reset.any():
            self._check_resets()
        if self.mode is None and ended.any():
            self._recognise(ended, infos, num_ends)
        self.waiting = np.zeros_like(ended) if self.mode == AutoresetMode.SAME_STEP else ended
        return only_reset

    def _unbegun(self) -> np.ndarray:
        """Returns the envs whose first episode begins in the first step, [N] bool: Isaac Gym's `reset` resets
        nothing, and its `step` resets the envs in `reset_buf`."""
        due = find(self._env, "reset_buf")
        is_isaac_gym = due is not None and find(self._env, AGES[1]) is not None
        if not is_isaac_gym or self.mode == AutoresetMode.SAME_STEP:
            return np.zeros(self._num_envs, bool)
        unbegun: np.ndarray = numbers_by_env("reset_buf", due, self._num_envs) != 0
        return unbegun

    def _ages(self) -> np.ndarray | None:
        """Returns a copy of the steps of each env's episode so far, [N]; None if they are not counted."""
        for name in AGES:
            if (ages := find(self._env, name)) is not None:
                return numbers_by_env(name, ages, self._num_envs).copy()
        return None

    def _were_played(self) -> np.ndarray | None:
        """Returns in which envs the step was one of an episode, [N] bool: their age has risen by 1. None if
        ages are not counted. A reset may set any age, as Isaac Lab's quadcopter does where all envs end
        together."""
        before, now = self._ages_before, self._ages()
        return None if before is None or now is None else now == before + 1

    def _recognise(self, ended: np.ndarray, infos: Mapping[str, Any], num_ends: int) -> None:
        """Sets the mode by what the first end of an episode shows.

        Raises EnvContractError if it shows nothing: a wrong guess would lose the first step of each episode.
        """
        played = self._were_played()
        if played is not None and not played[~ended].all():
            played = None  # the ages are in other units than steps
        if played is not None and played[ended].all():
            self.mode = AutoresetMode.NEXT_STEP
        elif played is None and num_ends == 2:
            self.mode = recognised_mode(name_of(self._env), infos, MODES_OF_STEP)
        else:
            self.mode = AutoresetMode.SAME_STEP
            if played is None and not FINAL_KEYS & infos.keys():
                note_once(
                    f"{name_of(self._env)} does not show the number of steps of each episode: it is taken "
                    "to reset an env in the step that ends its episode. If the next step does, set "
                    "metadata['autoreset_mode'] to gymnasium.vector.AutoresetMode.NEXT_STEP"
                )
        self._is_proven = self.mode == AutoresetMode.SAME_STEP

    def _check_resets(self) -> None:
        """Raises EnvContractError if the step was one of an episode in an env that should have been reset."""
        before, played = self._ages_before, self._were_played()
        if before is None or played is None:
            return
        had_ended = self.waiting & (before > 0)  # at age 0, the first episode had not begun
        if played[had_ended].any():
            raise EnvContractError(
                f"{name_of(self._env)} has not reset an env in the step after its episode; {MODES_OF_STEP}"
            )
        self._is_proven = bool(had_ended.any())
