"""Abilities beyond the Gymnasium API. An env declares one by inheriting; attributes are never probed.

`find_ability` returns an instance of the ability class itself, with default methods, for an env without it.
"""

import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

Ability = TypeVar("Ability")


class RewardShaping:
    """Ability of an env to shape its rewards by coefficients, which population-based training may change."""

    def get_default_reward_shaping(self) -> dict[str, Any]:
        """Returns the initial coefficients, a (nested) dict of floats."""
        return {}

    def set_reward_shaping(self, shaping: Mapping[str, Any], agent: int) -> None:
        """Sets the coefficients that shape the rewards of an agent, from its next episode on; from the
        current episode on if that episode has had no step yet."""


class TrainingInfo:
    """Ability of an env that receives values of the training run, e.g. for a curriculum. Version 2 calls this
    class TrainingInfoInterface.

    training_info: the values that were received last: `approx_total_training_steps`, the number of env frames
        that the policy was trained on so far; `policy_id`, the policy that plays the env's first agent in the
        episode; and the entries that observers add. Empty where no training runs, e.g. in `enjoy`.
    """

    training_info: Mapping[str, Any] = types.MappingProxyType({})

    def set_training_info(self, training_info: Mapping[str, Any]) -> None:
        """Receives all values before the first reset; later, if a value has changed, before the reset that
        begins the next episode.

        An env that resets itself (a multi-agent env with lists, a VectorEnv or an env in a SyncVectorEnv)
        gets changed values between two steps, and should use them from its next reset on. With several
        policies, it gets the values of the policy that plays its first agent in the current match.
        """
        self.training_info = training_info


class ChangesLevel:
    """Ability of an env that can switch to another level without being made anew, see --levels."""

    def change_level(self, values: Mapping[str, Any]) -> bool:
        """Switches to another level. Called before the reset that begins an episode of the level, also if
        this is the first reset of the env.

        values: flag of the env's family -> value, for all flags in which the levels differ; the values have
            the same types as the attributes of `cfg` in make_env.

        Returns True if the next reset begins the new level. If it returns False, the env should have changed
        nothing: the env is closed, and another one is made with these values.
        """
        return False


class StepsInBackground:
    """Ability of a Gymnasium VectorEnv that computes steps in its own threads: `send` starts a step, and
    `receive` waits for its end.

    The outermost wrapper of an env has to have the ability. Inherit from this class before VectorEnv, whose
    `step` it replaces.
    """

    def send(self, actions: Any) -> None:
        """Starts a step. actions: a batch of the action space."""
        raise NotImplementedError

    def receive(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Waits for the end of the step that `send` has started, and returns what `step` would."""
        raise NotImplementedError

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.send(actions)
        return self.receive()


class OwnsProcess:
    """Ability of an env that runs simulators in separate processes."""

    @property
    def num_processes(self) -> int:
        """Number of simulator processes of the env, by which the need for memory is estimated before a
        run."""
        return 1

    def process_is_gone(self) -> bool:
        """Returns whether a simulator has died although the env still needs it. Called from any thread."""
        return False


class NamesActions:
    """Ability of an env that describes actions in words, for the pictures of `enjoy` and for exported
    policies."""

    def action_text(self, action: Any) -> str:
        """Returns a short text about an action of the env's space; by default its numbers."""
        return "action " + " ".join(f"{number:.3g}" for number in _numbers(action))


def _numbers(action: Any) -> Iterator[float]:
    """Yields all numbers of an action, in the order of its space."""
    if isinstance(action, tuple | Mapping):
        for part in action.values() if isinstance(action, Mapping) else action:
            yield from _numbers(part)
    else:
        yield from np.ravel(action).tolist()


class ScriptedPlayers:
    """Ability of an env with scripted players, e.g. the bots of a game, which can play in place of a
    policy."""

    def scripted_players(self) -> tuple[str, ...]:
        """Returns the names of the scripted players."""
        return ()

    def scripted_action(self, player: str, agent: int) -> Any:
        """Returns the action, of the agent's action space, that a scripted player would choose for an agent
        now, without an effect on the env, except on its random numbers.

        agent: index in the env's list of agents.
        """
        raise NotImplementedError


class SpreadsEpisodes:
    """Ability of a VectorEnv whose copies begin together, and can let their first episodes end at different
    times."""

    def spread_episodes(self, seed: int) -> None:
        """Makes the first episodes of the copies end at different times, drawn from `seed`. Called before the
        first reset of a training run, which then does not spread the copies by random steps."""


class LimitsEpisodes:
    """Ability of an env whose episodes have a known maximum length."""

    def max_episode_steps(self) -> int | None:
        """Returns the maximum number of steps of an episode, or None if not known. Called before the first
        reset."""
        return None


class PlaysInTeams:
    """Ability of a multi-agent env with several teams.

    Without this ability, all agents of an env are one team, except in a VectorEnv: there, each agent is a
    copy and plays alone. A VectorEnv whose copies have several players each needs this ability; the team of
    an agent is then the index of the copy in which it plays.
    """

    def teams(self) -> Sequence[int] | None:
        """Returns the team number of each agent; None if all are one team. Called before the first reset."""
        return None


class SplitsScreen:
    """Ability of a multi-agent env whose picture is a grid with a part for each agent, row by row."""

    def screen_grid(self) -> tuple[int, int]:
        """Returns into how many columns and rows the env's picture is split, one part for each agent, so that
        a text about an agent can be drawn in its part. (1, 1): the picture is not split."""
        return 1, 1


class HoldsEnv:
    """Marks a class whose attribute `env` is an env, so that abilities are also searched for in that env. For
    classes that do not inherit from a wrapper class of Gymnasium, gym or PettingZoo."""


def find_ability(env: Any, ability: type[Ability]) -> Ability:
    """Returns the outermost object that inherits from an ability: the env itself, or an env inside its
    wrappers. If no object does, returns an instance of the ability, whose methods return defaults."""
    wrappers = wrapper_classes()
    found: Any = env
    while isinstance(found, wrappers) and not isinstance(found, ability):
        found = vars(found)["env"]
    pettingzoo = sys.modules.get("pettingzoo.utils")
    is_parallel = pettingzoo is not None and isinstance(found, vars(pettingzoo)["ParallelEnv"])
    if is_parallel and not isinstance(found, ability):
        found = found.unwrapped  # PettingZoo's conversion of a turn-based env is no wrapper
    return found if isinstance(found, ability) else ability()


def find_abilities(env: Any, ability: type[Ability]) -> list[Ability]:
    """Returns the objects of an env that have an ability: usually one, by `find_ability`; for a SyncVectorEnv
    without the ability, one for each of its envs, in order. Empty if no object has the ability."""
    import gymnasium as gym  # here, see wrapper_classes

    found = [find_ability(env, ability)]
    if type(found[0]) is ability and isinstance(env, gym.vector.VectorEnv):
        inner = env.unwrapped
        copies = inner.envs if isinstance(inner, gym.vector.SyncVectorEnv) else ()
        found = [find_ability(copy, ability) for copy in copies]
    return found if any(type(own) is not ability for own in found) else []


def max_episode_steps(env: Any) -> int | None:
    """Returns the maximum number of steps of an episode of a user's env, by its ability LimitsEpisodes or its
    Gymnasium spec; None if neither has a limit."""
    import gymnasium as gym  # here, see wrapper_classes

    limit = find_ability(env, LimitsEpisodes).max_episode_steps()
    if limit is None and isinstance(env, (gym.Env, gym.vector.VectorEnv)) and env.spec is not None:
        return env.spec.max_episode_steps
    return limit


def find_reward_shaping(env: Any) -> RewardShaping:
    """Returns the RewardShaping of an env; for a SyncVectorEnv whose copies have the ability, one
    RewardShaping for all copies. Without the ability, the returned object has no coefficients."""
    found = find_abilities(env, RewardShaping)
    return found[0] if len(found) == 1 else _ShapedCopies(found)


class _ShapedCopies(RewardShaping):
    """Passes reward coefficients on to the copies of a vector env; agent i plays in copy i. Without copies,
    there are no coefficients, and new ones are ignored."""

    def __init__(self, copies: Sequence[RewardShaping]):
        self._copies = copies

    def get_default_reward_shaping(self) -> dict[str, Any]:
        return self._copies[0].get_default_reward_shaping() if self._copies else {}

    def set_reward_shaping(self, shaping: Mapping[str, Any], agent: int) -> None:
        if self._copies:
            self._copies[agent].set_reward_shaping(shaping, 0)


def wrapper_classes() -> tuple[type, ...]:
    """Returns the classes by which `isinstance` recognises a wrapper, whose attribute `env` is the wrapped
    env. Classes of gym and PettingZoo are included if these packages are imported."""
    import gymnasium as gym  # here, since the commands import this module and have to start quickly

    classes: tuple[type, ...] = (HoldsEnv, gym.Wrapper, gym.vector.VectorWrapper)
    # A library that is not imported has made no wrapper.
    for name, wrappers in (
        ("pettingzoo.utils", ("BaseParallelWrapper", "BaseWrapper")),
        ("gym", ("Wrapper",)),
    ):
        if name in sys.modules:
            classes += tuple(vars(sys.modules[name])[wrapper] for wrapper in wrappers)
    return classes
