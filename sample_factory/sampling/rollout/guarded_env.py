"""An env that is rebuilt when it raises."""

import logging
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sample_factory.envs.protocol import EnvContractError, MultiAgentEnv, ObservationRows, StepResult
from sample_factory.runtime.child_side import PermanentFailure

log = logging.getLogger("sample_factory")

MAX_REBUILDS, REBUILD_SECONDS = 3, 60.0
SEED_LIMIT = 2**31


class EnvBroken(PermanentFailure):
    """An env does what rebuilding it does not mend."""


class GuardedEnv:
    """A MultiAgentEnv that is replaced by a new one when it raises. Promises:

    1. When `step` returns None, what was going on in the env is lost; the observation in the rows is the
       first one of new episodes of all its agents, and `active_after_reset` belongs to it.
    2. More than MAX_REBUILDS within REBUILD_SECONDS, or a broken contract, are an EnvBroken that says which
       env of which worker it is.
    """

    def __init__(
        self, make: Callable[[], MultiAgentEnv], name: str, number: int, mark: np.ndarray, tell: Callable
    ):
        """name: "worker 1: env 3 (doom_basic)". mark: [1] int, set to `number` before each call, for whoever
        finds the process stuck or dead. tell(text): a rebuilding, in words.
        """
        self._make, self.name, self._number, self._mark, self._tell = make, name, number, mark, tell
        self._env = make()
        self.num_agents = self._env.num_agents
        self.kinds = self._env.kinds
        self._shaping: dict[int, Mapping[str, Any]] = {}  # by agent, where it is not the env's own
        # StepResult.active of the last reset that was not within a step of the env
        self.active_after_reset: np.ndarray | None = None
        self._seed: int | None = None
        self._rebuilds: list[float] = []

    def reset(self, seed: int | None, into: ObservationRows) -> None:
        """Starts the first episode of every agent; what it returns is in `active_after_reset`."""
        self._seed, self._mark[0] = seed, self._number
        try:
            self.active_after_reset = self._env.reset(seed, into)
        except Exception as error:  # whatever a user's env raises: told, and raised again if it goes on
            self._rebuild(error, into)

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult | None:
        """None if the env raised and has been rebuilt."""
        self._mark[0] = self._number
        try:
            return self._env.step(actions, into)
        except Exception as error:  # as in reset
            self._rebuild(error, into)
            return None

    def set_reward_shaping(self, shaping: Mapping[str, Any], agent: int) -> None:
        """As RewardShaping.set_reward_shaping; a rebuilt env has it too."""
        self._shaping[agent] = shaping
        try:
            self._env.reward_shaping.set_reward_shaping(shaping, agent)
        except Exception as error:  # of a user's env; a rebuilt one would not take it either
            raise EnvBroken(f"{self.name} does not take the reward shaping {shaping}: {error}") from error

    def process_is_gone(self) -> bool:
        """As OwnsProcess.process_is_gone."""
        return self._env.process.process_is_gone()

    def close(self) -> None:
        """Never raises: what an env has left open ends with its process."""
        try:
            self._env.close()
        except Exception as error:  # nothing more is wanted of it
            log.warning("%s could not be closed: %s: %s", self.name, type(error).__name__, error)

    def _rebuild(self, error: Exception, into: ObservationRows) -> None:
        """A new env, at the start of an episode."""
        while True:
            self._count(error)
            trace = "".join(traceback.format_exception(error))
            self._tell(f"{self.name} raised and is rebuilt, what it was doing is lost:\n{trace}")
            self.close()
            try:
                self._env = self._make()
                for agent, shaping in self._shaping.items():
                    self._env.reward_shaping.set_reward_shaping(shaping, agent)
                # Another seed, since the same one may lead to the same end.
                seed = None if self._seed is None else (self._seed + len(self._rebuilds)) % SEED_LIMIT
                self.active_after_reset = self._env.reset(seed, into)
                return
            except Exception as next_error:  # counted in the next turn
                error = next_error

    def _count(self, error: Exception) -> None:
        if isinstance(error, EnvContractError):
            raise EnvBroken(f"{self.name}: {error}") from error
        now = time.monotonic()
        self._rebuilds.append(now)
        recent = sum(then > now - REBUILD_SECONDS for then in self._rebuilds)
        if recent > MAX_REBUILDS:
            raise EnvBroken(
                f"{self.name} raised {recent} times within {REBUILD_SECONDS:g} s, the last time "
                f"{type(error).__name__}: {error}"
            ) from error
