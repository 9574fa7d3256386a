"""MiniGrid and BabyAI: `minigrid_<id>`, e.g. minigrid_DoorKey-5x5-v0, on two engines."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from sample_factory.config.flags import ConfigError, flag
from sample_factory.envs import envpool_family
from sample_factory.envs.env_engines import ENVPOOL, GYMNASIUM, env_engine_flag
from sample_factory.envs.env_kwargs import env_kwargs_flag, parse_env_kwargs
from sample_factory.envs.env_registry import UnknownEnvError
from sample_factory.envs.minigrid_observations import EncodedBatches, EncodedObservations
from sample_factory.envs.packages import is_installed, missing_package
from sample_factory.envs.protocol import EnvConfig
from sample_factory.envs.vector_copies import copies_in_turn

PREFIX = "minigrid_"
SUITES = ("MiniGrid-", "BabyAI-")
RULE = f"After {PREFIX} comes an id such as DoorKey-5x5-v0, MiniGrid-DoorKey-5x5-v0 or BabyAI-GoToObj-v0"
VIEW_SIZE = 7  # cells
NOT_IN_ENVPOOL = ("MiniGrid-MultiRoom-N4-S5-v1",)  # of minigrid 3.2.0, in EnvPool 1.2.5
NUM_WORDS = 24
NUM_WORDS_OF_SEQUENCES = 72  # BabyAI's levels with several instructions
SEQUENCES = re.compile("BabyAI-.*(Seq|Boss|MoveTwoAcross)")
# Their mission is always the same, or names the only object of its kind.
FIXED_MISSION = re.compile(
    "MiniGrid-(LavaCrossing|SimpleCrossing|DistShift|DoorKey|Dynamic|Empty|FourRooms|LavaGap|Memory|MultiRoom|"
    "ObstructedMaze|Playground|RedBlueDoors|Unlock-|WFC)"
)


@dataclass(frozen=True)
class MinigridFlags(envpool_family.EnvPoolFlags):
    """Flags of MiniGrid and BabyAI envs."""

    env_engine: str = env_engine_flag("minigrid, in Python")
    minigrid_mission: str = flag(
        "tokens",
        "tokens: the mission's text is an observation, as word tokens; drop: it is left out",
        choices=("tokens", "drop"),
    )
    minigrid_mission_words: int = flag(
        NUM_WORDS,
        "length of the mission in words; the rest of a longer one is cut off",
        at_least=1,
        at_most=1000,
    )
    minigrid_observation: str = flag(
        "partial",
        "partial: the cells in front of the agent; full: all cells; rgb_partial, rgb_full: the same as "
        "pictures; all but partial need --env_engine=gymnasium",
        choices=("partial", "full", "rgb_partial", "rgb_full"),
    )
    minigrid_view_size: int = flag(
        VIEW_SIZE, "side of the agent's partial view in cells, an odd number", at_least=3, at_most=99
    )
    minigrid_tile_size: int = flag(8, "side of a cell of a picture in pixels", at_least=1, at_most=100)
    env_kwargs: str = env_kwargs_flag("the env")

    def __post_init__(self) -> None:
        parse_env_kwargs(self.env_kwargs)  # raises
        if self.minigrid_view_size % 2 == 0:
            raise ConfigError(
                f"--minigrid_view_size={self.minigrid_view_size} should be odd: the agent sees as much to "
                "its left as to its right"
            )


def make_minigrid_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> gym.Env | gym.vector.VectorEnv:
    """Returns one env, or a vector env of --vector_env_copies.

    The observation is a Dict of `obs`, indices of types, colours and states of cells, [size, size, 3], or a
    picture; `direction`, an index; and `mission`, word tokens.

    Raises ConfigError for flags that the engine does not support and ImportError for a missing package.
    """
    if cfg.env_frameskip and cfg.env_frameskip > 1:
        raise ConfigError(f"--env_frameskip={cfg.env_frameskip}: MiniGrid envs skip no frames; leave it out")
    env_id = find_id(full_env_name)
    num_words = cfg.minigrid_mission_words if cfg.minigrid_mission == "tokens" else 0
    if cfg.env_engine == ENVPOOL:
        return _make_envpool_env(env_id, cfg, env_config, render_mode, num_words)

    def make_one() -> gym.Env:
        return _make_gymnasium_env(env_id, cfg, render_mode, num_words)

    if cfg.vector_env_copies == 1:
        return make_one()
    return copies_in_turn(make_one, cfg.vector_env_copies)


def _make_envpool_env(
    env_id: str, cfg: Any, env_config: EnvConfig, render_mode: str | None, num_words: int
) -> gym.vector.VectorEnv:
    if cfg.minigrid_observation != "partial":
        raise ConfigError(
            f"--minigrid_observation={cfg.minigrid_observation}: EnvPool has the partial view only; add "
            f"--env_engine={GYMNASIUM}"
        )
    options = parse_env_kwargs(cfg.env_kwargs)
    if cfg.minigrid_view_size != VIEW_SIZE:
        options["agent_view_size"] = cfg.minigrid_view_size
    env = envpool_family.make_envpool(env_id, cfg, env_config, render_mode=render_mode, **options)
    return EncodedBatches(env, num_words)


def _make_gymnasium_env(env_id: str, cfg: Any, render_mode: str | None, num_words: int) -> gym.Env:
    if not is_installed("minigrid"):
        raise missing_package(f"--env_engine={GYMNASIUM}", "minigrid", extra="minigrid")
    from minigrid import wrappers

    kwargs = parse_env_kwargs(cfg.env_kwargs)
    env = gym.make(env_id, disable_env_checker=True, render_mode=render_mode, **kwargs)
    if cfg.minigrid_view_size != VIEW_SIZE:
        env = wrappers.ViewSizeWrapper(env, agent_view_size=cfg.minigrid_view_size)
    if cfg.minigrid_observation == "full":
        env = wrappers.FullyObsWrapper(env)
    elif cfg.minigrid_observation == "rgb_partial":
        env = wrappers.RGBImgPartialObsWrapper(env, tile_size=cfg.minigrid_tile_size)
    elif cfg.minigrid_observation == "rgb_full":
        env = wrappers.RGBImgObsWrapper(env, tile_size=cfg.minigrid_tile_size)
    is_symbolic = cfg.minigrid_observation in ("partial", "full")
    return EncodedObservations(env, is_symbolic, num_words)


def find_id(full_env_name: str) -> str:
    """Returns the id of an env, with MiniGrid- or BabyAI- before it.

    Raises UnknownEnvError, with the nearest name, and ImportError if neither engine is installed.
    """
    ids = _known_ids(full_env_name)
    name = full_env_name.removeprefix(PREFIX)
    for suite in ("", *SUITES):
        if suite + name in ids:
            return suite + name
    names = {PREFIX + known: known for known in ids} | {
        PREFIX + known.removeprefix(suite): known for suite in SUITES for known in ids
    }
    by_lower = {known.lower(): known for known in names}
    close = difflib.get_close_matches((PREFIX + name).lower(), by_lower, n=1, cutoff=0.6)
    hint = f"; did you mean {by_lower[close[0]]}?" if close else "."
    raise UnknownEnvError(f"unknown env {full_env_name!r}{hint} {RULE}")


def _known_ids(full_env_name: str) -> list[str]:
    """Returns the ids of minigrid with the user's own, or of EnvPool where minigrid is not installed."""
    ids: Iterable[str]
    if is_installed("minigrid"):
        import minigrid  # noqa: F401  # registers its ids

        ids = gym.registry
    elif envpool_family.is_installed():
        import envpool

        ids = envpool.list_all_envs()
    else:
        raise missing_package(f"env {full_env_name!r}", "minigrid", extra="minigrid")
    return [env_id for env_id in ids if env_id.startswith(SUITES)]


def _default_engine(env_id: str) -> str:
    if not envpool_family.is_installed() or env_id in NOT_IN_ENVPOOL:
        return GYMNASIUM
    spec = gym.registry.get(env_id)
    is_own = spec is not None and not str(spec.entry_point).startswith("minigrid.")
    return GYMNASIUM if is_own else ENVPOOL


def minigrid_defaults(full_env_name: str) -> Mapping[str, Any]:
    """Returns flags for small grids and a reward at the end of an episode, after a check of the name.

    The mission is left out where it never changes.
    """
    env_id = find_id(full_env_name)
    return {
        "env_engine": _default_engine(env_id),
        "vector_env_copies": 16,
        "minigrid_mission": "drop" if FIXED_MISSION.match(env_id) else "tokens",
        "minigrid_mission_words": NUM_WORDS_OF_SEQUENCES if SEQUENCES.match(env_id) else NUM_WORDS,
        "encoder_custom": "minigrid",
        "encoder_subtype": "minigrid_convnet_tiny",
        "encoder_mlp_layers": (128,),
        "hidden_size": 128,
        "rollout": 32,
        "recurrence": 32,
        "learning_rate": 1e-3,
        "with_vtrace": False,
        "gae_lambda": 0.95,
        "ppo_epochs": 2,
        "exploration_loss_coeff": 0.01,
        "max_grad_norm": 0.5,
        "batch_size": 512,
        "num_batches_per_iteration": 2,
    }
