"""Faults of an env are found before a run starts; each error is one line that names the env."""

import inspect
import itertools
import time
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from sample_factory.config.flags import ConfigError
from sample_factory.envs.abilities import OwnsProcess
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import env_info
from sample_factory.envs.protocol import EnvContractError
from sample_factory.runtime.child import call_in_child
from sample_factory.runtime.failures import Failure
from sample_factory.spaces.observations import Indices
from tests.envs import made

UINT8 = spaces.Box(0, 255, (3,), np.uint8)
TWO = spaces.Box(-1, 1, (2,), np.float32)
BINARY = spaces.Discrete(2)
CFG = SimpleNamespace(env_frameskip=1, env_framestack=1, env_both_ends="auto", levels=())


class Env(gym.Env):
    """Returns what it is constructed with. info, terminated, reward: of each step."""

    def __init__(self, observation, space=TWO, actions=BINARY, **returned):
        self.observation_space = space
        self.action_space = actions
        self.observation = observation
        self.returned = {"reward": 1.0, "terminated": False, "truncated": False, "info": {}, **returned}

    def reset(self, *, seed=None, options=None):
        return self.observation, {}

    def step(self, action):
        return (self.observation, *self.returned.values())


class Pair(Env):
    """A multi-agent env in the style of v1, with two agents."""

    num_agents = 2

    def __init__(self, observation=None, **returned):
        lists = {"reward": [0.0, 1.0], "terminated": [False] * 2, "truncated": [False] * 2, "info": [{}, {}]}
        super().__init__(observation or [np.zeros(2, np.float32)] * 2, **(lists | returned))


class ShortStep(Pair):
    def step(self, action):
        return super().step(action)[:4]


class OneInfo(Pair):
    def reset(self, *, seed=None, options=None):
        return self.observation, {"map": "e1m1"}


def probe(make):
    return made.probe(EnvFamily("my_env", make, None, {}), CFG)


def right(**kwargs):
    return Env(np.zeros(2, np.float32), **kwargs)


class ResetWithoutSeed(Env):
    def reset(self):
        return self.observation, {}


class OldReset(Env):
    def reset(self, *, seed=None, options=None):
        return self.observation


class OldStep(Env):
    def step(self, action):
        return self.observation, 0.0, False, {}


class NoStep(Env):
    def step(self, action):
        pass


class Raises(Env):
    def __init__(self, call, error=None):
        super().__init__(np.zeros(2, np.float32))
        self.call, self.error = call, error or LookupError()
        self.raise_in("make")

    def raise_in(self, call):
        if self.call == call:
            raise self.error

    def reset(self, *, seed=None, options=None):
        self.raise_in("reset")
        return super().reset()

    def step(self, action):
        self.raise_in("step")
        return super().step(action)

    def close(self):
        self.raise_in("close")


def masked(mask, size=2, actions=BINARY):
    space = spaces.Dict({"obs": TWO, "action_mask": spaces.Box(0, 1, (size,), np.int8)})
    return Env({"obs": np.zeros(2, np.float32), "action_mask": np.array(mask, np.int8)}, space, actions)


A_DICT = spaces.Dict({"a": TWO, "b": TWO})
ZEROS = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        # Spaces.
        (lambda: right(space=spaces.Text(5)), "observation 'obs' is a Text space; supported are Box, Disc"),
        (lambda: right(space=spaces.Dict({"g": spaces.Graph(TWO, None)})), "observation 'g' is a Graph"),
        (lambda: right(actions=spaces.Dict({"a": spaces.Text(2)})), "action space .* use Discrete"),
        (lambda: None, "make_env returned NoneType; it should return a gymnasium.Env"),
        # reset.
        (lambda: ResetWithoutSeed(ZEROS), "ResetWithoutSeed.reset has no parameter `seed`"),
        (lambda: gym.wrappers.TimeLimit(ResetWithoutSeed(ZEROS), 9), "ResetWithoutSeed.reset has no paramet"),
        (lambda: OldReset(ZEROS), "reset returned the observation alone; it should return two values"),
        # step.
        (lambda: OldStep(ZEROS), "step returned 4 values; it should return 5"),
        (lambda: NoStep(ZEROS), "step returned None; it should return 5"),
        (lambda: right(info=None), "step returned None for the info; it should be a dict"),
        (lambda: right(terminated=None), "step returned None for terminated; it should be True or False"),
        (lambda: right(truncated="no"), "step returned 'no' for truncated; it should be True or False"),
        (lambda: right(reward=None), "step returned None for the reward; it should be a number"),
        (lambda: right(reward=ZEROS), r"an array of shape \(2,\) for the reward; it should be a number"),
        (lambda: right(reward=np.nan), "step returned the reward nan; it should be a finite number"),
        # Observations.
        (lambda: Env({"a": ZEROS}, A_DICT), "dict with the keys a; its space says .* keys a, b"),
        (lambda: Env({"a": ZEROS, "b": ZEROS, "c": 1}, A_DICT), "the keys a, b, c; its space says .* a, b"),
        (lambda: Env({0: ZEROS, 2: ZEROS}, spaces.Dict({0: TWO, 1: TWO})), "keys 0, 2; its space .* 0, 1"),
        (lambda: Env(ZEROS, A_DICT), r"an array of shape \(2,\); its space says a dict with the keys a, b"),
        (lambda: Env((ZEROS,), spaces.Tuple([TWO, TWO])), "a tuple of 1; its space says a tuple of 2"),
        (
            lambda: Env(np.zeros(3, np.float32)),
            r"'obs' has shape \(3,\), but its observation space says \(2,",
        ),
        (lambda: Env(np.zeros(1)), r"'obs' has shape \(1,\), but its observation space says"),
        (lambda: Env(0.5), r"'obs' has shape \(\), but its observation space says"),
        (lambda: Env(np.array(["a", "b"])), "'obs' has dtype <U1, but its observation space says float32"),
        (lambda: Env(np.zeros(3), UINT8), "'obs' has dtype float64, but its observation space says uint8"),
        (lambda: Env(np.array([1, 300, 2]), UINT8), "has the value 300, .* says uint8, 0 to 255"),
        (lambda: Env(np.array([1, -5, 2]), UINT8), "has the value -5, .* says uint8, 0 to 255"),
        (lambda: Env(np.full(2, np.nan)), "observation 'obs' has the value nan; it should be finite"),
        (
            lambda: Env(4, spaces.Discrete(4)),
            r"observation 'obs' is 4, which is not in its space Discrete\(4",
        ),
        (
            lambda: Env(np.array([0, 3]), spaces.MultiDiscrete([2, 3])),
            r"'obs' is an array of shape \(2,\), w",
        ),
        (lambda: Env({"a": np.int32([0, 3])}, spaces.Dict({"a": Indices([2, 3])})), "index 3; .* 0 to 2"),
        # Action masks.
        (lambda: masked([1, 1, 1], 3), "'action_mask' has 3 numbers; it should have 2, one for each choice"),
        (lambda: masked([0, 0]), "'action_mask' is all 0; it should allow at least one action"),
        (
            lambda: masked([1, 1, 0, 0, 0], 5, spaces.MultiDiscrete([2, 3])),
            "all 0 for choice 1 of the action",
        ),
        # Several agents.
        (lambda: Pair(terminated=False), "returned False for the terminated; it should be a list"),
        (lambda: Pair(info=None), "returned None for the infos; it should be a list with an entry for each"),
        (lambda: Pair(info=[{}, None]), "step returned None for the info; it should be a dict"),
        (lambda: Pair(terminated=[False, None]), "step returned None for terminated; it should be True or"),
        (
            lambda: ShortStep(),
            "step returned 4 values, .* a list with an entry per agent.* should return 5: ",
        ),
        (lambda: OneInfo(), "for the infos; it should be a list with an entry for each of the 2 agents"),
        (lambda: Pair(reward=[0.0]), "a list of 1 for the rewards; it should be .* for each of the 2"),
        (lambda: Pair([ZEROS, np.zeros(3)]), r"agent 1: observation 'obs' has shape \(3,\)"),
        (lambda: Pair([ZEROS]), "a list of 1 for the observations; it should be .* for each of the 2"),
    ],
)
def test_a_fault_is_one_line_with_the_env_the_value_and_what_it_should_be(make, message):
    with pytest.raises(Failure, match=f"^env 'my_env': .*{message}") as error:
        probe(lambda name: make())
    assert "\n" not in str(error.value)


class UsersOwn(BaseException):
    pass


ERRORS = [LookupError("no\nlevel 7"), KeyboardInterrupt(), SystemExit(3), GeneratorExit(), UsersOwn("mine")]
CALLS = ["make", "reset", "step", "close"]


def what_trials_say():
    """Returns the message of a trial for each exception of ERRORS in each call."""
    said = []
    for call, error in itertools.product(CALLS, ERRORS):
        with pytest.raises(Failure) as caught:
            probe(lambda name: Raises(call, error))  # noqa: B023
        said.append(str(caught.value))
    return said


def test_one_line_refuses_an_env_that_raises_whatever_class_and_names_the_call_and_the_place():
    for (call, error), said in zip(
        itertools.product(CALLS, ERRORS), call_in_child("env_probe", what_trials_say), strict=True
    ):
        start = f"env 'my_env': {call} raised "
        assert said.startswith(start) and type(error).__name__ in said[len(start) :]
        assert "\n" not in said and "(test_env_trial.py:" in said
        assert not isinstance(error, LookupError) or "LookupError: no level 7 (" in said


def test_a_wrong_flag_is_not_a_fault_of_the_env():
    def make(name):
        raise ConfigError("--size=0: must be above 0")

    with pytest.raises(ConfigError, match="^--size=0: must be above 0$"):
        probe(make)


@pytest.mark.parametrize(
    "make",
    [
        lambda: right(terminated=np.True_, truncated=np.bool_(False), reward=np.float32(1)),
        lambda: right(terminated=1, truncated=0, reward=np.ones(1)),
        lambda: Env(np.array([1, 255, 0], np.int64), UINT8),
        lambda: masked([0, 1]),
        Pair,
    ],
)
def test_numpy_scalars_and_wide_integers_in_range_are_no_fault(make):
    assert probe(lambda name: make()).num_agents >= 1


def test_a_reset_without_a_python_signature_is_no_fault():
    class Compiled:  # like a function of a C extension
        __signature__ = "none"

        def __call__(self, seed=None):
            return ZEROS, {}

    env = right()
    env.reset = Compiled()
    with pytest.raises((TypeError, ValueError)):
        inspect.signature(env.reset)
    assert probe(lambda name: env).num_agents == 1


def test_the_trial_of_a_slow_env_ends_after_one_step(monkeypatch):
    steps = []

    class Slow(Env):
        def step(self, action):
            steps.append(action)
            time.sleep(0.02)
            return super().step(action)

    monkeypatch.setattr("sample_factory.envs.env_trial.MAX_SECONDS", 0.01)
    probe(lambda name: Slow(ZEROS))
    assert len(steps) == 1


def test_the_trial_starts_no_simulator():
    class Simulated(Raises, OwnsProcess):
        pass

    assert probe(lambda name: Simulated("reset")).num_agents == 1


def test_later_observations_are_checked_as_far_as_it_costs_nothing():
    from sample_factory.envs.adapters.adapt import adapt
    from sample_factory.envs.contract import NUM_CHECKED
    from sample_factory.envs.protocol import ObservationRows

    user_env = Env({"a": ZEROS, "b": ZEROS}, A_DICT)
    env = adapt(user_env)
    rows = ObservationRows.allocate(env_info(env, CFG).kinds)
    env.reset(0, rows)
    for _ in range(NUM_CHECKED):
        env.step(np.zeros((1, 1)), rows)
    user_env.observation = {"a": ZEROS}
    with pytest.raises(
        EnvContractError,
        match="the observation is a dict with the keys a; its space says a dict with the keys a, b",
    ):
        env.step(np.zeros((1, 1)), rows)
