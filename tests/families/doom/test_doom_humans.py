"""Humans in a match, who bring an engine in real time. Here it has no window, and no key is pressed."""

import dataclasses
import functools
import re
import shlex
import subprocess
import sys
import threading
import time

import pytest

from sample_factory.__main__ import command
from sample_factory.envs import env_registry
from sample_factory.envs.protocol import EnvConfig
from sample_factory.families.doom.doom_family import DOOM_SPECS, DoomFlags
from sample_factory.families.doom.engine import DoomEngine
from sample_factory.families.doom.human_player import KEYS, HumanEngine, play
from sample_factory.families.doom.make_doom_env import engine_settings, make_doom_env
from tests.waiting import eventually

# Reads the endpoint from stdin, so that its imports can overlap with the start of the match.
HUMAN = """
import itertools
import time
from types import SimpleNamespace
from sample_factory.families.doom import human_player
from sample_factory.families.doom.doom_family import DOOM_SPECS
from sample_factory.families.doom.make_doom_env import engine_settings

human_player.ANSWER_SECONDS = {patience}
human_player.CLOSE_SECONDS = {close_seconds}
begin = human_player.HumanEngine.begin
def begin_and_tell(self):
    begin(self)
    print(time.monotonic(), flush=True)
human_player.HumanEngine.begin = begin_and_tell
spec = DOOM_SPECS["doom_duel"]
settings = engine_settings(spec.name, spec, SimpleNamespace(**{flags}))
endpoint = human_player.parse_endpoint(input())
matches = human_player.play(spec, settings, endpoint, has_window=False)
for results in itertools.islice(matches, {num_matches}):
    print(results["num_players"], flush=True)
matches.close()
"""
# In a process of its own, with which its engine ends.
HUMAN_DOES_NOT_JOIN = """
import sys
from types import SimpleNamespace
from sample_factory.families.doom import lockstep
from sample_factory.families.doom.make_doom_env import make_doom_env
from sample_factory.envs.protocol import EnvConfig
from sample_factory.launch.exit_codes import run_command
lockstep.JOIN_SECONDS = 1
lockstep.CLOSE_SECONDS = 1
env = make_doom_env("doom_duel", SimpleNamespace(**{flags}), EnvConfig(0, 0, 0))
sys.exit(run_command(lambda arguments: print(env.reset(seed=1))))
"""
MINUTES = 0.04
ONE = {"num_agents": 1, "num_humans": 1, "timelimit": MINUTES}
MATCH_SECONDS = MINUTES * 60
PATIENCE_SECONDS = 120.0


def endpoints_in(caplog) -> list[str]:
    """Returns the endpoints at which the match has logged that it waits."""
    return re.findall(rf"--env=doom_duel --join=(\S+) --timelimit={MINUTES:g}", caplog.text)


class Human:
    """A process in which a human joins a duel at an endpoint and plays matches."""

    def __init__(self, flags, num_matches=1000, patience=45, close_seconds=5):
        script = HUMAN.format(
            flags=flags, num_matches=num_matches, patience=patience, close_seconds=close_seconds
        )
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", script], text=True, **pipes)

    def join(self, endpoint: str) -> None:
        self.process.stdin.write(f"{endpoint}\n")
        self.process.stdin.flush()

    def begun(self) -> float:
        """Waits until the human plays; returns that time in seconds."""
        return self._next_number()

    def num_players(self) -> float:
        """Returns the number of players of the next match that ends."""
        return self._next_number()

    def _next_number(self) -> float:
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return float(line)


@pytest.fixture
def make_human(doom_cfg):
    """A function that starts a Human; ends their processes at the end of the test."""
    humans = []

    def make(**options):
        humans.append(Human(vars(doom_cfg(**ONE)), **options))
        return humans[-1]

    yield make
    for human in humans:
        human.process.kill()
        human.process.communicate()


class Stepping(threading.Thread):
    """Plays matches of an env one after another, with random actions."""

    def __init__(self, env):
        super().__init__(daemon=True)
        self.env = env
        self.results = []  # of the agent in each match
        self.ends = []  # of each match: the time in seconds, and the number of steps since the first match
        self.num_steps = 0
        self.is_to_end = False
        self.start()

    def run(self):
        self.env.reset(seed=1)
        while not self.is_to_end:
            _, _, _, truncated, infos = self.env.step([self.env.action_space.sample()])
            self.num_steps += 1
            if truncated[0]:
                self.ends.append((time.monotonic(), self.num_steps))
                self.results.append(infos[0]["episode_extra_stats"])


def test_a_human_plays_matches_in_real_time_and_after_leaving_the_next_match_waits_for_another(
    make_env, make_human, caplog
):
    caplog.set_level("INFO", logger="sample_factory")
    first = make_human(num_matches=2)
    second = make_human()
    stepping = Stepping(make_env("doom_duel", **ONE))
    assert eventually(lambda: endpoints_in(caplog), PATIENCE_SECONDS)
    first.join(endpoints_in(caplog)[0])
    assert eventually(lambda: len(stepping.results) >= 2, PATIENCE_SECONDS)
    (first_end, _), (second_end, _), *_ = stepping.ends
    assert first.begun() < first_end - 0.5 * MATCH_SECONDS, "it plays the first match, too"
    assert second_end - first_end > 0.8 * MATCH_SECONDS
    assert [first.num_players() for _ in range(2)] == [2, 2]
    assert first.process.wait(timeout=PATIENCE_SECONDS) == 0
    assert eventually(lambda: len(endpoints_in(caplog)) == 2, PATIENCE_SECONDS)
    num_matches = len(stepping.results) + 1  # the results of the last one follow with the step that waits
    second.join(endpoints_in(caplog)[1])
    assert eventually(lambda: len(stepping.results) > num_matches, PATIENCE_SECONDS)
    assert second.begun() < stepping.ends[num_matches][0] - 0.5 * MATCH_SECONDS
    assert second.num_players() == 2
    stepping.is_to_end = True
    stepping.join()
    stepping.env.close()
    assert second.process.wait(timeout=PATIENCE_SECONDS) == 0, "a human who is left alone leaves"
    assert stepping.ends[-1][1] == pytest.approx(len(stepping.results) * MATCH_SECONDS * 35 / 4, abs=12)
    assert stepping.results[-1]["num_players"] == 2


def test_a_match_that_no_human_joins_ends_its_command_with_one_line(doom_cfg):
    script = HUMAN_DOES_NOT_JOIN.format(flags=vars(doom_cfg(**ONE)))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    last_line = done.stderr.splitlines()[-1]
    assert last_line.startswith("error: doom_duel: the match did not begin: waited for 1 human player(s); ")
    assert last_line.endswith("an engine has not answered for 1 s")


def test_a_human_who_joins_where_no_match_waits_gets_an_error(make_human):
    human = make_human(patience=1, close_seconds=1)
    _, errors = human.process.communicate("127.0.0.1:9\n", timeout=60)
    assert human.process.returncode == 1
    assert "NotPlayed: doom_duel at 127.0.0.1:9 did not begin: no answer within 1 s" in errors


def test_only_one_match_of_an_experiment_can_wait_for_humans_and_no_game_for_one_player(make_env, doom_cfg):
    make_doom_env("doom_duel", doom_cfg(**ONE), EnvConfig(0, 0, 0)).close()
    with pytest.raises(ValueError, match="--num_humans=1"):
        make_doom_env("doom_duel", doom_cfg(**ONE), EnvConfig(0, 1, 1))
    with pytest.raises(ValueError, match="--num_humans=1"):
        make_env("doom_basic", num_humans=1)


def test_the_command_to_join_can_be_pasted_into_a_shell(doom_cfg):
    spec = DOOM_SPECS["doom_duel"]
    flags = {**ONE, "doom_scenarios_dir": "/my maps/it's"}
    command = engine_settings(spec.name, spec, doom_cfg(**flags)).invitation(5029)
    assert "--doom_scenarios_dir=/my maps/it's" in shlex.split(command)


def test_a_match_that_a_user_has_registered_can_be_joined(monkeypatch, capsys):
    monkeypatch.setattr(env_registry, "_FAMILIES", dict(env_registry._FAMILIES))
    monkeypatch.delenv("DISPLAY", raising=False)
    spec = dataclasses.replace(DOOM_SPECS["doom_duel"], name="my_duel", goal="Win it.")
    env_registry.register_env("my_duel", functools.partial(make_doom_env, spec=spec), DoomFlags)
    assert command("play_doom")(["--env=my_duel", "--join=127.0.0.1:5029"]) == 1
    printed = capsys.readouterr()
    assert "there is no display" in printed.err and "Win it." in printed.out


def test_a_human_can_play_alone_against_bots(doom_cfg):
    spec = DOOM_SPECS["doom_deathmatch_bots"]
    settings = engine_settings(spec.name, spec, doom_cfg(num_bots=3, timelimit=MINUTES / 2))
    episodes = play(spec, settings, None, has_window=False)
    assert next(episodes)["num_players"] == 4
    episodes.close()


ENDPOINTS = ("5029", ":5029", "a b:5029", "localhost", "localhost:", "localhost:70000", "a:b")


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--env=doom_basic"], 1, "there is no display to open a window on"),
        (["--env=doom_basic", "--join=127.0.0.1:5029"], 2, "--num_humans=1"),
        (["--env=gym_CartPole-v1"], 2, "CartPoleEnv is no game of Doom"),
        *((["--env=doom_duel", f"--join={text}"], 2, "is not host:port") for text in ENDPOINTS),
    ],
)
def test_what_a_human_cannot_play_is_refused(flags, code, message, monkeypatch, capsys):
    monkeypatch.delenv("DISPLAY", raising=False)
    assert command("play_doom")(flags) == code
    assert message in capsys.readouterr().err


def test_the_score_of_a_human_is_on_the_scale_of_an_agents(doom_cfg):
    """A tic costs 1 in the engine, and 0.01 in the reward of training."""
    spec = dataclasses.replace(DOOM_SPECS["doom_basic"], time_limit_frames=40)
    episodes = play(spec, engine_settings(spec.name, spec, doom_cfg()), None, seed=1, has_window=False)
    results = next(episodes)
    episodes.close()
    assert results["length"] >= 40 and results["reward"] == pytest.approx(-results["length"] / 100)
    assert "objective" not in results, "the env reports no other than the reward"


def test_an_episode_of_a_human_that_the_map_ends_has_the_length_that_was_played(doom_cfg, monkeypatch):
    """The engine's clock says 0 then. The map ends when its monster is dead, for which it pays 101; here the
    monster is in front of the player."""
    times = []
    call = HumanEngine.call

    def shoot(self, function, *seconds):
        call(self, function, *seconds)
        times.append(self.engine.game.get_episode_time())
        self.engine.game.send_game_command("+attack")

    monkeypatch.setattr(HumanEngine, "call", shoot)
    spec = DOOM_SPECS["doom_basic"]
    episodes = play(spec, engine_settings(spec.name, spec, doom_cfg()), None, seed=1, has_window=False)
    results = next(episodes)
    episodes.close()
    assert times[-1] == 0 and results["length"] == times[-2] + 1 - times[0]
    assert results["reward"] == pytest.approx((101 - results["length"]) / 100)


def test_a_human_has_a_key_for_every_button_of_every_scenario(doom_cfg):
    known = {button for _, buttons in KEYS.values() for button in buttons}
    for spec in (spec for spec in DOOM_SPECS.values() if "two_colors" not in spec.name):
        engine = DoomEngine(engine_settings(spec.name, spec, doom_cfg()))
        assert set(engine.button_names()) <= known
