"""Evaluation in levels: equally many episodes in each, tables, several envs, checkpoints of a sequence."""

import collections
import json
import logging
import math

import gymnasium as gym
import numpy as np
import pytest

from sample_factory.__main__ import command
from sample_factory.config.parsing import parse_config
from sample_factory.enjoy import enjoy
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.env_registry import resolve_family
from sample_factory.evaluation.evaluate import EVAL, evaluate
from sample_factory.evaluation.measurement import SnapshotMeasurement, measure_checkpoints, plan_evaluation
from sample_factory.evaluation.result_statistics import LevelMatrix
from sample_factory.evaluation.session_plan import size_for
from sample_factory.exchange.messages import Snapshot
from sample_factory.hub import ENJOY
from sample_factory.runtime.child_side import ChildContext
from tests.counting import make_plan
from tests.evaluation.conftest import SMALL, always, identity_of

FLAGS = ["--serial_mode=True", "--num_workers=2", "--num_envs_per_worker=2", "--seed=1"]


class Guess(gym.Env):
    """An episode has `size` steps, and each is worth `size` if the action is `answer`."""

    observation_space = gym.spaces.Box(-1, 1, (3,))
    action_space = gym.spaces.Discrete(5)
    num_made = 0

    def __init__(self, size=1, answer=0):
        self._size, self._answer = size, answer
        Guess.num_made += 1

    def reset(self, *, seed=None, options=None):
        self._left = self._size
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self._left -= 1
        reward = float(self._size) if action == self._answer else 0.0
        return np.zeros(3, np.float32), reward, self._left == 0, False, {}


class Both(Guess):
    """Two agents, who play together."""

    num_agents = 2
    is_multiagent = True

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset()
        return [observation] * 2, [info] * 2

    def step(self, actions):
        observation, reward, is_end, _, info = super().step(actions[0])
        if is_end:
            super().reset()
        return [observation] * 2, [reward] * 2, [is_end] * 2, [False] * 2, [info] * 2


@pytest.fixture(autouse=True)
def envs(registry):
    def make_guess(full_env_name, size=1, answer=0):
        return Guess(size, answer)

    registry("guess", make_guess)
    registry("other", lambda full_env_name: Guess(7))
    registry("taught", make_guess, levels={f"step{i}": {"answer": i} for i in range(3)})
    registry("wide", lambda full_env_name: gym.make("CartPole-v1"))
    registry("both", lambda full_env_name, size=1: Both(size))
    registry("size_", lambda full_env_name: Guess(int(full_env_name[5:])))


def measure(identity, *typed):
    config = parse_config([*identity, *FLAGS, *typed], resolve_family, EVAL)
    return list(measure_checkpoints(config, resolve_family(config.env_name)))


def counts(result):
    return collections.Counter(episode.level for episode in result.episodes)


@pytest.mark.parametrize("num_levels", [2, 7])
def test_each_level_gets_the_same_number_of_episodes(choosing, num_levels):
    levels = [f"size={size}" for size in range(1, num_levels + 1)]
    (result,) = measure(identity_of(choosing("guess", 0)), "--eval_episodes=5", "--levels", *levels)
    assert counts(result) == dict.fromkeys(levels, 5) and not result.is_partial
    assert {(e.level, e.length, e.reward) for e in result.episodes} == {
        (f"size={size}", size, size**2) for size in range(1, num_levels + 1)
    }
    assert list(result.by_level) == levels, "in the order in which they are named"
    assert result.env_frames == sum(episode.length for episode in result.episodes)


def test_agents_of_an_env_play_equally_many_episodes_of_each_level(choosing):
    flags = ["--eval_episodes=5", "--levels", "size=1", "size=2", "size=3"]
    (result,) = measure(identity_of(choosing("both", 0)), *flags)
    assert counts(result) == {"size=1": 6, "size=2": 6, "size=3": 6}
    assert {agent: counts(result.for_agent(agent)) for agent in (0, 1)} == {
        agent: {"size=1": 3, "size=2": 3, "size=3": 3} for agent in (0, 1)
    }


@pytest.mark.parametrize(
    ("num_workers", "num_levels", "num_episodes", "keeps_level", "expected"),
    [
        (2, 0, 100, False, (2, 8)),
        (2, 16, 100, False, (2, 8)),
        (2, 5, 100, False, (2, 5)),
        (4, 10, 100, False, (4, 5)),
        (2, 3, 1, False, (1, 3)),  # no more envs than episodes
        (2, 5, 3, False, (2, 5)),
        (2, 17, 100, False, (2, 8)),  # each env plays several levels
        (2, 17, 1, False, (2, 8)),
        (2, 17, 100, True, (2, 17)),
        (2, 17, 1, True, (1, 17)),
    ],
)
def test_each_env_keeps_its_level_unless_that_takes_more_envs_than_usual(
    num_workers, num_levels, num_episodes, keeps_level, expected
):
    typed = [f"--num_workers={num_workers}", "--num_envs_per_worker=8", "--worker_num_splits=1"]
    config = parse_config(["--env=guess", *typed], resolve_family)
    info = EnvInfo(adapt(Guess()).kinds, 1, levels=("a level",) * num_levels, keeps_level=keeps_level)
    size = size_for(config, info, max(1, num_levels) * num_episodes)
    assert (size.num_workers, size.num_envs) == expected


def test_an_env_is_not_made_anew_for_each_episode(choosing):
    identity = identity_of(choosing("guess", 0))
    Guess.num_made = 0
    measure(identity, "--eval_episodes=20", "--levels", "size=1", "size=2")
    assert Guess.num_made == 4


@pytest.mark.parametrize("names", [("guess", "other"), ("other", "size_3", "size_4"), ("size_3", "size_4")])
def test_several_envs_are_measured_as_levels(choosing, names):
    (result,) = measure(identity_of(choosing("guess", 0)), "--eval_episodes=4", "--env", *names)
    assert counts(result) == dict.fromkeys(names, 4)
    size = {"guess": 1, "other": 7, "size_3": 3, "size_4": 4}
    assert {(e.level, e.length) for e in result.episodes} == {(name, size[name]) for name in names}


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        (["--env", "guess", "wide"], "level wide has"),
        (["--env", "guess", "gues"], "gues"),
        (["--env", "guess", "other", "--levels", "size=2"], "several envs are levels; leave --levels out"),
        (["--env", "guess", "gym_CartPole-v1"], "of several families, with flags of their own"),
        (["--levels", "size=1", "large"], "large"),
        (["--checkpoint=milestones"], "checkpoint milestones: there are none"),
    ],
)
def test_levels_that_cannot_be_played_are_one_line(choosing, typed, complaint, capfd):
    assert command("eval")([*identity_of(choosing("guess", 0)), *FLAGS, *typed]) != 0
    output = capfd.readouterr()
    assert len([line for line in (output.out + output.err).splitlines() if complaint in line]) == 1


def test_another_env_has_none_of_the_levels_of_the_training(choosing):
    identity = identity_of(choosing("guess", 0, flags=("--levels", "size=2", "size=3")))
    (own,) = measure(identity, "--eval_episodes=2")
    assert counts(own) == {"size=2": 2, "size=3": 2}
    (result,) = measure(identity, "--eval_episodes=2", "--env=other")
    assert counts(result) == {"": 2}


def test_python_functions_take_levels_and_several_envs(choosing):
    folder = choosing("guess", 0).folder.parent
    common = {"num_episodes": 2, "serial_mode": True}
    assert list(evaluate(folder, levels=["size=1", "size=2"], **common).by_level) == ["size=1", "size=2"]
    found = evaluate(folder, env=["guess", "other"], **common).by_level
    assert {name: own.reward.mean for name, own in found.items()} == {"guess": 1.0, "other": 49.0}


def test_enjoy_plays_the_levels_in_turn(choosing, capsys):
    identity = identity_of(choosing("taught", 1))
    flags = ["--no_render", "--max_num_episodes=6", "--device=cpu"]
    result = enjoy(parse_config([*identity, *flags], resolve_family, ENJOY))
    assert [episode.level for episode in result.episodes] == ["step0", "step1", "step2"] * 2
    assert [episode.reward for episode in result.episodes] == [0.0, 1.0, 0.0] * 2
    assert "step1       2         1.000" in capsys.readouterr().out


def test_a_matrix_shows_what_was_forgotten_of_each_level():
    matrix = LevelMatrix(
        ["a", "b", "c"], ["x", "y", "z"], [[5, 0, 1], [3, 8, 2], [1, 6, 9]], is_sequence=True
    )
    assert matrix.forgetting == [5 - 1, 8 - 6]
    assert matrix.figures()["mean_forgetting"] == 3.0
    assert matrix.lines()[1:] == [
        "            x      y      z      mean",
        "a           5.000  0.000  1.000  2.000",
        "b           3.000  8.000  2.000  4.333",
        "c           1.000  6.000  9.000  5.333",
        "forgetting  4.000  2.000         3.000",
    ]
    assert matrix._replace(is_sequence=False).forgetting is None
    assert matrix._replace(means=matrix.means[1:]).forgetting is None
    assert math.isnan(matrix._replace(means=[[math.nan] * 3] * 3).figures()["mean_forgetting"])


def test_the_milestones_of_a_sequence_are_measured_by_one_command(choosing, tmp_path, capfd):
    """Each milestone knows the answer of one level only; the latest one that of the last level."""
    flags = ("--level_choice=sequence", "--train_for_env_steps=900")
    checkpoints = choosing("taught", 2, flags=flags)
    config = parse_config(["--env=taught", *SMALL], resolve_family)
    for version, answer in ((7, 0), (9, 1)):
        checkpoints.save_milestone(always(config, answer), version, version * 10)
    typed = ["--checkpoint", "milestones", "latest", "--eval_episodes=2", f"--json={tmp_path / 'out.json'}"]
    assert command("eval")([*identity_of(checkpoints), *FLAGS, *typed]) == 0
    figures = json.loads((tmp_path / "out.json").read_text())["matrix"]
    assert figures == {
        "checkpoints": ["policy 0, milestone:7", "policy 0, milestone:9", "policy 0, latest"],
        "levels": ["step0", "step1", "step2"],
        "means": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        "forgetting": [1.0, 1.0],
        "mean_forgetting": 1.0,
    }
    lines = capfd.readouterr().out.splitlines()
    assert "policy 0, milestone:9  0.000  1.000  0.000  0.333" in lines
    assert "forgetting             1.000  1.000         1.000" in lines


def test_an_evaluation_during_training_has_the_results_of_each_level(choosing, monkeypatch):
    monkeypatch.setattr(logging.getLogger("sample_factory"), "setLevel", lambda level: None)
    checkpoints = choosing("guess", 1)
    flags = ["--env=guess", "--num_envs_per_worker=2", "--eval_episodes=4", "--eval_every_env_steps=9"]
    of_eval = "--eval_flags=--env taught --levels step0 step1"
    config = parse_config([*identity_of(checkpoints), *flags, *SMALL, of_eval], resolve_family)
    plan = plan_evaluation(make_plan(config, Guess(), resolve_family("guess"), state_size=0))
    (path,) = checkpoints.folder.glob("*.pth")
    snapshot = Snapshot("evaluated.pth", 0, 1, 4, str(path))
    found = SnapshotMeasurement(plan, snapshot, ChildContext("evaluation")).run()
    means = [found[name].mean for name in ("reward", "levels/step0/reward", "levels/step1/reward")]
    assert means == [0.5, 0.0, 1.0]
