"""Batched simulators made of envs of jumanji, navix and craftax, which are pure functions.

    python examples/functional_envs.py train --env=snake --experiment=snake --vector_env_copies=64

--env is `snake` (jumanji 1.1, whose action mask is kept), `rooms` (navix 0.7) or `crafting` (craftax 1.6).
The other commands are eval, enjoy and export.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from sample_factory import register_env
from sample_factory.__main__ import command


class Functional:
    """Copies of an env with discrete actions.

    reset, step: functions of the env, for one copy. `reset` takes a random key, `step` a state and an action.
    metadata: say when it resets an env: in the step that ends the episode, or in the next one.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int, num_actions: int, reset: Callable[..., Any], step: Callable[..., Any]):
        import jax

        self.num_envs = num_envs
        self.single_action_space = gym.spaces.Discrete(num_actions)
        self._reset = jax.jit(jax.vmap(reset))
        self._step = jax.jit(jax.vmap(step))
        self._state: Any = None
        self._random = jax.random
        self.seed(0)

    def seed(self, seed: int) -> None:
        self._key = self._random.key(seed)

    def _keys(self) -> Any:
        self._key, key = self._random.split(self._key)
        return self._random.split(key, self.num_envs)


class Jumanji(Functional):
    """Observations are NamedTuples, and those named `action_mask` are masks."""

    def __init__(self, env_id: str, num_envs: int, **options: Any):
        import jumanji
        from jumanji.wrappers import AutoResetWrapper

        env = AutoResetWrapper(jumanji.make(env_id, **options))
        super().__init__(num_envs, env.action_spec.num_values, env.reset, env.step)

    def reset(self) -> Mapping[str, Any]:
        self._state, timestep = self._reset(self._keys())
        return timestep.observation._asdict()

    def step(self, actions: Any) -> tuple[Any, ...]:
        self._state, timestep = self._step(self._state, actions)
        # `discount` is 0 where the episode is over, and not at a limit of time that the agent does not know.
        infos = {"time_outs": timestep.last() & (timestep.discount > 0), **timestep.extras}
        return timestep.observation._asdict(), timestep.reward, timestep.last(), infos


class Navix(Functional):
    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, env_id: str, num_envs: int, **options: Any):
        import navix

        env = navix.make(env_id, **options)
        super().__init__(num_envs, len(env.action_set), env.reset, env.step)

    def reset(self) -> Any:
        self._state = self._reset(self._keys())
        return self._state.observation

    def step(self, actions: Any) -> tuple[Any, ...]:
        self._state = timestep = self._step(self._state, actions)
        return (
            timestep.observation,
            timestep.reward,
            timestep.is_termination(),
            timestep.is_truncation(),
            {},
        )


class Craftax(Functional):
    """`done` includes the time limit, and nothing tells it from the end of a game."""

    def __init__(self, env_id: str, num_envs: int):
        from craftax.craftax_env import make_craftax_env_from_name

        env = make_craftax_env_from_name(env_id, auto_reset=True)
        super().__init__(num_envs, env.action_space(env.default_params).n, env.reset, env.step)

    def reset(self) -> Any:
        observations, self._state = self._reset(self._keys())
        return observations

    def step(self, actions: Any) -> tuple[Any, ...]:
        observations, self._state, *results = self._step(self._keys(), self._state, actions)
        return observations, *results  # rewards, done, and infos with achievements


def make_snake(num_envs: int = 256) -> Jumanji:
    return Jumanji("Snake-v1", num_envs, num_rows=6, num_cols=6)


def make_rooms(num_envs: int = 256) -> Navix:
    return Navix("Navix-Empty-5x5-v0", num_envs)


def make_crafting(num_envs: int = 256) -> Craftax:
    return Craftax("Craftax-Classic-Symbolic-v1", num_envs)


COMMANDS = ("train", "eval", "enjoy", "export")


def main(argv: list[str]) -> int:
    """Runs a command. argv: its name, then flags. Returns the exit code."""
    register_env("snake", make_snake)
    register_env("rooms", make_rooms)
    register_env("crafting", make_crafting)
    if not argv or argv[0] not in COMMANDS:
        print(f"usage: python {sys.argv[0]} {'|'.join(COMMANDS)} --env=NAME [flags]", file=sys.stderr)
        return 2
    return command(argv[0])(argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
