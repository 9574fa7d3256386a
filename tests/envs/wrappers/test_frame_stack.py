"""Stacks of the newest images."""

import collections
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sample_factory import register_env
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig, ObservationRows
from sample_factory.envs.wrappers.frame_stack import FrameStack, stack_frames, stacked_space
from tests.counting import CountingEnv

NUM_FRAMES = 4
NUM_STEPS = 60
CHW, HWC, PLANE, STACK = (3, 6, 7), (6, 7, 3), (6, 7), (2, 3, 6, 7)


def picture(shape, number):
    """Returns an image whose elements differ, and differ from those of any other number below 100."""
    return ((np.arange(np.prod(shape)) % 2 + 2 * number) % 256).astype(np.uint8).reshape(shape)


class CountingPictures(CountingEnv):
    """A CountingEnv with a picture of the episode and the step, and a vector of both."""

    def __init__(self, shape, num_agents=1, first_sleeper=1000):
        super().__init__(0, num_agents, first_sleeper)
        self.shape = shape
        self.observation_space = spaces.Dict(
            picture=spaces.Box(0, 255, shape, np.uint8), numbers=spaces.Box(-1, 1e9, (2,), np.float32)
        )

    def _observation(self, agent, action):
        numbers = np.array([self.episode[agent], self.step_of_episode[agent]], np.float32)
        number = 10 * self.episode[agent] % 100 + self.step_of_episode[agent]
        return {"picture": picture(self.shape, number), "numbers": numbers}


class PicturesOfOne(gym.Env):
    """The same for one agent."""

    def __init__(self, shape=CHW, offset=0):
        self._env = CountingPictures(shape)
        self._env.env_id = offset  # makes its episodes shorter or longer
        self.observation_space = self._env.observation_space
        self.action_space = self._env.action_space
        self._next = None

    def reset(self, *, seed=None, options=None):
        if self._next is None:
            self._next = self._env.reset()[0][0]
        return self._next, {}

    def step(self, action):
        (observation,), (reward,), (terminated,), (truncated,), _ = self._env.step([action])
        self._next = observation  # after an episode's end, the first one of the next
        return observation, reward, terminated, truncated, {}


def trajectory(env):
    """Returns the observations of an adapted env, [num_agents, ...] by key, and for each of them whether a
    new stack of each agent begins with it."""
    rows = ObservationRows.allocate(env.kinds)
    active = env.reset(3, rows)
    begins = np.ones(env.num_agents, bool)
    steps = []
    for _ in range(NUM_STEPS):
        steps.append(({key: array[:, 0].copy() for key, array in rows.arrays.items()}, begins))
        result = env.step(np.zeros((env.num_agents, 1), np.float32), rows)
        begins = np.array(result.terminated) | np.array(result.truncated)
        if active is not None:
            begins |= ~active
        active = result.active
    return steps


def slow_stacks(steps, join):
    """Yields the stacks of all agents, made one by one from the pictures of an env without stacks."""
    num_agents = len(steps[0][1])
    last = [collections.deque(maxlen=NUM_FRAMES) for _ in range(num_agents)]
    for observations, begins in steps:
        for agent, frames in enumerate(last):
            frame = observations["picture"][agent]
            frames.extend([frame] * (NUM_FRAMES if begins[agent] else 1))
        yield np.array([join(list(frames)) for frames in last])


def assert_stacks(make, join=np.concatenate):
    """Asserts that the stacks of an env are those of the same env without stacks, by the definition."""
    plain = trajectory(adapt(make()))
    stacked = trajectory(FrameStack(adapt(make()), NUM_FRAMES))
    for (seen, _), (observed, _), expected in zip(stacked, plain, slow_stacks(plain, join), strict=True):
        np.testing.assert_array_equal(seen["picture"], expected)
        np.testing.assert_array_equal(seen["numbers"], observed["numbers"])
    assert sum(begins.sum() for _, begins in plain) > 10


@pytest.mark.parametrize(
    ("shape", "stacked", "join"),
    [
        (CHW, (12, 6, 7), np.concatenate),
        (HWC, (4, 6, 7, 3), np.stack),
        (PLANE, (4, 6, 7), np.stack),
        (STACK, (8, 3, 6, 7), np.concatenate),
    ],
)
def test_a_stack_holds_the_last_images_of_the_episode_the_oldest_first(shape, stacked, join):
    env = FrameStack(adapt(PicturesOfOne(shape)), NUM_FRAMES)
    assert env.kinds.spaces[0].observation["picture"].shape == stacked
    assert_stacks(lambda: PicturesOfOne(shape), join)


def test_agents_that_end_and_sleep_at_different_times_have_stacks_of_their_own():
    assert_stacks(lambda: CountingPictures(CHW, num_agents=5, first_sleeper=2))


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_env_is_stacked_in_every_autoreset_mode(mode):
    def make():
        copies = [lambda offset=offset: PicturesOfOne(PLANE, offset) for offset in range(3)]
        return SyncVectorEnv(copies, autoreset_mode=mode)

    assert_stacks(make, np.stack)


class TwoKinds(CountingPictures):
    """Agents 0 and 2 see planes, agent 1 sees colours."""

    shapes = (PLANE, CHW, PLANE)

    def __init__(self):
        super().__init__(PLANE, num_agents=3)
        self.observation_spaces = [spaces.Box(0, 255, shape, np.uint8) for shape in self.shapes]

    def _observation(self, agent, action):
        return picture(self.shapes[agent], 10 * self.episode[agent] % 100 + self.step_of_episode[agent])


def test_agents_of_different_kinds_have_stacks_of_their_own_shapes():
    env = FrameStack(adapt(TwoKinds()), NUM_FRAMES)
    rows = ObservationRows.allocate(env.kinds)
    env.reset(None, rows)
    for _ in range(2):
        env.step(np.zeros((3, 1), np.float32), rows)
    planes = np.stack([picture(PLANE, number) for number in (0, 0, 1, 2)])
    colours = np.concatenate([picture(CHW, number) for number in (0, 0, 1, 2)])
    for agent, expected in enumerate((planes, colours, planes)):
        np.testing.assert_array_equal(rows.view(agent)["obs"], expected)


def test_rows_of_agents_may_lie_anywhere_in_the_buffers():
    env = FrameStack(adapt(CountingPictures(CHW, num_agents=2)), NUM_FRAMES)
    arrays = {
        key: np.full((5, 3, *box.shape), 255, box.dtype)
        for key, box in env.kinds.spaces[0].observation.spaces.items()
    }
    env.reset(None, ObservationRows(arrays, np.array([4, 1]), 2))
    np.testing.assert_array_equal(arrays["picture"][4, 2], np.concatenate([picture(CHW, 0)] * 4))
    np.testing.assert_array_equal(arrays["picture"][1, 2], arrays["picture"][4, 2])
    assert (np.delete(arrays["picture"].reshape(15, -1), [5, 14], axis=0) == 255).all()


def test_only_images_are_stacked():
    space = spaces.Dict(
        table=spaces.Box(-1, 1, (5, 5), np.float32),
        vector=spaces.Box(-1, 1, (5,), np.float32),
        board=spaces.Box(0, 1, (2, 5, 5), np.float32),
    )
    shapes = {key: box.shape for key, box in stacked_space(space, 3).spaces.items()}
    assert shapes == {"table": (5, 5), "vector": (5,), "board": (6, 5, 5)}


def test_bounds_of_channels_are_repeated():
    low = np.arange(2, dtype=np.int8)[:, None, None] * np.ones((2, 5, 6), np.int8)
    box = stacked_space(spaces.Dict(obs=spaces.Box(low, low + 1, dtype=np.int8)), 2)["obs"]
    assert box.low[:, 0, 0].tolist() == [0, 1, 0, 1]
    assert box.dtype == np.int8


def test_one_frame_is_no_stack():
    env = adapt(PicturesOfOne())
    assert stack_frames(env, 1) is env


def test_the_flag_stacks_the_images_of_any_family():
    register_env("counted_pictures", lambda name: PicturesOfOne())
    family = resolve_family("counted_pictures")
    cfg = SimpleNamespace(env_framestack=2, env_frameskip=None, env_both_ends="auto", levels=())
    env = make_adapted_env(family, cfg, EnvConfig(0, 0, 0))
    assert env.kinds.spaces[0].observation["picture"].shape == (6, 6, 7)
