"""When a batched simulator resets an env: in the step that ends an episode, or in the next one."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from sample_factory.envs.adapters.simulator_values import find, name_of, note_once, numbers_by_env, shape_of
from sample_factory.envs.adapters.vector_env import FINAL_KEYS, MODES_OF_STEP, recognised_mode
from sample_factory.envs.protocol import EnvContractError
from sample_factory.runtime.log import log

# Attributes: steps of the current episode of each env, [N]. rsl_rl, Isaac Lab, mjlab; Isaac Gym; ManiSkill.
AGES = ("episode_length_buf", "progress_buf", "elapsed_steps")


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
        self._is_declared = mode is not None
        self._is_proven = False  # the ages have shown that it resets as the mode says, or cannot show it
        self._ages_before: np.ndarray | None = None
        self._num_risen = 0  # within episodes: number of ages that rose by 1, minus those that did not

    def begin(self) -> None:
        """Starts anew; call this after each reset of the whole simulator.

        Isaac Gym's `reset` resets no env. Its first `step` resets those that `reset_buf` names.
        """
        due = find(self._env, "reset_buf")
        is_due = due is not None and find(self._env, AGES[1]) is not None
        is_due = is_due and self.mode != AutoresetMode.SAME_STEP
        none = np.zeros(self._num_envs, bool)
        self.waiting = numbers_by_env("reset_buf", due, self._num_envs) != 0 if is_due else none

    def before_step(self) -> None:
        self._ages_before = None if self._is_proven else self._ages()

    def after_step(self, ended: np.ndarray, infos: Mapping[str, Any], num_ends: int) -> np.ndarray:
        """Returns the envs that this step has only reset, [N] bool: nothing in them was played.

        ended: [N] bool. num_ends: 1 if `step` returns `done`, 2 for `terminated` and `truncated`. Raises
        EnvContractError if an env was not reset, or if it remains unknown when envs are.
        """
        only_reset = self.waiting
        ends = ended & ~only_reset
        if not self._is_proven:
            played = self._were_played(~(ended | only_reset))
            if ends.any() and not self._is_proven:
                self._recognise(None if played is None else played[ends], infos, num_ends)
        self.waiting = np.zeros_like(ended) if self.mode == AutoresetMode.SAME_STEP else ended
        return only_reset

    def _ages(self) -> np.ndarray | None:
        """Returns a copy of the steps of each env's episode so far, [N]; None if they are not counted."""
        for name in AGES:
            ages = find(self._env, name)
            if shape_of(ages) in ((self._num_envs,), (self._num_envs, 1)):
                return numbers_by_env(name, ages, self._num_envs).copy()
        return None

    def _were_played(self, surely: np.ndarray) -> np.ndarray | None:
        """Returns in which envs the step was one of an episode, [N] bool: their age has risen by 1. None if
        ages are not counted, or in other units. A reset may set any age, as Isaac Lab's quadcopter does where
        all envs end together.

        surely: in which envs it was one, and not the last, [N] bool.
        """
        before, now = self._ages_before, self._ages()
        if before is None or now is None:
            return None
        played: np.ndarray = now == before + 1
        self._check_resets(before, played)
        self._num_risen += int(np.where(played, 1, -1)[surely].sum())
        return played if self._num_risen >= 0 else None

    def _recognise(self, played: np.ndarray | None, infos: Mapping[str, Any], num_ends: int) -> None:
        """Sets the mode by what the first end of an episode shows; logs a warning if another is declared.

        played: as `_were_played` returns it, of the envs whose episode has ended. Raises EnvContractError if
        nothing shows the mode: a wrong guess would lose the first step of each episode.
        """
        shown = None
        if played is not None:
            # By most, since some tasks zero the age of an env that reaches a goal.
            shown = AutoresetMode.NEXT_STEP if played.mean() > 0.5 else AutoresetMode.SAME_STEP
        elif self.mode is None and num_ends == 2:
            shown = recognised_mode(name_of(self._env), infos, MODES_OF_STEP)
        elif self.mode is None:
            shown = AutoresetMode.SAME_STEP
            if not FINAL_KEYS & infos.keys():
                note_once(
                    f"{name_of(self._env)} does not show the number of steps of each episode: it is taken "
                    "to reset an env in the step that ends its episode. If the next step does, set "
                    "metadata['autoreset_mode'] to gymnasium.vector.AutoresetMode.NEXT_STEP"
                )
        is_refuted = self._is_declared and shown not in (None, self.mode)
        if is_refuted:
            log.warning("%s declares %s; its counter shows %s", name_of(self._env), self.mode, shown)
        self.mode = self.mode or shown
        self._is_proven = is_refuted or shown != AutoresetMode.NEXT_STEP

    def _check_resets(self, before: np.ndarray, played: np.ndarray) -> None:
        """Checks that the step has reset the envs whose episode had ended before, as mode NEXT_STEP says.

        If not, raises EnvContractError; logs a warning instead if the simulator declares that mode.
        """
        had_ended = self.waiting & (before > 0)  # at age 0, the first episode had not begun
        self._is_proven = self.mode is not None and bool(had_ended.any())
        if self._is_proven and played[had_ended].any():
            text = f"{name_of(self._env)} has not reset an env in the step after its episode; {MODES_OF_STEP}"
            if not self._is_declared:
                raise EnvContractError(text)
            log.warning("%s", text)
