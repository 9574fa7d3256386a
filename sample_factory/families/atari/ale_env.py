"""Atari games in ALE, one game in a Gymnasium env, with the preprocessing of EnvPool."""

from typing import Any, Literal, SupportsFloat

import ale_py
import cv2
import gymnasium as gym
from ale_py.env import AtariEnv
from gymnasium.wrappers import AtariPreprocessing

from sample_factory.envs.protocol import EPISODE_CONTINUES

SIDE = 84  # pixels
NOOP = 0  # the first action of every game
NEXT_LIFE = {"next_life": True}  # options of `reset`: continue the game

Step = tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]


def make_ale_env(
    game: str, cfg: Any, max_frames: int, render_mode: Literal["rgb_array"] | None = None
) -> gym.Env[Any, Any]:
    """Makes a game with grey images of SIDE x SIDE pixels as observations. game: name of the ROM. cfg: has
    the flags of AtariFlags. max_frames: number of frames after which an episode is truncated."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # else every process prints a banner
    cv2.setNumThreads(0)  # the pictures are too small to be split among threads
    env: gym.Env[Any, Any] = AtariEnv(
        game,
        obs_type="grayscale",
        frameskip=1,
        repeat_action_probability=cfg.atari_repeat_action_probability,
        full_action_space=cfg.atari_full_action_space,
        max_num_frames_per_episode=max_frames,
        render_mode=render_mode,
    )
    env.metadata = {**env.metadata, "render_fps": 60}
    env = BeginWithNoops(env, cfg.atari_noop_max)
    env = AtariPreprocessing(env, noop_max=0, frame_skip=cfg.env_frameskip or 1, screen_size=SIDE)
    return LivesAsEpisodes(env) if cfg.atari_episodic_life else env


class BeginWithNoops(gym.Wrapper[Any, Any, Any, Any]):
    """Begins each game and each life with 1 to `noop_max` frames without an action. The last of these frames
    presses FIRE if the game has this action, because some games wait for it."""

    def __init__(self, env: gym.Env[Any, Any], noop_max: int):
        super().__init__(env)
        self._noop_max = noop_max
        unwrapped: Any = env.unwrapped
        meanings = unwrapped.get_action_meanings()
        self._fire = meanings.index("FIRE") if "FIRE" in meanings else None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins a game; with the options NEXT_LIFE, continues the game with the next life."""
        if options != NEXT_LIFE:
            observation, info = self.env.reset(seed=seed)
        actions = [NOOP] * int(self.env.unwrapped.np_random.integers(1, self._noop_max + 1))
        if self._fire is not None:
            actions[-1] = self._fire
        for action in actions:
            observation, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                if options == NEXT_LIFE:
                    break  # the next step reports the end of the game
                observation, info = self.env.reset()
        return observation, info


class LivesAsEpisodes(gym.Wrapper[Any, Any, Any, Any]):
    """Ends an episode of the learner with each lost life. The info of such an end has EPISODE_CONTINUES: the
    game is not over."""

    def __init__(self, env: gym.Env[Any, Any]):
        super().__init__(env)
        self._lives = 0
        self._game_continues = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins a new game, or continues the current game with its next life if the last step lost one."""
        if self._game_continues:
            options = NEXT_LIFE
        observation, info = self.env.reset(seed=seed, options=options)
        self._game_continues = False
        self._lives = info["lives"]
        return observation, info

    def step(self, action: Any) -> Step:
        """Steps the game; terminates the episode if a life is lost. Returns the 5 values of Gymnasium."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        lives = info["lives"]
        self._game_continues = 0 < lives < self._lives and not terminated and not truncated
        self._lives = lives
        if self._game_continues:
            terminated = True
            info[EPISODE_CONTINUES] = True
        return observation, reward, terminated, truncated, info
