"""People in a match, who bring an engine in real time. Here it has no window, and nobody touches the keys."""

import re
import subprocess
import sys
import threading
import time

import pytest

from sample_factory.envs.doom.doom_family import DOOM_SPECS
from sample_factory.envs.doom.human_player import Endpoint, play
from sample_factory.envs.doom.make_doom_env import engine_settings, make_doom_env
from sample_factory.envs.protocol import EnvConfig
from sample_factory.play_doom import main
from tests.runtime.waiting import eventually

PERSON = """
import itertools
from types import SimpleNamespace
from sample_factory.envs.doom import human_player
from sample_factory.envs.doom.doom_family import DOOM_SPECS
from sample_factory.envs.doom.make_doom_env import engine_settings

human_player.ANSWER_SECONDS = {patience}
spec = DOOM_SPECS["doom_duel"]
settings = engine_settings(spec.name, spec, SimpleNamespace(**{flags}))
matches = human_player.play(spec, settings, human_player.Endpoint.parse({address!r}), has_window=False)
for results in itertools.islice(matches, {num_matches}):
    print(results["num_players"], flush=True)
matches.close()
"""
# In a process of its own, with which its engine ends.
NOBODY_JOINS = """
import sys
from types import SimpleNamespace
from sample_factory.envs.doom import lockstep
from sample_factory.envs.doom.make_doom_env import make_doom_env
from sample_factory.envs.protocol import EnvConfig
from sample_factory.experiment.exit_codes import exit_code
lockstep.JOIN_SECONDS = 1
env = make_doom_env("doom_duel", SimpleNamespace(**{flags}), EnvConfig(0, 0, 0))
sys.exit(exit_code(lambda: env.reset(seed=1)))
"""
ONE = {"num_agents": 1, "num_humans": 1, "timelimit": 0.04}
MATCH_SECONDS = 0.04 * 60
PATIENCE_SECONDS = 40.0


def addresses_in(caplog) -> list[str]:
    """Where the match has said that it waits."""
    return re.findall(r"--env=doom_duel --join=(\S+) --timelimit=0.04", caplog.text)


@pytest.fixture
def join(doom_cfg):
    """A function that lets somebody join a duel; ends their process at the end of the test."""
    people = []

    def join(address, num_matches=1000, patience=45):
        script = PERSON.format(
            flags=vars(doom_cfg(**ONE)), address=address, num_matches=num_matches, patience=patience
        )
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        people.append(subprocess.Popen([sys.executable, "-c", script], text=True, **pipes))
        return people[-1]

    yield join
    for person in people:
        person.kill()
        person.communicate()


class Stepping(threading.Thread):
    """Plays matches one after another; `results` are those of the agent in each."""

    def __init__(self, env):
        super().__init__(daemon=True)
        self.env = env
        self.results = []
        self.num_steps = 0
        self.is_to_end = False
        self.start()

    def run(self):
        self.env.reset(seed=1)
        while not self.is_to_end:
            _, _, _, truncated, infos = self.env.step([self.env.action_space.sample()])
            self.num_steps += 1
            if truncated[0]:
                self.results.append(infos[0]["episode_extra_stats"])


def test_a_person_plays_matches_in_real_time_and_another_one_is_waited_for_when_they_have_left(
    make_env, join, caplog
):
    caplog.set_level("INFO", logger="sample_factory")
    stepping = Stepping(make_env("doom_duel", **ONE))
    assert eventually(lambda: addresses_in(caplog), PATIENCE_SECONDS)
    first = join(addresses_in(caplog)[0], num_matches=2)
    assert eventually(lambda: stepping.num_steps > 0, PATIENCE_SECONDS)
    started = time.monotonic()
    assert eventually(lambda: len(stepping.results) >= 2, PATIENCE_SECONDS)
    assert time.monotonic() - started > 0.9 * 2 * MATCH_SECONDS
    assert [first.stdout.readline() for _ in range(2)] == ["2.0\n", "2.0\n"]
    assert first.wait(timeout=PATIENCE_SECONDS) == 0
    assert eventually(lambda: len(addresses_in(caplog)) == 2, PATIENCE_SECONDS)
    num_matches = len(stepping.results)
    second = join(addresses_in(caplog)[1])
    assert eventually(lambda: len(stepping.results) > num_matches, PATIENCE_SECONDS)
    assert second.stdout.readline() == "2.0\n"
    stepping.is_to_end = True
    stepping.join(timeout=10)
    stepping.env.close()
    assert second.wait(timeout=PATIENCE_SECONDS) == 0, "who is left alone leaves"
    assert stepping.num_steps == pytest.approx(len(stepping.results) * MATCH_SECONDS * 35 / 4, abs=12)
    assert stepping.results[-1]["num_players"] == 2


def test_a_match_that_nobody_joins_ends_its_command_with_one_line(doom_cfg):
    script = NOBODY_JOINS.format(flags=vars(doom_cfg(**ONE)))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    last_line = done.stderr.splitlines()[-1]
    assert last_line.startswith("error: doom_duel: the match did not begin: waited for 1 human player(s); ")
    assert last_line.endswith("an engine has not answered for 1 s")


def test_where_no_match_waits_nobody_plays(join):
    person = join("127.0.0.1:9", patience=1)
    _, errors = person.communicate(timeout=60)
    assert person.returncode == 1
    assert "NotPlayed: doom_duel at 127.0.0.1:9 did not begin: no answer within 1 s" in errors


def test_one_match_alone_can_wait_for_people(doom_cfg):
    make_doom_env("doom_duel", doom_cfg(**ONE), EnvConfig(0, 0, 0)).close()
    with pytest.raises(ValueError, match="humans can join one match only; use enjoy"):
        make_doom_env("doom_duel", doom_cfg(**ONE), EnvConfig(0, 1, 1))


def test_a_person_can_play_alone_against_bots(doom_cfg):
    spec = DOOM_SPECS["doom_deathmatch_bots"]
    settings = engine_settings(spec.name, spec, doom_cfg(num_bots=3, timelimit=0.04))
    episodes = play(spec, settings, None, has_window=False)
    assert next(episodes)["num_players"] == 4
    episodes.close()


def test_nobody_can_join_a_game_for_one_player(make_env, capsys):
    with pytest.raises(ValueError, match="--num_humans=1: humans cannot join a game"):
        make_env("doom_basic", num_humans=1)
    assert main(["--env=doom_basic", "--join=127.0.0.1:5029"]) == 2
    assert "humans cannot join a game for one player" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["5029", ":5029", "a b:5029", "localhost", "localhost:", "localhost:70000", "a:b"]
)
def test_an_address_has_a_host_and_a_port(text, capsys):
    with pytest.raises(ValueError, match="is not host:port; write it like 127.0.0.1:5029"):
        Endpoint.parse(text)
    assert main(["--env=doom_duel", f"--join={text}"]) == 2
    assert "is not host:port" in capsys.readouterr().err


def test_an_address_is_what_a_match_tells():
    assert Endpoint.parse("127.0.0.1:5029") == ("127.0.0.1", 5029)


def test_without_a_display_nobody_can_play(monkeypatch, capsys):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert main(["--env=doom_basic"]) == 1
    assert "there is no display to open a window on" in capsys.readouterr().err
