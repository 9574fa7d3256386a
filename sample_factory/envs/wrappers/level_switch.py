"""Lets each episode of an env play one of several levels."""

from collections.abc import Callable, Sequence

import numpy as np

from sample_factory.config.flags import ConfigError
from sample_factory.envs.abilities import ChangesLevel, TrainingInfo, find_ability
from sample_factory.envs.levels import FIXED, Level
from sample_factory.envs.protocol import (
    EMPTY_INFO,
    LEVEL,
    SEED_LIMIT,
    EnvAround,
    EnvConfig,
    MultiAgentEnv,
    ObservationRows,
    StepResult,
)

LEVEL_WEIGHTS = "level_weights"  # entry of the training info: how often each level is drawn, relative
STREAM = 1  # of random numbers, beside those that the env draws from the same seed


class LevelSwitch(EnvAround):
    """Wraps a MultiAgentEnv, and chooses the level of each episode. Promises:

    1. The end info of each episode has the name of the level in which it was played.
    2. The first level is number env_id modulo the number of levels, unless its weight is 0. The level changes
       only between episodes of all agents. If the env cannot change its level itself (ChangesLevel), it is
       closed before an env of the next level is made: at most one env is open at a time.
    3. The levels that are drawn, and the seeds of envs that are made, follow from the first seed.
    """

    def __init__(
        self,
        levels: Sequence[Level],
        make: Callable[[Level], MultiAgentEnv],
        choice: str,
        env_config: EnvConfig,
    ):
        """Makes the env of the first level. choice: value of --level_choice. Raises ConfigError if the env
        would have to change its level between two episodes and cannot."""
        self._levels = levels
        self._make = make
        self._in_turn: int = env_config.levels_in_turn
        keeps_level = self._in_turn % len(levels) == 0 if self._in_turn else choice == FIXED
        self._is_fixed = len(levels) == 1 or keeps_level
        self._now: int = env_config.env_id % len(levels)
        super().__init__(make(levels[self._now]))
        self.steps_in_background = self._env.steps_in_background
        self._rng = np.random.default_rng()
        self._run = TrainingInfo()  # gets the values of the run
        self._is_begun = False  # an episode, so that the next reset ends it
        self._next: int | None = None  # level for which another env has to be made
        if self.training_info.resets_itself and not self._is_fixed:
            self._env.close()
            has = f"{levels[0].env_name} begins its episodes itself, so that each env keeps one level"
            if self._in_turn:
                raise ConfigError(f"--levels: {has}; choose one of the {len(levels)} levels")
            raise ConfigError(f"--level_choice={choice}: {has}; use --level_choice={FIXED}")
        self._follow()

    def _follow(self) -> None:
        if not self._is_fixed:
            self.training_info.receivers.append(self._run)
            self.training_info.before_reset.append(self._choose)

    def reset(self, seed: int | None, into: ObservationRows) -> np.ndarray | None:
        self._rng = np.random.default_rng(None if seed is None else [seed, STREAM])
        self._is_begun = False
        if not self._is_fixed:
            self.training_info.deliver()
            if not self._weights()[self._now]:
                self._go_to(self._draw())
        return self._begin(seed, into)

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        return self._complete(
            self._levels[self._now].name, self.next_seeds[:], self._env.step(actions, into), into
        )

    def send(self, actions: np.ndarray) -> None:
        self._env.send(actions)

    def receive(self, into: ObservationRows) -> StepResult:
        return self._complete(self._levels[self._now].name, [], self._env.receive(into), into)

    def _complete(
        self, level: str, seeds: Sequence[int], result: StepResult, into: ObservationRows
    ) -> StepResult:
        """Adds the name of the played level to the end infos of a step. If the next level needs another env,
        makes it and begins its first episode.

        level: name of the level that was played. seeds: `next_seeds` before the step.
        """
        ended = np.flatnonzero(np.logical_or(result.terminated, result.truncated)).tolist()
        if not ended:
            return result
        named = {agent: {**result.end_infos.get(agent, EMPTY_INFO), LEVEL: level} for agent in ended}
        result = result._replace(end_infos={**result.end_infos, **named})
        if self._next is None:
            return result
        is_seeded = seeds and not self.next_seeds  # the env of the former level has used the seed up
        seed = seeds[-1] if is_seeded else int(self._rng.integers(SEED_LIMIT))
        return result._replace(active=self._begin(seed, into))

    def _choose(self) -> None:
        """Draws the next level and switches to it; called before each reset of the env inside. Does nothing
        before the first episode, whose level is chosen already."""
        if self._is_begun:
            self._go_to(self._draw())

    def _draw(self) -> int:
        """Returns the index of the next level: in turn if the EnvConfig has `levels_in_turn`, else drawn by
        `_weights`."""
        if self._in_turn:
            return (self._now + self._in_turn) % len(self._levels)
        weights = self._weights()
        return int(self._rng.choice(len(weights), p=weights / weights.sum()))

    def _weights(self) -> np.ndarray:
        """Returns the relative weight with which each level is drawn, [number of levels]: LEVEL_WEIGHTS in
        the training info, 1 for each level without this entry."""
        return np.array(self._run.training_info.get(LEVEL_WEIGHTS, [1.0] * len(self._levels)))

    def _go_to(self, number: int) -> None:
        """Switches the env to a level, by its index; if the env cannot, stores the index in `_next`, and
        `_begin` makes another env."""
        now, then = self._levels[self._now], self._levels[number]
        if number == self._now:
            return
        is_same_env = (now.env_name, now.arguments) == (then.env_name, then.arguments)
        if is_same_env and find_ability(self.env, ChangesLevel).change_level(then.flags):
            self._now = number
        else:
            self._next = number

    def _begin(self, seed: int | None, into: ObservationRows) -> np.ndarray | None:
        """Starts an episode, after making another env if the next level needs one. Returns which
        agents act in the first step, [num_agents] bool; None: all."""
        self._is_begun = False
        if self._next is not None:
            former = self._env
            former.close()
            self._now, self._next = self._next, None
            self._env = self._make(self._levels[self._now])
            self.at_end.extend(former.at_end)
            if self._run.training_info:
                self.training_info.put(self._run.training_info)
            self._follow()
        active = self._env.reset(seed, into)
        self._is_begun = True
        return active
