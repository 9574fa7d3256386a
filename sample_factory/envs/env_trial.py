"""The trial of an env: a reset and a few random steps show most mistakes of an env before a run starts."""

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sample_factory.envs.protocol import (
    NO_END_INFOS,
    EnvContractError,
    MultiAgentEnv,
    ObservationRows,
    StepResult,
    named_faults,
)
from sample_factory.envs.random_actions import RandomActions
from sample_factory.spaces.actions import ACTION_MASK, action_layout

MAX_STEPS = 100
MAX_SECONDS = 2.0  # no further step after this
FEW_STEPS = 4
ENOUGH_SECONDS = 0.03  # no further step after this and FEW_STEPS


class RandomStep(NamedTuple):
    """The result of a reset or of a random step; a reset has neither rewards nor ends.

    rows: hold the observations until the next step. seconds: duration; 0 for a reset.
    """

    result: StepResult
    rows: ObservationRows
    seconds: float


def random_steps(env: MultiAgentEnv, env_name: str) -> Iterator[RandomStep]:
    """Resets an env with the seed 0, then takes random steps without end, and yields each result. Raises
    Failure for what an adapter or `check_numbers` finds wrong."""
    rows = ObservationRows.allocate(env.kinds)
    draw_actions = RandomActions(env.kinds, seed=0)
    with named_faults(env_name, "reset"):
        result = StepResult((), (), (), NO_END_INFOS, env.reset(0, rows))
        check_numbers(env, rows, result)
    yield RandomStep(result, rows, 0.0)
    while True:
        actions = draw_actions(rows)
        with named_faults(env_name, "step"):
            began = time.monotonic()
            result = env.step(actions, rows)
            seconds = time.monotonic() - began
            check_numbers(env, rows, result)
        yield RandomStep(result, rows, seconds)


def try_out(env: MultiAgentEnv, env_name: str) -> float:
    """Resets the env and takes at least one random step. Raises Failure for any fault. Returns the seconds of
    a step, the first quartile: first steps, and steps on a busy machine, take longer."""
    seconds: list[float] = []
    start = time.monotonic()
    for number, step in enumerate(random_steps(env, env_name)):
        seconds += [step.seconds] * (number > 0)
        passed = time.monotonic() - start
        is_enough = passed > MAX_SECONDS or (number >= FEW_STEPS and passed > ENOUGH_SECONDS)
        if number == MAX_STEPS or (number and is_enough):
            break
    return sorted(seconds)[len(seconds) // 4]


def check_numbers(env: MultiAgentEnv, rows: ObservationRows, result: StepResult) -> None:
    """Raises EnvContractError for rewards and observations that are not finite, and for an agent that acts
    although its action mask allows no action."""
    active = result.active
    numbers = np.asarray(result.rewards, float)
    for reward in numbers[~np.isfinite(numbers)]:
        raise EnvContractError(f"step returned the reward {reward}; it should be a finite number")
    for agent, kind in enumerate(env.kinds.of_agent):
        view = rows.view(agent)
        for key, array in view.items():
            if not np.isfinite(array).all():
                raise EnvContractError(
                    f"observation {key!r} has the value {array[~np.isfinite(array)][0]}; it should be finite"
                )
        if ACTION_MASK not in view or not (active is None or active[agent]):
            continue
        sizes = action_layout(env.kinds.spaces[kind].action).discrete_sizes
        for i, allowed in enumerate(np.split(view[ACTION_MASK].ravel(), np.cumsum(sizes)[:-1])):
            if not allowed.any():
                choice = f" for choice {i} of the action" if len(sizes) > 1 else ""
                raise EnvContractError(
                    f"observation {ACTION_MASK!r} is all 0{choice}; it should allow at least one action, "
                    "by a 1"
                )
