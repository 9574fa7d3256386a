"""What a run knows of its env: the limit of an episode, the probe, the spaces as their author wrote them."""

import math
import re
import time

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from sample_factory import register_env
from sample_factory.config.parsing import parse_config
from sample_factory.envs.abilities import LimitsEpisodes, max_episode_steps
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import (
    FEW_COPIES,
    make_adapted_env,
    own_spaces,
    probe_env_info,
    probe_own_spaces,
)
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig
from sample_factory.envs.wrappers.frame_stack import FrameSkip
from sample_factory.runtime import child_side
from sample_factory.runtime.log import log
from tests.envs.adapters.countdown import Countdown
from tests.envs.made import probe
from tests.envs.parallel_envs import Scripted

POSITION = spaces.Discrete(3, start=1)
SPEED = spaces.Box(-1, 1, (2,), np.float64)
MOVE = spaces.Discrete(4, start=10)
FORCE = spaces.Box(-1, 1, (1,))


class Pair:
    """Two agents with different spaces."""

    num_agents = 2
    observation_spaces = [POSITION, SPEED]
    action_spaces = [MOVE, FORCE]

    def reset(self, *, seed=None, options=None):
        return [1, np.zeros(2)], [{}, {}]

    def step(self, actions):
        return [1, np.zeros(2)], [0.0] * 2, [False] * 2, [False] * 2, [{}, {}]

    def render(self):
        """Does nothing."""

    def close(self):
        """Does nothing."""


def test_spaces_are_not_converted():
    assert own_spaces(adapt(Pair())) == [(POSITION, MOVE), (SPEED, FORCE)]
    with gym.make("Taxi-v4") as taxi:
        assert own_spaces(adapt(taxi)) == [(taxi.observation_space, taxi.action_space)]
    envs = gym.make_vec("Taxi-v4", 2, "sync")
    assert own_spaces(adapt(envs)) == [(envs.single_observation_space, envs.single_action_space)] * 2
    envs.close()


class OldPair(Pair):
    """With the API of version 1: no seed, no infos of a reset, 4 values of a step."""

    def reset(self):
        return [1, np.zeros(2)]

    def step(self, actions):
        return [1, np.zeros(2)], [0.0] * 2, [False] * 2, [{}, {}]


def test_agents_of_a_list_style_env_of_version_1_have_their_own_spaces():
    assert own_spaces(adapt(OldPair())) == [(POSITION, MOVE), (SPEED, FORCE)]


def test_agents_of_pettingzoo_have_their_own_spaces():
    env = Scripted([])
    env.observation_space = {"a": POSITION, "b": SPEED, "c": SPEED}.get
    env.action_space = {"a": MOVE, "b": FORCE, "c": FORCE}.get
    assert own_spaces(adapt(env)) == [(POSITION, MOVE), *[(SPEED, FORCE)] * 2]


def test_a_policy_has_the_spaces_of_the_kind_of_agents_that_it_plays(tmp_path):
    register_env("own_pair", lambda full_env_name: Pair())
    family = resolve_family("own_pair")
    cfg = parse_config(["--env=own_pair", f"--train_dir={tmp_path}"], resolve_family).namespace()
    assert probe_own_spaces(family, cfg, policy_id=3) == (SPEED, FORCE)


def test_make_env_can_compute_with_the_number_of_envs_before_it_is_chosen(tmp_path):
    sizes = []

    def make_env(full_env_name, cfg):
        sizes.append(1 / cfg.num_envs_per_worker)
        return Pair()

    register_env("own_computing", make_env)
    family = resolve_family("own_computing")
    arguments = ["--env=own_computing", f"--train_dir={tmp_path}", "--worker_num_splits=4"]
    cfg = parse_config(arguments, resolve_family).namespace()
    make_adapted_env(family, cfg, EnvConfig(0, 0, 0))
    probe(family, cfg)
    assert sizes == [1 / 4] * 2, "the smallest number that a run can choose"
    assert cfg.num_envs_per_worker is None


def make_copies(num_envs: int = 1):
    return gym.make_vec("CartPole-v1", num_envs)


@pytest.mark.parametrize(("copies", "is_measured"), [(FEW_COPIES, True), (FEW_COPIES + 1, False)])
def test_the_time_of_a_step_is_that_of_all_copies_or_unknown(copies, is_measured, tmp_path):
    register_env("own_copies", make_copies)
    arguments = ["--env=own_copies", f"--train_dir={tmp_path}", f"--vector_env_copies={copies}"]
    cfg = parse_config(arguments, resolve_family).namespace()
    info = probe(resolve_family("own_copies"), cfg)
    assert info.num_agents == copies and (info.step_seconds is not None) == is_measured


class Match(gym.Env, LimitsEpisodes):
    def max_episode_steps(self):
        return 2100


def test_the_limit_of_an_episode_is_that_of_its_spec_or_what_the_env_says():
    assert max_episode_steps(gym.make("CartPole-v1")) == 500
    assert max_episode_steps(gym.wrappers.RecordEpisodeStatistics(Match())) == 2100
    assert max_episode_steps(gym.Env()) is None


@pytest.mark.parametrize("frameskip", [2, 3, 4, 500, 1000])
def test_the_limit_of_an_episode_is_in_steps_of_the_policy(frameskip):
    env = FrameSkip(gym.make("Pendulum-v1"), frameskip)
    env.reset(seed=0)
    lasts = 1
    while not env.step(env.action_space.sample())[3]:
        lasts += 1
    assert max_episode_steps(env) == lasts
    assert max_episode_steps(FrameSkip(Match(), frameskip)) == math.ceil(2100 / frameskip)
    assert max_episode_steps(FrameSkip(NeverCloses(), frameskip)) is None


class NeverCloses(Countdown):
    def __init__(self):
        child_side.END_SECONDS = 1.0  # shorter than usual, in this process only
        super().__init__()

    def close(self):
        time.sleep(10_000)


def test_an_env_whose_close_never_returns_is_probed_and_the_line_of_the_call_shown(
    monkeypatch, caplog, capfd
):
    monkeypatch.setattr(log, "propagate", True)
    from tests.counting import make_config  # not above: it loads torch, and the children import this module

    family = EnvFamily("never_closes", lambda name: NeverCloses(), None, {})
    cfg = make_config().namespace()
    assert probe_env_info(family, cfg).num_agents == 1
    assert probe_own_spaces(family, cfg, policy_id=0).action == Countdown().action_space
    assert len(caplog.messages) == 2
    assert all(
        "Ended by force" in line and "`close` of an env should return" in line for line in caplog.messages
    )
    assert re.search(r"test_env_info.py., line \d+ in close", capfd.readouterr().err)
