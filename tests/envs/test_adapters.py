import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.protocol import EnvContractError, ObservationRows
from sample_factory.spaces.actions import action_layout


class Countdown(gym.Env):
    """Ends after `length` steps: every second episode by termination, the others by truncation."""

    def __init__(self, observation_space=None, action_space=None, length=3):
        self.observation_space = observation_space or spaces.Box(-1, 100, (2,), np.float64)
        self.action_space = action_space or spaces.Discrete(3, start=5)
        self.length, self.episode, self.actions = length, 0, []

    def reset(self, *, seed=None, options=None):
        self.episode += 1
        self.time = 0
        return np.array([self.episode, 0.0]), {}

    def step(self, action):
        self.actions.append(action)
        self.time += 1
        ended = self.time == self.length
        terminated = ended and self.episode % 2 == 1
        return (
            np.array([self.episode, self.time]),
            1.0,
            terminated,
            ended and not terminated,
            {"time": self.time},
        )


def drive(env, num_steps, actions=None):
    """(observations before each step and after the last, step results)."""
    rows = ObservationRows.allocate(env.kinds)
    env.reset(3, rows)
    seen, results = [rows.arrays["obs"][:, 0].copy()], []
    size = action_layout(env.kinds.spaces[0].action).num_action_values
    for _ in range(num_steps):
        results.append(env.step(np.zeros((env.num_agents, size), np.float32), rows))
        seen.append(rows.arrays["obs"][:, 0].copy())
    return seen, results


def test_the_observation_after_an_episode_is_the_next_ones_first():
    seen, results = drive(adapt(Countdown()), 7)
    assert [tuple(row[0]) for row in seen] == [
        (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1),
    ]  # fmt: skip
    assert [r.terminated[0] for r in results] == [False, False, True, False, False, False, False]
    assert [r.truncated[0] for r in results] == [False, False, False, False, False, True, False]
    assert [result.end_infos for result in results[:4]] == [{}, {}, {0: {"time": 3}}, {}]


def test_an_old_gym_env_is_told_what_step_should_return():
    class Old(Countdown):
        def step(self, action):
            return np.zeros(2), 0.0, False, {}

    with pytest.raises(ValueError, match="step returned 4 values; Gymnasium's API has 5"):
        drive(adapt(Old()), 1)


def test_something_else_is_refused():
    with pytest.raises(TypeError, match="make_env returned int"):
        adapt(7)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_env_is_one_env_of_many_agents_in_every_autoreset_mode(mode):
    vector = gym.vector.SyncVectorEnv(
        [lambda i=i: Countdown(length=2 + i) for i in range(2)], autoreset_mode=mode
    )
    env = adapt(vector)
    assert env.num_agents == 2
    seen, results = drive(env, 6)
    for agent, length in ((0, 2), (1, 3)):
        episode, time, asleep = 1, 0, False
        for row, result in zip(seen, results):
            assert tuple(row[agent]) == (episode, time)
            if asleep:  # NEXT_STEP: this step only resets
                asleep, episode, time = False, episode + 1, 0
                continue
            time += 1
            ended = bool(result.terminated[agent] or result.truncated[agent])
            assert ended == (time == length)
            active = result.active is None or result.active[agent]
            asleep = not active
            assert asleep == (ended and mode == AutoresetMode.NEXT_STEP)
            if ended and not asleep:
                episode, time = episode + 1, 0


class EndsTwice(Countdown):
    """Says at its end that it is terminated and truncated, as a time limit on the last step does."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        ended = terminated or truncated
        return observation, reward, ended, ended, info


def test_a_step_that_is_terminated_and_truncated_is_terminated():
    pair = gym.vector.SyncVectorEnv([EndsTwice, EndsTwice], autoreset_mode=AutoresetMode.SAME_STEP)
    for env in (EndsTwice(), pair):
        _, results = drive(adapt(env), 3)
        assert np.all(results[2].terminated) and not np.any(results[2].truncated)


def returning(observation=None, reward=1.0):
    """An env whose steps return these."""
    env = Countdown(spaces.Box(-1, 100, (2,), np.float32))
    step = env.step

    def altered(action):
        usual, _, *rest = step(action)
        return usual if observation is None else observation, reward, *rest

    env.step = altered
    return adapt(env)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.zeros(3), r"'obs' has shape \(3,\), but its observation space says \(2,\)"),
        (np.zeros(1), r"'obs' has shape \(1,\)"),
        (0.5, r"'obs' has shape \(\)"),
        (np.array(["a", "b"]), r"'obs' has dtype <U1, but its observation space says float32"),
    ],
)
def test_an_observation_that_does_not_fit_its_space_is_refused_not_stretched(observation, message):
    with pytest.raises(EnvContractError, match=message):
        drive(returning(observation), 1)


def test_fractions_are_not_cut_off_to_fit_a_space_of_integers():
    env = Countdown(spaces.Box(0, 255, (2,), np.uint8))
    with pytest.raises(
        EnvContractError, match="'obs' has dtype float64, but its observation space says uint8"
    ):
        drive(adapt(env), 1)


@pytest.mark.parametrize("reward", [2, np.float32(2), np.array(2.0), np.array([2.0]), True])
def test_a_reward_may_be_any_single_number(reward):
    _, results = drive(returning(reward=reward), 1)
    assert float(results[0].rewards[0]) == float(np.asarray(reward).item())


@pytest.mark.parametrize("reward", [None, "much", np.zeros(2)])
def test_a_reward_that_is_no_number_is_refused(reward):
    with pytest.raises(EnvContractError, match="the reward is .*; it should be a number"):
        drive(returning(reward=reward), 1)
