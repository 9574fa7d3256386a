"""Observations of MiniGrid and BabyAI as numbers: cells, direction, and the words of the mission.

The vocabulary is fixed, so that a policy reads the same words in every process and in every env.
"""

import functools
import re
import zlib
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.spaces.observations import Indices

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


def cell_space(height: int, width: int) -> Indices:
    """Returns the space of a grid of cells, int32 [height, width, 3]."""
    return Indices(np.broadcast_to(CELL_SIZES, (height, width, len(CELL_SIZES))))


def mission_space(num_words: int) -> Indices:
    """Returns the space of a mission, int32 [num_words]."""
    return Indices((VOCABULARY_SIZE,) * num_words)


@functools.lru_cache(maxsize=10_000)
def mission_tokens(mission: str, num_words: int) -> np.ndarray:
    """Returns the tokens of a mission's first words, int32 [num_words], padded with PADDING; read-only.

    Upper and lower case are the same; a comma is a word.
    """
    words = re.findall(r"[^\s,]+|,", mission.lower())[:num_words]
    tokens = np.full(num_words, PADDING, np.int32)
    tokens[: len(words)] = [_token(word) for word in words]
    tokens.flags.writeable = False
    return tokens


def _token(word: str) -> int:
    if word in _TOKENS:
        return _TOKENS[word]
    # Python's hash of a string differs between processes.
    return FIRST_UNKNOWN + zlib.crc32(word.encode()) % NUM_UNKNOWN


def encoded_space(image: gym.spaces.Box, is_symbolic: bool, num_words: int) -> gym.spaces.Dict:
    """Returns the space of an encoded observation.

    image: the space of the grid of cells or of the picture. num_words: 0 leaves the mission out.
    """
    obs = cell_space(*image.shape[:2]) if is_symbolic else image
    encoded: dict[str, gym.Space[Any]] = {"obs": obs, "direction": Indices((NUM_DIRECTIONS,))}
    if num_words:
        encoded["mission"] = mission_space(num_words)
    return gym.spaces.Dict(encoded)


class EncodedObservations(gym.ObservationWrapper):
    """Encodes the observations of one MiniGrid env: `obs`, `direction` and, as tokens, `mission`."""

    def __init__(self, env: "gym.Env[Any, Any]", is_symbolic: bool, num_words: int):
        super().__init__(env)
        assert isinstance(env.observation_space, gym.spaces.Dict)
        image = env.observation_space["image"]
        assert isinstance(image, gym.spaces.Box)
        self._is_symbolic = is_symbolic
        self._num_words = num_words
        self.observation_space = encoded_space(image, is_symbolic, num_words)

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

    Missions are texts as rows of bytes there. Only those that changed since the last step are read again.
    """

    def __init__(self, env: "gym.vector.VectorEnv[Any, Any, Any]", num_words: int):
        super().__init__(env)
        space = env.single_observation_space
        assert isinstance(space, gym.spaces.Dict)
        image = space["image"]
        assert isinstance(image, gym.spaces.Box)
        self._num_words = num_words
        self._bytes = np.zeros((env.num_envs, 0), np.uint8)
        self._tokens = np.zeros((env.num_envs, num_words), np.int32)
        self.single_observation_space = encoded_space(image, is_symbolic=True, num_words=num_words)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, env.num_envs)

    def observations(self, observations: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        encoded = {
            "obs": observations["image"].astype(np.int32),
            "direction": observations["direction"].astype(np.int32).reshape(-1, 1),
        }
        if self._num_words:
            encoded["mission"] = self._encode(observations["mission"])
        return encoded

    def _encode(self, missions: np.ndarray) -> np.ndarray:
        """Returns the tokens of missions, [N, num_bytes] uint8, as int32 [N, num_words]."""
        if missions.shape != self._bytes.shape:
            changed = range(len(missions))
        else:
            changed = np.flatnonzero((missions != self._bytes).any(axis=1)).tolist()
        self._bytes = missions.copy()
        for row in changed:
            text = missions[row].tobytes().rstrip(b"\0").decode()
            self._tokens[row] = mission_tokens(text, self._num_words)
        return self._tokens
