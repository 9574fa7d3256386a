"""An env that is rebuilt when it raises, and a watch for calls that wait for a dead simulator."""

import functools
import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sample_factory.envs.abilities import (
    OwnsProcess,
    ScriptedPlayers,
    SpreadsEpisodes,
    find_ability,
    find_reward_shaping,
)
from sample_factory.envs.protocol import (
    SEED_LIMIT,
    EnvContractError,
    MultiAgentEnv,
    ObservationRows,
    StepResult,
)
from sample_factory.exchange.channels import in_close
from sample_factory.runtime.child_side import StopFlag, pass_on
from sample_factory.runtime.failures import Explained, Failure, one_line
from sample_factory.runtime.log import log
from sample_factory.spaces.actions import action_encoder

MAX_REBUILDS = 3  # within REBUILD_SECONDS
REBUILD_SECONDS = 60.0
CHECK_SECONDS = 1.0
# Usually the next call on the env raises earlier, and the env is rebuilt.
PATIENCE_SECONDS = 5.0
EXIT_CODE = 1


class GuardedEnv:
    """Wraps a MultiAgentEnv, and replaces it by a new env when it raises. Promises:

    1. If `step` returns None, the env has been rebuilt and its episodes are lost. The rows then hold the
       first observations of new episodes, and `active_after_reset` says which agents act.
    2. A permanent Failure is raised instead of more than MAX_REBUILDS rebuilds within REBUILD_SECONDS, and
       when the env violates the contract of envs.
    """

    def __init__(
        self,
        make: Callable[[], MultiAgentEnv],
        name: str,
        env_index: int,
        stepping: np.ndarray,
        report_rebuild: Callable[[str, str], None],
        heals: bool = True,
    ):
        """Makes the env. If `make` raises, the exception propagates.

        name: names the env in messages, e.g. "worker 1: env 3 (doom_basic)".
        stepping: [1] int in shared memory, set to `env_index` before each call on the env, so that the main
            process can tell in which env this process is stuck or has died.
        report_rebuild: called with a line and a traceback for each exception that led to a rebuild.
        heals: whether the env is rebuilt after an exception; otherwise its exceptions propagate.
        """
        self._make = make
        self.name = name
        self._env_index = env_index
        self._stepping = stepping
        self._report_rebuild = report_rebuild
        self._heals = heals
        self._use(make())
        self.num_agents = self._env.num_agents
        self.kinds = self._env.kinds
        self.takes_turns = self._env.takes_turns
        self._shaping: dict[int, Mapping[str, Any]] = {}  # by agent; absent: the env's default
        self._training_info: Mapping[str, Any] = {}
        # As StepResult.active, after the last reset, by `reset` or by a rebuild.
        self.active_after_reset: np.ndarray | None = None
        self._seed: int | None = None
        # Caught before the step, which raises it again, so that the env is rebuilt.
        self._early_error: BaseException | None = None
        self._rebuilds: list[float] = []  # their times

    def reset(self, seed: int | None, into: ObservationRows) -> None:
        """Starts the first episode of every agent, and sets `active_after_reset`. seed: of this env; None for
        a random one. into: receives the first observations."""
        self._seed = seed
        self._stepping[0] = self._env_index
        try:
            self.active_after_reset = self._env.reset(seed, into)
            self._use_replaced()
        except BaseException as error:  # any error of a user's env; Failure if it keeps happening
            self._rebuild("reset", error, into)

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult | None:
        """Steps the env. Returns None if the env raised and has been rebuilt. actions: [agents, K] float32.
        into: receives the next observations."""
        self._stepping[0] = self._env_index
        try:
            self._raise_early_error()
            result = self._env.step(actions, into)
            self._use_replaced()
            return result
        except BaseException as error:  # as in reset
            self._rebuild("step", error, into)
            return None

    @functools.cached_property
    def _encoders_of_scripts(self) -> list[Callable[[Any], np.ndarray]]:
        """Functions, one per kind of agents, that encode the action of a scripted player, from the env's
        action space, as a row of numbers, [K] float32."""
        return [action_encoder(spaces.action) for spaces in self.kinds.spaces]

    def scripted_action(self, player: str, agent: int) -> np.ndarray:
        """Returns the action that a scripted player chooses for an agent now, [K] float32. If the player
        raises, returns an empty array, and the next `step` handles the exception by a rebuild."""
        encode = self._encoders_of_scripts[self.kinds.of_agent[agent]]
        self._stepping[0] = self._env_index
        try:
            return encode(self._scripted.scripted_action(player, agent))
        except BaseException as error:  # as in reset
            self._early_error = self._early_error or error
            return np.zeros(0, np.float32)

    @property
    def steps_in_background(self) -> bool:
        """Whether the env can compute a step in background threads, between `send` and `receive`."""
        return self._env.steps_in_background

    @property
    def resets_itself(self) -> bool:
        """Whether the env begins episodes without a call of `reset`, so that training info is sent to it at
        once, not with the next reset."""
        return self._env.training_info.resets_itself

    def send(self, actions: np.ndarray) -> None:
        """Starts a step of an env that `steps_in_background`. An exception is kept until `receive`."""
        self._stepping[0] = self._env_index
        try:
            self._env.send(actions)
        except BaseException as error:  # as in reset
            self._early_error = self._early_error or error

    def receive(self, into: ObservationRows) -> StepResult | None:
        """Waits until the step that `send` has started ends, and returns its result. Returns None if the env
        raised and has been rebuilt. into: receives the next observations."""
        self._stepping[0] = self._env_index
        try:
            self._raise_early_error()
            return self._env.receive(into)
        except BaseException as error:  # as in reset
            self._rebuild("step", error, into)
            return None

    def _raise_early_error(self) -> None:
        error, self._early_error = self._early_error, None
        if error is not None:
            raise error

    def set_reward_shaping(self, shaping: Mapping[str, Any], agent: int) -> None:
        """Sets the reward shaping of an agent; a rebuilt env gets it too. See envs.abilities.RewardShaping.
        Raises a permanent Failure if the env rejects the shaping."""
        self._shaping[agent] = shaping
        try:
            self._reward_shaping.set_reward_shaping(shaping, agent)
        except BaseException as error:  # any error of a user's env; a rebuilt env would reject it too
            pass_on(error)
            text = f"rejects the reward shaping {shaping}: {one_line(error)}"
            raise Failure.of(error, self.name, text, permanent=True) from error

    def set_training_info(self, training_info: Mapping[str, Any]) -> None:
        """Sends training info, values by name that depend on the progress of training, to the env; a rebuilt
        env gets the values too. Raises a Failure if the env rejects them."""
        self._training_info = training_info
        try:
            self._env.training_info.put(training_info)
        except EnvContractError as error:  # a rebuilt env would reject them too
            raise Failure.of(error, self.name, one_line(error)) from error

    def spread_episodes(self, seed: int) -> bool:
        """Before the first reset: makes the first episodes of a batched simulator end at different times.
        Returns False, and does nothing, for any other env."""
        find_ability(self._env.env, SpreadsEpisodes).spread_episodes(seed)
        return self.is_simulator

    @property
    def is_simulator(self) -> bool:
        """Whether the env is a batched simulator, which steps many copies of an env at once."""
        return type(find_ability(self._env.env, SpreadsEpisodes)) is not SpreadsEpisodes

    def process_is_gone(self) -> bool:
        """Returns whether a process that the env's simulator runs in has died; False if the env has no such
        process."""
        return self._process.process_is_gone()

    def close(self) -> None:
        """Closes the env. An exception is only logged: the end of this process frees all resources."""
        self._stepping[0] = in_close(self._env_index)
        try:
            self._env.close()
        except BaseException as error:  # any error of a user's env
            pass_on(error)
            log.warning("%s raised in close: %s", self.name, one_line(error))

    def _use(self, env: MultiAgentEnv) -> None:
        self._env = env
        self._own = env.env
        # Found once: a search asks each wrapper, and each copy in a SyncVectorEnv.
        self._reward_shaping = find_reward_shaping(env.env)
        self._process = find_ability(env.env, OwnsProcess)
        self._scripted = find_ability(env.env, ScriptedPlayers)

    def _use_replaced(self) -> None:
        """If a reset has replaced the wrapped env by one for another level, uses the new env from now on, and
        sends it the reward shaping."""
        if self._env.env is not self._own:
            self._use(self._env)
            self._send_shaping()

    def _send_shaping(self) -> None:
        for agent, shaping in self._shaping.items():
            self._reward_shaping.set_reward_shaping(shaping, agent)

    def _rebuild(self, call: str, error: BaseException, into: ObservationRows) -> None:
        """Makes a new env and resets it, again and again until neither raises; then reports all exceptions.

        call: name of the call that raised `error`, e.g. "step". into: receives the first observations.
        Raises a permanent Failure if there were too many rebuilds lately or an exception is permanent, and
        the exception itself if envs are not to be rebuilt.
        """
        raised: list[tuple[str, BaseException]] = []
        while True:
            self._count(call, error)
            raised.append((call, error))
            self.close()
            self._stepping[0] = self._env_index
            try:
                call = "make"
                self._use(self._make())
                call = "reset"
                if self._training_info:
                    self._env.training_info.put(self._training_info)
                self._send_shaping()
                # Another seed: the same one may make the env raise again.
                seed = None if self._seed is None else (self._seed + len(self._rebuilds)) % SEED_LIMIT
                self.active_after_reset = self._env.reset(seed, into)
                break
            except BaseException as next_error:  # counted in the next attempt
                error = next_error
        for call, error in raised:
            text = f"{self.name} raised and is rebuilt; its current episodes are lost. In {call}: "
            self._report_rebuild(text + one_line(error), "".join(traceback.format_exception(error)))

    def _count(self, call: str, error: BaseException) -> None:
        """Counts a rebuild of the env, which is needed because `call`, e.g. "step", raised `error`. Raises a
        permanent Failure instead if there were too many rebuilds lately or if the error is permanent, and the
        error itself if envs are not to be rebuilt."""
        pass_on(error)
        if not self._heals:
            raise error
        if isinstance(error, Explained) and error.permanent:
            raise Failure.of(error, self.name, one_line(error)) from error
        now = time.monotonic()
        self._rebuilds.append(now)
        recent = sum(then > now - REBUILD_SECONDS for then in self._rebuilds)
        if recent > MAX_REBUILDS:
            text = f"raised {recent} times within {REBUILD_SECONDS:g} s, the last time in {call}: "
            raise Failure.of(error, self.name, text + one_line(error), permanent=True) from error


class SimulatorWatch(threading.Thread):
    """In a rollout worker: ends the process when a call on an env waits for a simulator that has died.

    The call cannot be interrupted, but the supervisor replaces a dead rollout worker. ViZDoom 1.3 waits
    forever if its engine dies while it holds the lock of the message queue (1 of 30 engines killed at work).
    """

    def __init__(self, envs: Sequence[GuardedEnv], stepping: np.ndarray, stopping: StopFlag):
        """Creates the thread without starting it. stepping: [1] int in shared memory, equal to i while
        envs[i] is being called. stopping: set when the worker stops."""
        super().__init__(name="simulator_watch", daemon=True)
        self._envs = envs
        self._stepping = stepping
        self._stopping = stopping

    def run(self) -> None:
        """Checks all envs every CHECK_SECONDS until the worker stops."""
        gone_seconds = [0.0] * len(self._envs)
        while not self._stopping.wait(CHECK_SECONDS):
            for i, env in enumerate(self._envs):
                is_waited_for = self._stepping[0] == i and env.process_is_gone()
                gone_seconds[i] = gone_seconds[i] + CHECK_SECONDS if is_waited_for else 0.0
                if gone_seconds[i] >= PATIENCE_SECONDS:
                    log.error("%s waits for its simulator, which is gone", env.name)
                    os._exit(EXIT_CODE)
