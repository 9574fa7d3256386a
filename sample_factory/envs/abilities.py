"""Abilities beyond the Gymnasium API. An env declares one by inheriting; attributes are never probed.

An instance of an ability itself represents an env that does not have it.
"""

import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

Ability = TypeVar("Ability")


class RewardShaping:
    """An env whose reward is shaped by numbers that population-based training may change."""

    def get_default_reward_shaping(self) -> dict[str, Any]:
        """Returns the initial shaping, a (nested) dict of floats."""
        return {}

    def set_reward_shaping(self, shaping: Mapping[str, Any], agent: int) -> None:
        """Sets the shaping of an agent's rewards from its next episode on, or from the current one if that
        has had no step yet."""


class TrainingInfo:
    """An env that receives values of the training run, e.g. for a curriculum. Version 2 calls this class
    TrainingInfoInterface.

    training_info: the last values: `approx_total_training_steps`, the env frames that the policy was trained
        on so far; `policy_id`, the policy that plays the env's first agent in the episode; and whatever
        observers send. Empty where the env is not trained in, e.g. in `enjoy`.
    """

    training_info: Mapping[str, Any] = types.MappingProxyType({})

    def set_training_info(self, training_info: Mapping[str, Any]) -> None:
        """Called with all values before the first reset, and again when some have changed, before the reset
        that begins the next episode.

        An env that resets itself (a multi-agent env with lists, a VectorEnv or an env in a SyncVectorEnv) is
        called between two steps instead: the values are for its next reset, and with several policies they
        are those of the policy that plays the first agent in the current match.
        """
        self.training_info = training_info


class ChangesLevel:
    """An env that can play another level without being made anew, see --levels."""

    def change_level(self, values: Mapping[str, Any]) -> bool:
        """Called before a reset that begins an episode of another level, also before the first one.

        values: flag of the family -> value, for all flags in which levels differ; as in `cfg` of make_env.

        Returns whether the reset will begin that level. False: nothing has changed, and the env is closed and
        made anew with these values.
        """
        return False


class StepsInBackground:
    """A Gymnasium VectorEnv whose `step` has two halves, between which it computes in threads of its own.

    The outermost wrapper of an env has to have the ability. Inherit from this class before VectorEnv, whose
    `step` it replaces.
    """

    def send(self, actions: Any) -> None:
        """Starts a step. actions: a batch of the action space."""
        raise NotImplementedError

    def receive(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Waits for the end of the step, and returns what `step` would."""
        raise NotImplementedError

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.send(actions)
        return self.receive()


class OwnsProcess:
    """An env that runs simulators in processes of their own."""

    @property
    def num_processes(self) -> int:
        """Number of simulator processes, for the limit of the machine's memory."""
        return 1

    def process_is_gone(self) -> bool:
        """Returns whether a simulator has died although the env still needs it. Called from any thread."""
        return False


class NamesActions:
    """An env that describes actions in words, for the pictures of a policy."""

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
    """An env whose package has scripted players, e.g. bots, which can play in place of a policy."""

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
    """A VectorEnv whose copies begin together, and can let their first episodes end at different times."""

    def spread_episodes(self, seed: int) -> None:
        """Lets the first episodes of the copies end at different times. Called before the first reset of a
        training, in place of random first steps."""


class LimitsEpisodes:
    """An env whose episodes end after a known number of steps at the latest."""

    def max_episode_steps(self) -> int | None:
        """Returns the maximum number of steps of an episode, or None if not known. Called before the first
        reset."""
        return None


class PlaysInTeams:
    """A multi-agent env with several teams. Without it, all agents of an env are one team; only the agents of
    a VectorEnv, which are copies, play alone. A VectorEnv of copies with several players each has a team for
    each copy."""

    def teams(self) -> Sequence[int] | None:
        """Returns the team number of each agent; None if all are one team. Called before the first reset."""
        return None


class SplitsScreen:
    """A multi-agent env whose picture is a grid with a part for each agent, row by row."""

    def screen_grid(self) -> tuple[int, int]:
        """Returns the numbers of columns and rows of the grid."""
        return 1, 1


class HoldsEnv:
    """An object that holds an env in its attribute `env`, and is no wrapper of a library."""


def find_ability(env: Any, ability: type[Ability]) -> Ability:
    """Returns the object that has an ability: the env, or the outermost of what its wrappers contain. If none
    has the ability, returns an instance of the ability itself, whose methods are defaults."""
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
    """Returns all objects that have an ability: the one that `find_ability` finds in an env, or else one for
    each env of a SyncVectorEnv, in their order; empty if none has it."""
    import gymnasium as gym  # here, see wrapper_classes

    found = [find_ability(env, ability)]
    if type(found[0]) is ability and isinstance(env, gym.vector.VectorEnv):
        inner = env.unwrapped
        copies = inner.envs if isinstance(inner, gym.vector.SyncVectorEnv) else ()
        found = [find_ability(copy, ability) for copy in copies]
    return found if any(type(own) is not ability for own in found) else []


def max_episode_steps(env: Any) -> int | None:
    """Returns the steps after which an episode of a user's env ends at the latest; None if not known."""
    import gymnasium as gym  # here, see wrapper_classes

    limit = find_ability(env, LimitsEpisodes).max_episode_steps()
    if limit is None and isinstance(env, (gym.Env, gym.vector.VectorEnv)) and env.spec is not None:
        return env.spec.max_episode_steps
    return limit


def find_reward_shaping(env: Any) -> RewardShaping:
    """Returns the object that shapes an env's rewards; for a SyncVectorEnv, one for all its envs together."""
    found = find_abilities(env, RewardShaping)
    return found[0] if len(found) == 1 else _ShapedCopies(found)


class _ShapedCopies(RewardShaping):
    """Shapes the rewards of several copies of an env, each of which is an agent; without copies, of none."""

    def __init__(self, copies: Sequence[RewardShaping]):
        self._copies = copies

    def get_default_reward_shaping(self) -> dict[str, Any]:
        return self._copies[0].get_default_reward_shaping() if self._copies else {}

    def set_reward_shaping(self, shaping: Mapping[str, Any], agent: int) -> None:
        if self._copies:
            self._copies[agent].set_reward_shaping(shaping, 0)


def wrapper_classes() -> tuple[type, ...]:
    """Returns the classes whose instances have an env in their attribute `env`."""
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
