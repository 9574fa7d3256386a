"""The `generals_` family: its names, its flags, and defaults of other flags. Imports no Generals."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sample_factory.config.flags import ConfigError, Not, flag
from sample_factory.envs.env_family import FamilyParts
from sample_factory.envs.family_flags import refuse_frameskip
from sample_factory.envs.protocol import EnvConfig

PREFIX = "generals_"
MIN_SIDE = 4  # fields
MAX_SIDE = 24
ONLINE = "generals_1v1"  # the maps of the site's duels, 18x18 to 23x23 with 9 to 11 cities
NO_OPPONENT = "none"
OPPONENTS = ("random", "expander")  # the bots of the package


# Height and width of the observation by the name of the env.
SIDES: Mapping[str, int] = {
    **{f"{PREFIX}{side}x{side}": side for side in range(MIN_SIDE, MAX_SIDE + 1)},
    ONLINE: MAX_SIDE,
}


@dataclass(frozen=True)
class GeneralsFlags:
    """Flags of Generals."""

    generals_opponent: str = flag(
        NO_OPPONENT,
        "bot of the package that plays the second side, so that the env has one agent; none: both sides are "
        "agents, for self-play",
        choices=(NO_OPPONENT, *OPPONENTS),
    )
    generals_grid_size: int = flag(
        0,
        "smallest height and width of a map, drawn up to the size in the env's name and padded to it; 0: "
        "always the size in the name",
        at_least=0,
        at_most=MAX_SIDE,
    )
    generals_mountains: float = flag(
        0.15, "share of fields that are mountains", at_least=0, at_most=0.5, only_with={"env": Not((ONLINE,))}
    )
    generals_cities: float = flag(
        0.04,
        "share of fields that are neutral cities",
        at_least=0,
        at_most=0.3,
        only_with={"env": Not((ONLINE,))},
    )
    generals_time_limit: int = flag(
        0,
        "turns after which a game is drawn; 0: 40 per row of the map, in generals_1v1 2000",
        at_least=0,
        at_most=100_000,
    )
    generals_memory: bool = flag(
        True,
        "observe what was seen before: cities, mountains, the enemy's general and armies; and last moves",
    )
    generals_shaping: float = flag(
        1.0,
        "weight of the potential-based reward: logarithmic ratios of land, army and castles, whose sum is at "
        "most 1; 0: only the result of the game, 1 or -1, is rewarded",
        at_least=0,
    )


def make_generals_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> Any:
    """Makes a duel in Generals as a PettingZoo ParallelEnv; with --generals_opponent, a Gymnasium env of one
    agent. Raises ConfigError for flags that do not fit the name."""
    refuse_frameskip(cfg, "Generals skips no turns; leave it at 1")
    side = SIDES[full_env_name]
    is_online = full_env_name == ONLINE
    smallest = cfg.generals_grid_size
    if is_online and smallest:
        raise ConfigError(f"--generals_grid_size: the maps of {full_env_name} have the sizes of the site")
    if smallest and not MIN_SIDE <= smallest <= side:
        raise ConfigError(
            f"--generals_grid_size={smallest} should be {MIN_SIDE} to {side} in {full_env_name}"
        )
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # pygame, which the package imports, greets
    from generals.core.grid import GridFactory

    from sample_factory.envs.wrappers.potential_shaping import ParallelPotentialShaping
    from sample_factory.families.generals.generals_env import AgainstBot, GeneralsEnv, assets_potential

    if is_online:
        factory = GridFactory("generalsio")
    else:
        shares = cfg.generals_mountains, cfg.generals_cities
        factory = GridFactory("uniform", (smallest or side,) * 2, (side, side), *shares)
    # In 40 turns per row of the map, games of good players end nearly always.
    time_limit = cfg.generals_time_limit or (2000 if is_online else 40 * side)
    env: Any = GeneralsEnv(side, factory, time_limit, cfg.generals_memory, render_mode)
    if cfg.generals_shaping > 0:
        env = ParallelPotentialShaping(env, assets_potential, cfg.gamma, cfg.generals_shaping)
    return env if cfg.generals_opponent == NO_OPPONENT else AgainstBot(env, cfg.generals_opponent)


def generals_defaults(full_env_name: str) -> Mapping[str, Any]:
    """Returns the defaults that Generals has for flags of the framework, such as the encoder."""
    return {
        "encoder_custom": "map",
        "use_rnn": False,  # the memory planes hold what has been seen
        "normalize_input": False,  # the planes are scaled
        "nonlinearity": "relu",
        "gamma": 0.99,
        "with_vtrace": False,
        "gae_lambda": 0.95,
        "learning_rate": 5e-4,
        "batch_size": 512,
        "num_batches_per_iteration": 4,
        "ppo_epochs": 4,
        "max_grad_norm": 1.0,
        "exploration_loss_coeff": 0.005,
    }


FAMILY = FamilyParts(make_generals_env, GeneralsFlags, generals_defaults, SIDES)
