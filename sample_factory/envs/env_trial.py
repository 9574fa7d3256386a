"""A trial of an env before a run starts: a reset and a few random steps, which show most mistakes."""

import math
import time

import numpy as np

from sample_factory.envs.protocol import EnvContractError, MultiAgentEnv, ObservationRows, named_faults
from sample_factory.envs.random_actions import RandomActions
from sample_factory.spaces.actions import ACTION_MASK, action_layout
from sample_factory.spaces.agent_kinds import KindSpaces

MAX_STEPS = 100
MAX_SECONDS = 2.0  # no further step after this
FEW_STEPS = 4
ENOUGH_SECONDS = 0.03  # no further step after this and FEW_STEPS


def check_mask_size(spaces: KindSpaces) -> None:
    """Raises EnvContractError if agents observe an action mask that does not fit their actions, and
    ValueError for an unsupported action space."""
    sizes = action_layout(spaces.action).discrete_sizes
    mask = spaces.observation.spaces.get(ACTION_MASK)
    if mask is not None and math.prod(mask.shape) != sum(sizes):
        raise EnvContractError(
            f"observation {ACTION_MASK!r} has {math.prod(mask.shape)} numbers; it should have {sum(sizes)}, "
            f"one for each choice of the action space {' '.join(str(spaces.action).split())}"
        )


def try_out(env: MultiAgentEnv, env_name: str) -> float:
    """Resets the env and takes at least one random step. Returns the seconds of a step.

    The fastest quarter of the steps takes at most so long: the first ones, and those of a busy machine, take
    longer.

    Raises EnvError for whatever is wrong.
    """
    rows = ObservationRows.allocate(env.kinds)
    draw_actions = RandomActions(env.kinds, seed=0)
    start = time.monotonic()
    with named_faults(env_name, "reset"):
        active = env.reset(0, rows)
        _check_rows(env, rows, active)
    seconds = []
    for number in range(1, MAX_STEPS + 1):
        actions = draw_actions(rows)
        began = time.monotonic()
        with named_faults(env_name, "step"):
            result = env.step(actions, rows)
            seconds.append(time.monotonic() - began)
            _check_rewards(np.asarray(result.rewards, float))
            _check_rows(env, rows, result.active)
        passed = time.monotonic() - start
        if passed > MAX_SECONDS or (number >= FEW_STEPS and passed > ENOUGH_SECONDS):
            break
    return sorted(seconds)[len(seconds) // 4]


def _check_rewards(rewards: np.ndarray) -> None:
    for reward in rewards[~np.isfinite(rewards)]:
        raise EnvContractError(f"step returned the reward {reward}; it should be a finite number")


def _check_rows(env: MultiAgentEnv, rows: ObservationRows, active: np.ndarray | None) -> None:
    """Checks the numbers of the agents' observations. active: as StepResult.active."""
    for agent, kind in enumerate(env.kinds.of_agent):
        view = rows.view(agent)
        for key, array in view.items():
            if not np.isfinite(array).all():
                raise EnvContractError(
                    f"observation {key!r} has the value {array[~np.isfinite(array)][0]}; it should be finite"
                )
        is_active = active is None or active[agent]
        if ACTION_MASK in view and is_active:
            _check_mask(view[ACTION_MASK], action_layout(env.kinds.spaces[kind].action).discrete_sizes)


def _check_mask(mask: np.ndarray, sizes: tuple[int, ...]) -> None:
    for i, allowed in enumerate(np.split(mask.ravel(), np.cumsum(sizes)[:-1])):
        if not allowed.any():
            choice = f" for choice {i} of the action" if len(sizes) > 1 else ""
            raise EnvContractError(
                f"observation {ACTION_MASK!r} is all 0{choice}; it should allow at least one action, by a 1"
            )
