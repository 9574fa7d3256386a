"""DoomMatchEnv on real engines."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sample_factory.envs.abilities import OwnsProcess, find_ability, max_episode_steps
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_info import env_info
from sample_factory.families.doom import lockstep
from sample_factory.families.doom.engine_resources import PortClaim, is_free
from sample_factory.families.doom.lockstep import MatchBroken
from tests.waiting import wait_until

SHORT = 0.05  # minutes
MIN_STEPS = 26  # of a whole match: 105 tics, the first of which is over when it begins, 4 a step
MAX_STEPS = 30


def random_step(env):
    return env.step([env.action_space.sample() for _ in range(env.num_agents)])


def play(env):
    """Plays until the match is over; returns the number of steps and the result of the last one."""
    for step in range(1, 10_000):
        returned = random_step(env)
        if any(returned[2]) or any(returned[3]):
            return step, returned
    raise AssertionError("the match does not end")


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
        assert len({observation["obs"].tobytes() for observation in observations}) == num_agents, (
            "each sees another picture"
        )
        steps, (observations, rewards, terminated, truncated, infos) = play(env)
        assert MIN_STEPS <= steps <= MAX_STEPS and np.isfinite(rewards).all()
        assert terminated == [False] * num_agents and truncated == [True] * num_agents
        stats = [info["episode_extra_stats"] for info in infos]
        assert {s["num_players"] for s in stats} == {num_players}
        assert {1 <= s["final_place"] <= num_players for s in stats} == {True}
        assert sum(info["true_objective"] for info in infos) <= 1, "at most one winner"


def test_frags_deaths_and_places_of_a_match_agree(make_env):
    """The engine does not reset deaths between matches; the results do."""
    env = make_env("doom_dm", timelimit=0.4, num_agents=3)  # all begin with a rocket launcher
    env.action_space.seed(1)
    env.reset(seed=1)
    deaths = []
    for _ in range(2):
        _, (_, _, _, _, infos) = play(env)
        stats = [info["episode_extra_stats"] for info in infos]
        frags = [s["frags"] for s in stats]
        assert [s["final_place"] for s in stats] == [1 + sum(other > own for other in frags) for own in frags]
        # A kill counts 1 for the player who made it; a suicide, or a death by the floor, costs 1.
        assert sum(frags) >= -sum(s["deaths"] for s in stats)
        assert all(0 <= s["deaths"] < 15 for s in stats)
        deaths.append(sum(s["deaths"] for s in stats))
    assert deaths[0] > 0, "there are deaths that the second match must not count"


# Tics of the last step: 3 of 4, and 2 (the engine would round the limit of the second match down to 106).
@pytest.mark.parametrize("minutes, tics", [(0.04, 84), (0.0509, 107)])
def test_what_happens_in_the_last_shorter_step_of_a_match_counts(make_env, minutes, tics):
    env = make_env("doom_duel", timelimit=minutes)
    env.reset(seed=1)
    nothing = [[0] * 7] * 2
    for _ in range((tics - 2) // 4):
        assert env.step(nothing)[3] == [False, False]
    env.agents[0].engine.game.send_game_command("kill")
    _, _, _, truncated, infos = env.step(nothing)
    assert truncated == [True, True]
    stats = infos[0]["episode_extra_stats"]
    assert (stats["frags"], stats["deaths"], stats["final_place"]) == (-1, 1, 2)
    assert [info["true_objective"] for info in infos] == [0, 1]


def pids(env):
    return [engine._folder.engine_pid() for engine in env._lockstep._engines]


def test_an_engine_that_is_killed_ends_its_match_and_a_new_match_can_begin(make_env):
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
        assert time.monotonic() - began < 40
        assert not any(os.path.exists(f"/proc/{pid}/exe") for pid in left)
        env.reset()
    assert play(env)[0] >= MIN_STEPS


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


def test_a_port_is_claimed_once_and_not_where_another_program_listens():
    claims = [PortClaim() for _ in range(200)]
    assert len({claim.number for claim in claims}) == 200
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as engine_socket:
        engine_socket.bind(("", 0))
        assert max(claim.number for claim in claims) < engine_socket.getsockname()[1]
    for claim in claims:
        claim.release()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("", 0))
        assert not is_free(taken.getsockname()[1])


# In a process of its own: the host engine that waits in vain is frozen until its process ends.
FAILING_START = """
import dataclasses, logging, time, types
import vizdoom
from sample_factory.families.doom import lockstep
from sample_factory.families.doom.doom_family import DoomFlags
from sample_factory.families.doom.engine import DoomEngine
from sample_factory.families.doom.make_doom_env import make_doom_env
logging.basicConfig()
lockstep.CLOSE_SECONDS = 1.0
start = DoomEngine.start
failures = [vizdoom.ViZDoomErrorException("no luck")]
close = DoomEngine.close

def start_or_fail(engine):
    if engine.index == 1 and failures:
        time.sleep(0.5)  # by then the host's process has started
        raise failures.pop()
    start(engine)

def slow_close(engine):
    time.sleep(0.3)  # the host has used up the time for all engines by now
    close(engine)

DoomEngine.start = start_or_fail
DoomEngine.close = slow_close
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
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "start 1 of the match failed: no luck" in result.stderr
    assert "played" in result.stdout
    wait_until(lambda: not list(tmp_path.iterdir()))  # the frozen engine ends with its process


def test_a_reset_in_the_middle_of_a_match_begins_another(make_env):
    env = make_env("doom_duel", timelimit=SHORT)
    env.reset(seed=1)
    for _ in range(10):
        random_step(env)
    env.reset()
    assert play(env)[0] >= MIN_STEPS, "a whole match"
    env.reset(seed=2)
    assert play(env)[0] >= MIN_STEPS


def test_more_players_than_a_match_can_have_are_refused(make_env):
    with pytest.raises(ValueError, match="--num_agents"):
        make_env("doom_duel", num_agents=6, num_bots=5)


def test_shaping_and_film_are_each_agents_own(make_env):
    env = make_env("doom_duel", "rgb_array_list", timelimit=SHORT)
    assert env.get_default_reward_shaping()["delta"]
    env.set_reward_shaping({"delta": {"POSITION_X": {"gain": 1.0, "loss": 1.0}}, "selected_weapon": {}}, 0)
    env.set_reward_shaping({"delta": {}, "selected_weapon": {}}, 1)
    env.reset(seed=1)
    env.render()
    rewards = [random_step(env)[1]]
    film = env.render()
    assert [picture.shape for picture in film] == [(480, 1284, 3)] * 4, "both agents, side by side"
    assert (film[0][:, :640] != film[0][:, 644:]).any()
    assert not film[0][:, 640:644].any(), "the divider"
    assert env.screen_grid() == (2, 1)
    rewards = np.array(rewards + [random_step(env)[1] for _ in range(19)])
    assert rewards[:, 0].any() and not rewards[:, 1].any()


@pytest.mark.parametrize(("agents", "humans"), [(1, 1), (2, 0)])
def test_a_match_has_a_simulator_for_each_agent_so_that_no_trial_starts_it(
    make_env, doom_cfg, agents, humans
):
    """A trial would wait for humans, and the main process keeps memory free for simulators."""
    adapted = adapt(make_env("doom_duel", num_agents=agents, num_humans=humans))
    assert env_info(adapted, doom_cfg()).num_simulators == agents
    assert not find_ability(adapted.env, OwnsProcess).process_is_gone()


def test_the_length_of_a_match_is_known_before_it_starts(make_env):
    assert max_episode_steps(make_env("doom_duel", timelimit=2.0)) == 2 * 60 * 35 // 4
    assert max_episode_steps(make_env("doom_deathmatch_bots", env_frameskip=2)) == 4 * 60 * 35 // 2
    assert max_episode_steps(make_env("doom_basic")) == 75
