"""`check` plays an env as a training would, and reports what it is and what is wrong with it."""

import os
import re
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from torch import nn

import sample_factory
from sample_factory.__main__ import command
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.evaluation.check_play import STEPS, Play, play
from tests.envs.parallel_envs import Alternating

CFG = SimpleNamespace(env_frameskip=4, env_both_ends="auto", reward_scale=0.1, reward_clip=1.0)
LIMIT = 20


class Walk(gym.Env):
    """Its episodes end after LIMIT steps. `seen` replaces parts of its observations."""

    observation_space = gym.spaces.Dict(
        obs=gym.spaces.Box(-1, 1, (2,), np.float32), action_mask=gym.spaces.Box(0, 1, (4,), np.int8)
    )
    action_space = gym.spaces.Discrete(4)
    is_closed = False
    reward = 1.0
    terminates = False
    seen: dict[str, np.ndarray] = {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def observe(self):
        place = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"obs": place, "action_mask": np.array([1, 0, 0, 0], np.int8), **self.seen}

    def step(self, action):
        assert action == 0
        self.steps += 1
        is_late = self.steps == LIMIT
        info = {"cost": 1.0, "episode_extra_stats": {"place": 2.0}, "true_objective": 3.0}
        return self.observe(), self.reward, self.terminates and is_late, is_late, info

    def close(self):
        self.is_closed = True


def seen_of(env) -> Play:
    return play("walk", lambda: adapt(env), CFG)


def test_a_training_s_view_of_an_env_is_reported_line_by_line():
    env = Walk()
    seen = seen_of(env)
    assert not seen.faults and env.is_closed
    assert seen.lines["recognised as"].startswith("a single env") and "(Walk)" in seen.lines["recognised as"]
    assert seen.lines["ends"].startswith(f"0 terminated, {STEPS // LIMIT} truncated in {STEPS} steps; 0 of")
    assert seen.lines["action masks"] == "allow 25% of the choices"
    assert seen.lines["rewards"].endswith("times --reward_scale=0.1, --reward_clip=1 cuts 0%")
    assert seen.lines["infos"] == "cost: cost; statistics: place; objective: true_objective"
    assert seen.lines["buffers"] == "not reused"
    assert seen.lines["seeds"].startswith("100 steps were the same")


def walk(**changes):
    """Returns a Walk with other attributes."""
    env = Walk()
    vars(env).update(changes)
    return env


class IgnoresSeeds(Walk):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None)


class Reuses(Walk):
    place = np.zeros(2, np.float32)

    def observe(self):
        self.place[:] = super().observe()["obs"]
        return {**super().observe(), "obs": self.place}


@pytest.mark.parametrize(
    ("env", "title", "text"),
    [
        (IgnoresSeeds(), "seeds", "do not repeat: step 0 differs"),
        (Reuses(), "buffers", "a step overwrites the arrays of the one before"),
        (
            walk(terminates=True),
            "ends",
            "20 terminated, 0 truncated in 400 steps; 20 of them were reported as both",
        ),
        (walk(reward=-30.0), "rewards", "-30 to -30 a step, 100% not 0; .*clip=1 cuts 100%"),
    ],
)
def test_what_is_allowed_and_surprises_is_in_the_report_and_no_fault(env, title, text):
    seen = seen_of(env)
    assert not seen.faults
    assert re.match(text, seen.lines[title])


@pytest.mark.parametrize(
    ("make", "conventions", "agents"),
    [
        (lambda: gym.make_vec("CartPole-v1", 3, vectorization_mode="sync"), "reset in NEXT_STEP", "3"),
        (Alternating, "no row", "2"),
    ],
)
def test_agents_and_conventions_are_those_of_the_adapter(make, conventions, agents):
    seen = seen_of(make())
    assert not seen.faults
    assert conventions in seen.lines["conventions"] and seen.lines["agents"].startswith(agents)


class ReportsText(Walk):
    def step(self, action):
        *returned, _ = super().step(action)
        return *returned, {"episode_extra_stats": {"map": "e1m1", "true": 1}}


class RaisesLate(Walk):
    def step(self, action):
        if self.steps == LIMIT - 1:
            raise LookupError("no next place")
        return super().step(action)


@pytest.mark.parametrize(
    ("env", "fault"),
    [
        (
            walk(seen={"obs": np.full(2, 1.5, np.float32)}),
            "'obs' has the value 1.5, outside of its space",
        ),
        (
            walk(seen={"obs": np.zeros(3, np.float32)}),
            r"observation 'obs' has shape \(3,\), but its observation space says \(2,\)",
        ),
        (walk(reward=float("nan")), "reward nan; it should be a finite number"),
        (
            walk(seen={"action_mask": np.zeros(4, np.int8)}),
            "'action_mask' is all 0; it should allow at least one action",
        ),
        (ReportsText(), "map in the info of an episode's end is of type str, .* should be a number"),
        (RaisesLate(), "env 'walk': step raised LookupError: no next place"),
        (object(), "make_env returned object; it should return a gymnasium.Env"),
    ],
)
def test_each_fault_of_an_env_is_one_line(env, fault):
    if isinstance(env, gym.Env):
        (line,) = seen_of(env).faults.values()
    else:
        (line,) = sample_factory.check_env(env).faults
    assert "\n" not in line
    assert re.search(fault, line)


def test_the_command_prints_a_page_and_ends_with_0(capsys):
    assert command("check")(["--env=gym_CartPole-v1", "--reward_scale=0.5"]) == 0
    page = capsys.readouterr().out
    for part in ("MLP 64 64", "ms a row", "terminated", "frames/s", "--reward_scale=0.5", "no faults"):
        assert part in page


class Noisy(nn.Module):
    def __init__(self, flags, observation_space):
        super().__init__()
        self.out_size = 2
        self.layer = nn.Linear(2, 2)

    def forward(self, observations):
        return self.layer(nn.functional.dropout(observations["obs"], training=self.training))


class Crashes(Walk):
    def step(self, action):
        os._exit(3)


def test_faults_of_networks_and_crashes_are_in_the_report_and_raise_nothing(registry):
    env = Walk()
    report = sample_factory.check_env(env, encoder_custom=Noisy, use_rnn=False)
    assert len(report.faults) == 1 and "between training and evaluation mode" in report.faults[0]
    assert not env.is_closed
    (crash,) = sample_factory.check_env(Crashes).faults
    assert "exit code 3" in crash
    with pytest.raises(sample_factory.ConfigError, match="gama"):
        sample_factory.check_env(Walk, gama=0.9)


def test_the_command_ends_with_1_for_a_fault_which_is_a_line(registry, capsys):
    sample_factory.register_env("crashes", Crashes)
    assert command("check")(["--env=crashes"]) == 1
    assert [line for line in capsys.readouterr().out.splitlines() if "fault" in line]


def test_a_doom_env_has_no_fault_and_its_seeds_repeat():
    report = sample_factory.check_env("doom_basic")
    assert not report.faults, report
    assert "100 steps were the same" in report.lines["seeds"]
    assert report.lines["ends"].startswith(("1", "2", "3", "4", "5", "6"))
