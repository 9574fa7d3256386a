"""A stand-in for DeepMind Lab, which has no wheel: what is used of its Python API, without its worlds.

Types and errors follow docs/users/python_api.md and python/dmlab_module.c of github.com/google-deepmind/lab.
An episode lasts EPISODE_FRAMES; each frame in which the player moves forward gives 0.5, backward -0.5. The
picture shows the seed of the episode and the frame. Levels whose name begins with "explore_" generate a map
for each episode.
"""

import hashlib
import os
import tempfile

import numpy as np

EPISODE_FRAMES = 20
ACTIONS = (
    ("LOOK_LEFT_RIGHT_PIXELS_PER_FRAME", -512, 512),
    ("LOOK_DOWN_UP_PIXELS_PER_FRAME", -512, 512),
    ("STRAFE_LEFT_RIGHT", -1, 1),
    ("MOVE_BACK_FORWARD", -1, 1),
    ("FIRE", 0, 1),
    ("JUMP", 0, 1),
    ("CROUCH", 0, 1),
)
SETTINGS = {"width", "height", "fps", "gpuDeviceIndex", "datasetPath", "allowHoldOutLevels", "mixerSeed"}
INSTRUCTIONS = {"language_select_described_object": "Pick the red object"}


class Lab:
    def __init__(
        self, level, observations, config=None, renderer="software", level_cache=None, temp_folder=None
    ):
        if type(observations) is not list:
            raise TypeError(f"argument 2 must be list, not {type(observations).__name__}")
        config = {} if config is None else config
        if type(config) is not dict:
            raise TypeError(f"argument 3 must be dict, not {type(config).__name__}")
        if any(type(text) is not str for pair in config.items() for text in pair):
            raise TypeError("bad argument type for built-in operation")
        if renderer not in ("software", "hardware"):
            raise RuntimeError(
                f'Failed to set renderer must be "hardware" or "software" actual "{renderer}"!'
            )
        if level.endswith("_test") and config.get("allowHoldOutLevels") != "true":
            raise RuntimeError('Failed to init environment - "only be used during evaluation"')
        for setting in config.keys() - SETTINGS:
            raise RuntimeError(f'Failed to init environment - "Invalid setting: {setting}"')
        self.level = level
        self.config = config
        self.renderer = renderer
        self._shape = (int(config.get("height", "240")), int(config.get("width", "320")), 3)
        self._level_cache = level_cache
        self._folder = tempfile.TemporaryDirectory(dir=temp_folder)
        self._status = "created"
        self._num_steps = 0
        self._episode = 0
        for name in observations:
            if name not in ("RGB_INTERLEAVED", "INSTR"):
                raise ValueError(f"Unknown observation '{name}'.")
        self._observed = observations

    def reset(self, episode=-1, seed=None):
        if seed is not None and type(seed) is not int:
            raise ValueError(f"'seed' must be int or None, was '{type(seed).__name__}'.")
        assert self._status != "closed"
        self.seed = seed if seed is not None else int.from_bytes(os.urandom(3), "little")
        assert 0 <= self.seed < 2**31
        self._episode = episode + 1 if episode >= 0 else self._episode + 1
        if self._level_cache is not None and "/explore_" in self.level:
            self._generate_map()
        self._status = "running"
        self._num_steps = 0
        return True

    def _generate_map(self):
        text = f"map {self.level} {self.seed}"
        key = f"explore_maze_noaas_{hashlib.md5(text.encode()).hexdigest()}"
        path = os.path.join(self._folder.name, f"{self._episode}.pk3")
        if not self._level_cache.fetch(key, path):
            with open(path, "w") as file:
                file.write(text)
            self._level_cache.write(key, path)
        with open(path) as file:
            assert file.read() == text

    def is_running(self):
        return self._status == "running"

    def step(self, action, num_steps=1):
        if not isinstance(action, np.ndarray):
            raise TypeError(f"argument 1 must be numpy.ndarray, not {type(action).__name__}")
        if not self.is_running():
            raise RuntimeError("Environment in wrong status to advance.")
        if action.shape != (len(ACTIONS),):
            raise ValueError(f"action must have shape ({len(ACTIONS)})")
        if action.dtype != np.intc:
            raise ValueError("action must have dtype np.intc")
        assert all(low <= number <= high for number, (_, low, high) in zip(action, ACTIONS))
        self.last_action = tuple(int(number) for number in action)
        self._num_steps += num_steps
        if self._num_steps >= EPISODE_FRAMES:
            self._status = "ended"
        return 0.5 * num_steps * float(action[3])

    def observations(self):
        if not self.is_running():
            raise RuntimeError("Environment in wrong status for call to observations()")
        picture = np.zeros(self._shape, np.uint8)
        picture[..., 0] = self.seed % 256
        picture[..., 1] = self._num_steps
        values = {
            "RGB_INTERLEAVED": picture,
            "INSTR": INSTRUCTIONS.get(self.level.rpartition("/")[2], ""),
        }
        return {name: values[name] for name in self._observed}

    def close(self):
        was_open = self._status != "closed"
        self._status = "closed"
        self._folder.cleanup()
        return was_open
