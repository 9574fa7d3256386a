"""Hands the values of a run to an env between two episodes."""

import reprlib
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from sample_factory.envs.abilities import TrainingInfo, find_ability
from sample_factory.envs.protocol import EnvContractError
from sample_factory.runtime.failures import one_line


class TrainingInfoBox:
    """The newest values for an env, until its adapter delivers them; see TrainingInfo."""

    def __init__(self, env: Any, resets_itself: bool = False):
        """resets_itself: whether the env begins episodes without a call: it gets values at once."""
        self._receivers = _receivers(env)
        self._resets_itself = resets_itself
        self._waiting: Mapping[str, Any] | None = None

    @property
    def has_receiver(self) -> bool:
        """Whether the env does anything with the values."""
        return bool(self._receivers)

    def put(self, training_info: Mapping[str, Any]) -> None:
        """Stores the values for the next episode. Raises as `deliver` if the env resets itself."""
        self._waiting = training_info
        if self._resets_itself:
            self.deliver()

    def deliver(self) -> None:
        """Hands stored values to the env. To be called before each reset.

        Raises EnvContractError if the env rejects them.
        """
        if self._waiting is None:
            return
        training_info = self._waiting
        self._waiting = None
        for receiver in self._receivers:
            try:
                receiver.set_training_info(training_info)
            except Exception as error:  # any error of a user's env
                raise EnvContractError(
                    f"set_training_info({reprlib.repr(dict(training_info))}) raised {one_line(error)}"
                ) from error


def _receivers(env: Any) -> list[TrainingInfo]:
    """Returns the env, or what its wrappers contain, with the ability; else the envs of a SyncVectorEnv that
    have it."""
    found = find_ability(env, TrainingInfo)
    if type(found) is not TrainingInfo:
        return [found]
    copies = env.unwrapped.envs if _is_sync_vector_env(env) else ()
    receivers = [find_ability(copy, TrainingInfo) for copy in copies]
    return [receiver for receiver in receivers if type(receiver) is not TrainingInfo]


def _is_sync_vector_env(env: Any) -> bool:
    return isinstance(env, gym.vector.VectorEnv) and isinstance(env.unwrapped, gym.vector.SyncVectorEnv)
