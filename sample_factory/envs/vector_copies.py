"""The flag --vector_env_copies, which every family has whose envs can be batched, and copies in Python."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sample_factory.config.flags import flag

if TYPE_CHECKING:
    import gymnasium as gym


def vector_env_copies_flag(default: int, advice: str = "") -> Any:
    """Returns the field of a family's flags. advice: the end of the help, e.g. when many copies are faster.

    v2 calls the flag --env_agents.
    """
    text = "make each env a batch of this many copies, each with an agent of its own, stepped in one call"
    return flag(
        default,
        f"{text}; {advice}" if advice else text,
        aliases=("env_agents",),
        at_least=1,
        at_most=100_000,
    )


def copies_in_turn(make: "Callable[[], gym.Env[Any, Any]]", num_copies: int) -> "gym.vector.SyncVectorEnv":
    """Returns copies that are stepped one after another, none of which spends a step on its reset."""
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    return SyncVectorEnv([make] * num_copies, autoreset_mode=AutoresetMode.SAME_STEP)
