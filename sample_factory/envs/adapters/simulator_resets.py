"""When a batched simulator resets an env: in the step that ends an episode, or in the next one."""

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from sample_factory.envs import contract
from sample_factory.envs.adapters.simulator_values import find, name_of, numbers_by_env
from sample_factory.envs.adapters.vector_env import MODES_OF_STEP
from sample_factory.envs.conventions import RSL_RL, convention_of
from sample_factory.envs.protocol import EnvContractError

AGES = "episode_length_buf"  # attribute: steps of the current episode of each env, [N]


def is_vec_env(env: Any) -> bool:
    """Returns whether an object is a VecEnv of rsl_rl, which need not inherit from it."""
    return find(env, "get_observations") is not None and find(env, AGES) is not None


def reset_mode(env: Any) -> AutoresetMode | None:
    """Returns when a simulator resets its envs: as its metadata declare it, else by the table of conventions;
    None if that is unknown.

    Raises EnvContractError for a declared value that is no mode.
    """
    declared = (find(env, "metadata") or {}).get("autoreset_mode")
    try:
        if declared is not None:
            return AutoresetMode(declared)
    except ValueError:
        text = f"metadata['autoreset_mode'] is {contract.describe(declared)}; {MODES_OF_STEP}"
        raise EnvContractError(text) from None
    known = convention_of(env).autoreset or convention_of(find(env, "unwrapped")).autoreset
    return known or (RSL_RL.autoreset if is_vec_env(env) else None)


class Resets:
    """Knows which envs of a simulator a step has only reset, by its mode.

    mode: attribute. waiting: attribute; envs that the coming step only resets, [N] bool.
    """

    def __init__(self, env: Any, num_envs: int):
        """Raises EnvContractError if it is unknown when the simulator resets an env: a wrong guess would lose
        the first step of each episode."""
        mode = reset_mode(env)
        if mode is None:
            raise EnvContractError(
                f"{name_of(env)} does not say when it resets an env whose episode has ended; {MODES_OF_STEP}"
            )
        self.mode: AutoresetMode = mode
        self.waiting = np.zeros(num_envs, bool)
        self._env = env
        self._num_envs = num_envs

    def begin(self) -> None:
        """Starts anew; call this after each reset of the whole simulator.

        Isaac Gym's `reset` resets no env. Its first `step` resets those that `reset_buf` names.
        """
        due = None if self.mode == AutoresetMode.SAME_STEP else find(self._env, "reset_buf")
        none = np.zeros(self._num_envs, bool)
        self.waiting = none if due is None else numbers_by_env("reset_buf", due, self._num_envs) != 0

    def after_step(self, ended: np.ndarray) -> np.ndarray:
        """Returns the envs that this step has only reset, [N] bool: nothing in them was played.

        ended: [N] bool.
        """
        only_reset = self.waiting
        self.waiting = np.zeros_like(ended) if self.mode == AutoresetMode.SAME_STEP else ended
        return only_reset

    def check(self, max_steps: int | None) -> None:
        """Raises EnvContractError if the counter of steps shows that an env was not reset where its episode
        ended. max_steps: of an episode; None: not known."""
        ages = find(self._env, AGES)
        is_shown = ages is not None and max_steps is not None and self.mode == AutoresetMode.SAME_STEP
        if is_shown and (numbers_by_env(AGES, ages, self._num_envs) > max_steps).any():
            raise EnvContractError(
                f"{name_of(self._env)} has not reset an env in the step that ended its episode; "
                f"{MODES_OF_STEP}"
            )
