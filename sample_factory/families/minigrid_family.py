"""MiniGrid and BabyAI: `minigrid_<id>`, e.g. minigrid_DoorKey-5x5-v0, on two engines."""

import functools
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.config.flags import ConfigError, flag
from sample_factory.envs import family_flags
from sample_factory.envs.env_family import FamilyParts, UnknownEnvError
from sample_factory.envs.packages import is_installed, missing_package
from sample_factory.envs.protocol import EnvConfig
from sample_factory.families.envpool_engine import EnvPoolFlags, make_envpool, options_of_user
from sample_factory.runtime.registry import did_you_mean
from sample_factory.spaces.observations import Indices

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

# Observations. The vocabulary is fixed: a policy reads the same words in every process and in every env.
# A cell has a type of object, a colour and a state; the agent's state is its direction (full view only).
CELL_SIZES = (11, 6, 4)
NUM_DIRECTIONS = 4

# Words of the missions of minigrid 3.2.0, MiniGrid and BabyAI.
MISSION_WORDS = (
    ", a after and at avoid ball behind blue box door end fetch find from front get go goal green grey "
    "hallway in key lava left matching maze must near next object of on open opening pick purple put reach "
    "red right room rooms square the then to traverse unlock up use yellow you your"
)
WORDS = tuple(MISSION_WORDS.split())
PADDING = 0
FIRST_UNKNOWN = 1 + len(WORDS)
NUM_UNKNOWN = 16  # other words share these tokens, chosen by a checksum of their letters
VOCABULARY_SIZE = FIRST_UNKNOWN + NUM_UNKNOWN
_TOKENS: Mapping[str, int] = {word: token for token, word in enumerate(WORDS, start=1)}


@dataclass(frozen=True)
class MinigridFlags(EnvPoolFlags, family_flags.EnvKwargsFlags):
    """Flags of MiniGrid and BabyAI envs."""

    env_engine: str = family_flags.env_engine_flag("minigrid, in Python")
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
        only_with={"minigrid_mission": ("tokens",)},
    )
    minigrid_observation: str = flag(
        "partial",
        "partial: the cells in front of the agent; full: all cells; rgb_partial, rgb_full: the same as "
        "pictures; all but partial need --env_engine=gymnasium",
        choices=("partial", "full", "rgb_partial", "rgb_full"),
    )
    minigrid_view_size: int = flag(
        VIEW_SIZE,
        "side of the agent's partial view in cells, an odd number",
        at_least=3,
        at_most=99,
        only_with={"minigrid_observation": ("partial", "rgb_partial")},
    )
    minigrid_tile_size: int = flag(
        8,
        "side of a cell of a picture in pixels",
        at_least=1,
        at_most=100,
        only_with={"minigrid_observation": ("rgb_partial", "rgb_full")},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.minigrid_view_size % 2 == 0:
            raise ConfigError(
                f"--minigrid_view_size={self.minigrid_view_size} should be odd: the agent sees as much to "
                "its left as to its right"
            )


def make_minigrid_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> gym.Env | gym.vector.VectorEnv:
    """Makes one env, or a vector env of --vector_env_copies.

    The observation is a Dict of `obs`, indices of types, colours and states of cells, [size, size, 3], or a
    picture; `direction`, an index; and `mission`, word tokens.
    """
    family_flags.refuse_frameskip(cfg, "MiniGrid envs skip no frames; leave it out")
    env_id = find_id(full_env_name)
    num_words = cfg.minigrid_mission_words if cfg.minigrid_mission == "tokens" else 0
    if cfg.env_engine == family_flags.GYMNASIUM:
        make_one = functools.partial(_make_gymnasium_env, env_id, cfg, render_mode, num_words)
        copies = cfg.vector_env_copies
        return make_one() if copies == 1 else family_flags.copies_in_turn(make_one, copies)
    fault = ""
    if cfg.minigrid_observation != "partial":
        fault = f"--minigrid_observation={cfg.minigrid_observation}: EnvPool has the partial view only"
    elif cfg.minigrid_view_size < VIEW_SIZE:  # EnvPool 1.2.5 writes beyond its memory
        fault = f"--minigrid_view_size={cfg.minigrid_view_size}: EnvPool crashes below {VIEW_SIZE}"
    if fault:
        raise ConfigError(f"{fault}; add --env_engine={family_flags.GYMNASIUM}")
    options = options_of_user(cfg, {"agent_view_size": "minigrid_view_size"})
    if cfg.minigrid_view_size != VIEW_SIZE:
        options["agent_view_size"] = cfg.minigrid_view_size
    env = make_envpool(env_id, cfg, env_config, render_mode=render_mode, **options)
    return EncodedBatches(env, num_words)


def _make_gymnasium_env(env_id: str, cfg: Any, render_mode: str | None, num_words: int) -> gym.Env:
    if not is_installed("minigrid"):
        raise missing_package(f"--env_engine={family_flags.GYMNASIUM}", "minigrid", extra="minigrid")
    from minigrid import wrappers

    kwargs = family_flags.parse_env_kwargs(cfg.env_kwargs)
    env = gym.make(env_id, disable_env_checker=True, render_mode=render_mode, **kwargs)
    if cfg.minigrid_view_size != VIEW_SIZE:
        env = wrappers.ViewSizeWrapper(env, agent_view_size=cfg.minigrid_view_size)
        # The wrapper changes the cells only; pictures show the view of the env itself.
        inner: Any = env.unwrapped
        inner.agent_view_size = cfg.minigrid_view_size
    if cfg.minigrid_observation == "full":
        env = wrappers.FullyObsWrapper(env)
    elif cfg.minigrid_observation == "rgb_partial":
        env = wrappers.RGBImgPartialObsWrapper(env, tile_size=cfg.minigrid_tile_size)
    elif cfg.minigrid_observation == "rgb_full":
        env = wrappers.RGBImgObsWrapper(env, tile_size=cfg.minigrid_tile_size)
    return EncodedObservations(env, cfg.minigrid_observation in ("partial", "full"), num_words)


def find_id(full_env_name: str) -> str:
    """Returns the full id of an env: the name after `minigrid_` with MiniGrid- or BabyAI- before it.

    Raises UnknownEnvError for an unknown name; the message suggests the nearest name.
    """
    ids: Iterable[str]
    if is_installed("minigrid"):
        import minigrid  # noqa: F401  # registers its ids

        ids = gym.registry  # with the user's own
    else:
        import envpool

        ids = envpool.list_all_envs()
    ids = [env_id for env_id in ids if env_id.startswith(SUITES)]
    name = full_env_name.removeprefix(PREFIX)
    for suite in ("", *SUITES):
        if suite + name in ids:
            return suite + name
    short = [env_id.removeprefix(suite) for suite in SUITES for env_id in ids]
    hint = did_you_mean(name, [*ids, *short], 0.5, PREFIX) or "."
    raise UnknownEnvError(f"unknown env {full_env_name!r}{hint} {RULE}")


def minigrid_defaults(full_env_name: str) -> Mapping[str, Any]:
    """Returns flag defaults for small grids with a reward at the end of an episode; for envs whose mission
    never changes, the mission is left out of the observation. Raises UnknownEnvError for an unknown name."""
    env_id = find_id(full_env_name)
    spec = gym.registry.get(env_id)
    is_own = spec is not None and not str(spec.entry_point).startswith("minigrid.")
    needs_gymnasium = is_own or env_id in NOT_IN_ENVPOOL
    return {
        "env_engine": family_flags.GYMNASIUM if needs_gymnasium else family_flags.default_engine(),
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


@functools.lru_cache(maxsize=10_000)
def mission_tokens(mission: str, num_words: int) -> np.ndarray:
    """Returns the tokens of a mission's first words, int32 [num_words], padded with PADDING; read-only.

    Upper and lower case are the same; a comma is a word.
    """
    words = re.findall(r"[^\s,]+|,", mission.lower())[:num_words]
    tokens = np.full(num_words, PADDING, np.int32)
    for place, word in enumerate(words):
        # Python's hash of a string differs between processes.
        unknown = FIRST_UNKNOWN + zlib.crc32(word.encode()) % NUM_UNKNOWN
        tokens[place] = _TOKENS.get(word, unknown)
    tokens.flags.writeable = False
    return tokens


def encoded_space(space: Any, is_symbolic: bool, num_words: int) -> gym.spaces.Dict:
    """Returns the space of the observations that `EncodedObservations` makes. space: a Dict with `image`: the
    grid of cells if `is_symbolic`, else a picture. num_words: length of the mission; 0 leaves it out."""
    image = space["image"]
    cells = Indices(np.broadcast_to(CELL_SIZES, (*image.shape[:2], len(CELL_SIZES))))
    encoded: dict[str, gym.Space[Any]] = {"obs": cells if is_symbolic else image}
    encoded["direction"] = Indices((NUM_DIRECTIONS,))
    if num_words:
        encoded["mission"] = Indices((VOCABULARY_SIZE,) * num_words)
    return gym.spaces.Dict(encoded)


class EncodedObservations(gym.ObservationWrapper):
    """Encodes the observations of one MiniGrid env: `obs`, cells as int32 if `is_symbolic`, else a picture;
    `direction`; and `mission`, `num_words` tokens, left out for 0."""

    def __init__(self, env: "gym.Env[Any, Any]", is_symbolic: bool, num_words: int):
        super().__init__(env)
        self._is_symbolic = is_symbolic
        self._num_words = num_words
        self.observation_space = encoded_space(env.observation_space, is_symbolic, num_words)

    def observation(self, observation: Mapping[str, Any]) -> dict[str, np.ndarray]:
        image = observation["image"]
        encoded = {
            "obs": image.astype(np.int32) if self._is_symbolic else image,
            "direction": np.array((observation["direction"],), np.int32),
        }
        if self._num_words:
            encoded["mission"] = mission_tokens(observation["mission"], self._num_words)
        return encoded


class EncodedBatches(gym.vector.VectorObservationWrapper):
    """Encodes the observations of EnvPool's MiniGrid envs as `EncodedObservations` does.

    EnvPool's missions are texts as rows of bytes, [N, num_bytes] uint8.
    """

    def __init__(self, env: "gym.vector.VectorEnv[Any, Any, Any]", num_words: int):
        super().__init__(env)
        self._num_words = num_words
        self._missions = np.zeros((env.num_envs, 0), np.uint8)  # of the last step, and their tokens
        self._tokens = np.zeros((env.num_envs, num_words), np.int32)
        self.single_observation_space = encoded_space(env.single_observation_space, True, num_words)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, env.num_envs)

    def observations(self, observations: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        encoded = {
            "obs": observations["image"].astype(np.int32),
            "direction": observations["direction"].astype(np.int32).reshape(-1, 1),
        }
        if self._num_words:
            encoded["mission"] = self._mission_tokens(observations["mission"])
        return encoded

    def _mission_tokens(self, missions: np.ndarray) -> np.ndarray:
        """Converts missions, [N, num_bytes] uint8, to tokens, [N, num_words] int32.

        Only texts that have changed since the last step are converted: each conversion takes microseconds.
        """
        if missions.shape != self._missions.shape:  # the first ones
            self._missions = np.zeros_like(missions)
            self._tokens[:] = PADDING
        for row in np.flatnonzero((missions != self._missions).any(axis=1)).tolist():
            text = missions[row].tobytes().rstrip(b"\0").decode()
            self._tokens[row] = mission_tokens(text, self._num_words)
        self._missions = missions.copy()
        return self._tokens.copy()


FAMILY = FamilyParts(
    make_minigrid_env,
    MinigridFlags,
    minigrid_defaults,
    example=f"{PREFIX}Empty-5x5-v0 or MiniGrid-Empty-5x5-v0",  # the second: a name of version 1
)
