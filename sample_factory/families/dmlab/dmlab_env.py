"""A level of DeepMind Lab as a Gymnasium env.

Written against the documented API: https://github.com/google-deepmind/lab, docs/users/python_api.md.
"""

import functools
import hashlib
import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.envs.abilities import NamesActions
from sample_factory.families.dmlab.level_cache import MAX_SEED, LevelCache
from sample_factory.families.dmlab.levels import RAW_SCORE
from sample_factory.spaces.observations import Indices

FRAMES_PER_SECOND = 60
PICTURE = "RGB_INTERLEAVED"
INSTRUCTION = "INSTR"
BENCHMARK_SEED = 42
VOCABULARY_SIZE = 1000  # of instructions
MAX_WORDS = 16
PADDING = 0


def _numbers(turn: int = 0, look: int = 0, strafe: int = 0, move: int = 0, fire: int = 0) -> np.ndarray:
    """Returns an action as the engine expects it, int [7]: the 5 arguments, then 0 for jump and crouch. turn:
    pixels per frame to the right. look: pixels per frame down. strafe, move: -1, 0 or 1, to the right and
    forward. fire: 0 or 1."""
    return np.array((turn, look, strafe, move, fire, 0, 0), np.intc)


_MOVES = {
    "forward": _numbers(move=1),
    "backward": _numbers(move=-1),
    "strafe left": _numbers(strafe=-1),
    "strafe right": _numbers(strafe=1),
}
# Actions by their descriptions. Of Espeholt et al. 2018 (IMPALA, https://arxiv.org/abs/1802.01561), appendix.
ACTIONS: Mapping[str, np.ndarray] = {
    **_MOVES,
    "turn left": _numbers(turn=-20),
    "turn right": _numbers(turn=20),
    "forward, turn left": _numbers(turn=-20, move=1),
    "forward, turn right": _numbers(turn=20, move=1),
    "fire": _numbers(fire=1),
}
# Of Hessel et al. 2018 (PopArt, https://arxiv.org/abs/1809.04474), appendix.
EXTENDED_ACTIONS: Mapping[str, np.ndarray] = {
    **_MOVES,
    "turn left slowly": _numbers(turn=-10),
    "turn right slowly": _numbers(turn=10),
    "turn left": _numbers(turn=-60),
    "turn right": _numbers(turn=60),
    "look down": _numbers(look=10),
    "look up": _numbers(look=-10),
    "forward, turn left slowly": _numbers(turn=-10, move=1),
    "forward, turn right slowly": _numbers(turn=10, move=1),
    "forward, turn left": _numbers(turn=-60, move=1),
    "forward, turn right": _numbers(turn=60, move=1),
    "fire": _numbers(fire=1),
}


def observed(cfg: Any) -> list[str]:
    """Returns the engine's names of the observations: the picture and, if used, the instruction."""
    with_instructions = cfg.dmlab_with_instructions and not cfg.dmlab_throughput_benchmark
    return [PICTURE, INSTRUCTION] if with_instructions else [PICTURE]


def shaped_reward(reward: float) -> float:
    """Returns 5 tanh(reward / 5), times 0.3 if it is negative.

    This is the optimistic asymmetric clipping of IMPALA (Espeholt et al. 2018), as in its published code.
    """
    squeezed = 5.0 * math.tanh(reward / 5.0)
    return 0.3 * squeezed if reward < 0 else squeezed


@functools.lru_cache(maxsize=10_000)  # an instruction is observed in every step of an episode
def instruction_tokens(text: str) -> np.ndarray:
    """Returns the tokens of the first MAX_WORDS words, padded with PADDING: int32 [MAX_WORDS], read-only.

    A token is a hash of the word, from 1 to VOCABULARY_SIZE - 1, as in version 1: there is no vocabulary.
    """
    tokens = np.full(MAX_WORDS, PADDING, np.int32)
    for place, word in enumerate(text.split()[:MAX_WORDS]):
        digest = hashlib.md5(word.encode(), usedforsecurity=False).hexdigest()
        tokens[place] = int(digest, 16) % (VOCABULARY_SIZE - 1) + 1
    tokens.flags.writeable = False
    return tokens


class DmlabEnv(gym.Env[Any, Any], NamesActions):
    """An env that plays one level. Observation: `obs`, uint8 [3, height, width]; with instructions also
    `INSTR`, int32 [16].

    The engine's rewards pass `shaped_reward`; their plain sum is the true objective. As in version 1 and in
    published results, every end of an episode is a termination: the engine does not say why it has ended.
    There is no picture at the end of an episode: `step` returns the last one again.

    lab: a deepmind_lab.Lab that has `observed(cfg)` as its observations.
    stats_prefix: beginning of the names of the env's statistics.
    cfg: has the flags of DmlabFlags.
    cache: the level_cache of the lab, if it has one.
    """

    def __init__(self, lab: Any, stats_prefix: str, cfg: Any, cache: LevelCache | None = None):
        self._frameskip = cfg.env_frameskip
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": FRAMES_PER_SECOND / self._frameskip}
        self.lab = lab
        self._stats_prefix = stats_prefix
        self._cache = cache
        self._is_benchmark = cfg.dmlab_throughput_benchmark
        actions = EXTENDED_ACTIONS if cfg.dmlab_extended_action_set else ACTIONS
        self._names = list(actions)
        self._actions = list(actions.values())
        self.action_space = gym.spaces.Discrete(len(actions))
        picture = gym.spaces.Box(0, 255, (3, cfg.res_h, cfg.res_w), np.uint8)
        self.observation_space = gym.spaces.Dict({"obs": picture})
        self._with_instructions = INSTRUCTION in observed(cfg)
        if self._with_instructions:
            self.observation_space[INSTRUCTION] = Indices([VOCABULARY_SIZE] * MAX_WORDS)
        self._observation: dict[str, np.ndarray] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Starts an episode. The map depends on the seed; with a level cache, the cache chooses it, unused
        cached maps first."""
        if self._is_benchmark and seed is not None:
            seed = BENCHMARK_SEED
        super().reset(seed=seed)
        if self._cache is None:
            episode_seed = int(self.np_random.integers(MAX_SEED))
        else:
            episode_seed = self._cache.next_seed(self.np_random)
        self.lab.reset(seed=episode_seed)
        self._score = 0.0
        self._num_frames = 0
        self._observe()
        return self._observation, {}

    def step(self, action: int) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        if self._is_benchmark:
            # The speed of a level depends on what the agent sees and does.
            action = int(self.np_random.integers(len(self._actions)))
        reward = self.lab.step(self._actions[action], num_steps=self._frameskip)
        self._score += reward
        self._num_frames += self._frameskip
        if self.lab.is_running():
            self._observe()
            return self._observation, shaped_reward(reward), False, False, {}
        stats = {RAW_SCORE: self._score, "_len": float(self._num_frames)}  # as in version 1
        info = {
            "true_objective": self._score,
            "episode_extra_stats": {self._stats_prefix + name: value for name, value in stats.items()},
        }
        return self._observation, shaped_reward(reward), True, False, info

    def render(self) -> np.ndarray | None:
        """Returns the last observed picture, [height, width, 3] uint8; None before the first reset."""
        return self._observation["obs"].transpose(1, 2, 0) if self._observation else None

    def close(self) -> None:
        self.lab.close()

    def action_text(self, action: Any) -> str:
        return self._names[int(action)]

    def _observe(self) -> None:
        observed = self.lab.observations()
        self._observation = {"obs": observed[PICTURE].transpose(2, 0, 1)}
        if self._with_instructions:
            self._observation[INSTRUCTION] = instruction_tokens(observed[INSTRUCTION])
