"""On real engines."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.doom import lockstep
from sample_factory.envs.doom.engine_resources import PortClaim, is_free
from sample_factory.envs.doom.lockstep import MatchBroken
from sample_factory.envs.protocol import ObservationRows
from sample_factory.sampling.rollout.guarded_env import GuardedEnv

SHORT = 0.1  # minutes: 210 tics


def random_step(env):
    return env.step([env.action_space.sample() for _ in range(env.num_agents)])


def play(env):
    """Until the match is over: the number of steps, and what the last one returned."""
    for step in range(1, 10_000):
        returned = random_step(env)
        if any(returned[2]) or any(returned[3]):
            return step, returned
    raise AssertionError("no end")


@pytest.mark.parametrize(
    "name, num_agents, num_players", [("doom_duel", 2, 2), ("doom_deathmatch_full", 4, 8), ("doom_dm", 8, 8)]
)
def test_a_match_is_over_for_all_at_once_and_the_next_one_begins(make_env, name, num_agents, num_players):
    env = make_env(name, timelimit=SHORT)
    assert env.num_agents == num_agents
    env.action_space.seed(0)
    observations, infos = env.reset(seed=1)
    assert infos == [{}] * num_agents
    for _ in range(2):
        assert all(observation in env.observation_space for observation in observations)
        assert len({observation["obs"].tobytes() for observation in observations}) == num_agents, "own eyes"
        steps, (observations, rewards, terminated, truncated, infos) = play(env)
        assert 210 / 4 <= steps <= 56 and np.isfinite(rewards).all()
        assert terminated == [False] * num_agents and truncated == [True] * num_agents
        stats = [info["episode_extra_stats"] for info in infos]
        assert {s["num_players"] for s in stats} == {num_players}
        assert {1 <= s["final_place"] <= num_players for s in stats} == {True}
        assert sum(info["true_objective"] for info in infos) <= 1, "one winner at most"


def test_frags_deaths_and_places_of_a_match_agree(make_env):
    """Deaths go on counting in the engine from match to match; ours begin at 0."""
    env = make_env("doom_dm", timelimit=0.4, num_agents=3)  # all begin with a rocket launcher
    env.action_space.seed(1)
    env.reset(seed=1)
    deaths = 0
    for _ in range(3):
        _, (_, _, _, _, infos) = play(env)
        stats = [info["episode_extra_stats"] for info in infos]
        frags = [s["frags"] for s in stats]
        assert [s["final_place"] for s in stats] == [1 + sum(other > own for other in frags) for own in frags]
        # A kill is worth 1 to who made it; a death by oneself, or by the floor, costs 1.
        assert sum(frags) >= -sum(s["deaths"] for s in stats)
        assert all(0 <= s["deaths"] < 15 for s in stats)
        deaths += sum(s["deaths"] for s in stats)
    assert deaths > 0


def pids(env):
    return [engine._folder.engine_pid() for engine in env._lockstep._engines]


def test_an_engine_that_is_killed_ends_its_match_which_can_be_played_anew(make_env):
    env = make_env("doom_duel", timelimit=SHORT)
    env.reset(seed=1)
    for victim in (0, 1):
        random_step(env)
        os.kill(pids(env)[victim], signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises(Exception, match="gone|exit|crash|Exit"):
            for _ in range(3):
                random_step(env)
        left = pids(env)
        env.close()
        assert time.monotonic() - began < 20
        assert not any(os.path.exists(f"/proc/{pid}/exe") for pid in left)
        env.reset()
    assert play(env)[0] > 50


def test_an_engine_that_hangs_ends_its_match(make_env, monkeypatch):
    env = make_env("doom_duel", timelimit=SHORT)
    env.reset(seed=1)
    os.kill(pids(env)[1], signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(lockstep, "ANSWER_SECONDS", 2.0)
        with pytest.raises(MatchBroken, match="doom_duel: an engine has not answered for 2 s"):
            random_step(env)
    left = pids(env)
    env.close()
    assert not any(os.path.exists(f"/proc/{pid}/exe") for pid in left)
    env.reset()
    random_step(env)


def test_a_broken_match_is_rebuilt_and_the_worker_goes_on(make_env):
    made = []
    told = []

    def make():
        made.append(make_env("doom_duel", timelimit=SHORT))
        return adapt(made[-1])

    env = GuardedEnv(make, "worker 0: env 0 (doom_duel)", 0, np.zeros(1), told.append)
    rows = ObservationRows.allocate(env.kinds)
    env.reset(1, rows)
    actions = np.zeros((2, 7), np.float32)
    assert env.step(actions, rows) is not None
    os.kill(pids(made[0])[1], signal.SIGKILL)
    results = [env.step(actions, rows) for _ in range(3)]
    assert None in results and results[-1] is not None
    assert len(made) == 2 and len(told) == 1 and "is rebuilt" in told[0]
    env.close()


def test_a_port_is_claimed_once_and_not_where_another_program_listens():
    claims = [PortClaim() for _ in range(200)]
    assert len({claim.number for claim in claims}) == 200
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as of_an_engine:
        of_an_engine.bind(("", 0))
        assert max(claim.number for claim in claims) < of_an_engine.getsockname()[1]
    for claim in claims:
        claim.release()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("", 0))
        assert not is_free(taken.getsockname()[1])


# In a process of its own, since the host that waits in vain stays, frozen, until its process ends.
FAILING_START = """
import dataclasses, logging, time, types
import vizdoom
from sample_factory.envs.doom import lockstep
from sample_factory.envs.doom.doom_family import DoomFlags
from sample_factory.envs.doom.engine import DoomEngine
from sample_factory.envs.doom.make_doom_env import make_doom_env
logging.basicConfig()
lockstep.CLOSE_SECONDS = 1.0
start, failures = DoomEngine.start, [vizdoom.ViZDoomErrorException("no luck")]
close = DoomEngine.close

def start_of_some(engine):
    if engine.index == 1 and failures:
        time.sleep(0.5)  # the host's process is there by then
        raise failures.pop()
    start(engine)

def slow_close(engine):
    time.sleep(0.3)  # by now the host has used up the time for all
    close(engine)

DoomEngine.start, DoomEngine.close = start_of_some, slow_close
cfg = types.SimpleNamespace(**dataclasses.asdict(DoomFlags()), env_frameskip=4)
env = make_doom_env("doom_duel", cfg)
env.reset(seed=1)
env.step([env.action_space.sample()] * 2)
print("played")
env.close()
"""


def test_a_start_that_fails_for_one_player_is_tried_again_and_leaves_the_process_alive(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", FAILING_START]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "start 1 of the match failed: no luck" in result.stderr
    assert "played" in result.stdout
    deadline = time.monotonic() + 10
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list(tmp_path.iterdir()), "the frozen engine has gone with its process"


def test_a_reset_in_the_middle_of_a_match_begins_another(make_env):
    env = make_env("doom_duel", timelimit=SHORT)
    env.reset(seed=1)
    for _ in range(10):
        random_step(env)
    env.reset()
    assert play(env)[0] >= 52, "a whole match"
    env.reset(seed=2)
    assert play(env)[0] >= 52


def test_more_players_than_a_match_can_have_are_refused(make_env):
    with pytest.raises(ValueError, match="doom_duel: 6 agents and 5 bots are more than the 9 players"):
        make_env("doom_duel", num_agents=6, num_bots=5)


def test_the_film_of_a_match_shows_all_players_side_by_side(make_env):
    env = make_env("doom_duel", "rgb_array_list", timelimit=SHORT)
    env.reset(seed=1)
    env.render()
    random_step(env)
    film = env.render()
    assert [picture.shape for picture in film] == [(480, 1280, 3)] * 4
    assert (film[0][:, :640] != film[0][:, 640:]).any()


def test_shaping_is_an_agents_own(make_env):
    env = make_env("doom_duel", timelimit=SHORT)
    assert env.get_default_reward_shaping()["delta"]
    env.set_reward_shaping({"delta": {"POSITION_X": {"gain": 1.0, "loss": 1.0}}, "selected_weapon": {}}, 0)
    env.set_reward_shaping({"delta": {}, "selected_weapon": {}}, 1)
    env.reset(seed=1)
    rewards = np.array([random_step(env)[1] for _ in range(20)])
    assert rewards[:, 0].any() and not rewards[:, 1].any()
