"""People in a match, who bring an engine in real time. Here it has no window, and nobody touches the keys."""

import re
import subprocess
import sys
import threading
import time

import pytest

from sample_factory.envs.doom.doom_specs import DOOM_SPECS
from sample_factory.envs.doom.make_doom_env import engine_settings
from sample_factory.envs.doom.person import Address, play
from sample_factory.play_doom import main

PERSON = """
from types import SimpleNamespace
from sample_factory.envs.doom.doom_specs import DOOM_SPECS
from sample_factory.envs.doom.make_doom_env import engine_settings
from sample_factory.envs.doom.person import Address, play

cfg = SimpleNamespace(**{flags})
spec = DOOM_SPECS["doom_duel"]
settings = engine_settings(spec.name, spec, cfg)
for results in play(spec, settings, Address.parse({address!r}), has_window=False):
    print(results["num_players"], flush=True)
"""


def address_in(caplog) -> str:
    """Where the match says that it waits."""
    for _ in range(600):
        found = re.search(r"--join=(\S+)", caplog.text)
        if found:
            return found[1]
        time.sleep(0.05)
    raise AssertionError("nobody was asked to join")


@pytest.fixture
def join(doom_cfg):
    """A function that lets somebody join a duel; ends their process at the end of the test."""
    people = []

    def join(address, **flags):
        script = PERSON.format(flags=vars(doom_cfg(**flags)), address=address)
        people.append(subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True))
        return people[-1]

    yield join
    for person in people:
        person.kill()
        person.wait()


def test_an_agent_plays_in_real_time_against_a_person_who_has_joined(make_env, join, caplog):
    flags = {"num_agents": 1, "timelimit": 0.1}
    env = make_env("doom_duel", num_humans=1, **flags)
    reset = threading.Thread(target=env.reset, daemon=True)
    reset.start()
    person = join(address_in(caplog), **flags)
    reset.join(timeout=60)
    assert not reset.is_alive() and env.num_agents == 1
    started, num_steps, truncated = time.monotonic(), 0, [False]
    while not truncated[0]:
        _, _, _, truncated, infos = env.step([env.action_space.sample()])
        num_steps += 1
    assert time.monotonic() - started > 0.9 * 0.1 * 60
    assert num_steps == pytest.approx(0.1 * 60 * 35 / 4, abs=2)
    assert infos[0]["episode_extra_stats"]["num_players"] == 2
    assert float(person.stdout.readline()) == 2


def test_a_person_can_play_alone_against_bots(doom_cfg):
    spec = DOOM_SPECS["doom_deathmatch_bots"]
    settings = engine_settings(spec.name, spec, doom_cfg(num_bots=3, timelimit=0.05))
    episodes = play(spec, settings, None, has_window=False)
    assert next(episodes)["num_players"] == 4
    episodes.close()


def test_nobody_can_join_a_game_for_one_player(make_env, capsys):
    with pytest.raises(ValueError, match="doom_basic: --num_humans=1: nobody can join a game for one player"):
        make_env("doom_basic", num_humans=1)
    assert main(["--env=doom_basic", "--join=127.0.0.1:5029"]) == 2
    assert "doom_basic is a game for one player; there is nothing to join" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["5029", ":5029", "localhost", "localhost:", "localhost:70000", "a:b"])
def test_an_address_has_a_host_and_a_port(text, capsys):
    with pytest.raises(ValueError, match="it should be host:port, such as 127.0.0.1:5029"):
        Address.parse(text)
    assert main(["--env=doom_duel", f"--join={text}"]) == 2
    assert "it should be host:port" in capsys.readouterr().err


def test_an_address_is_what_a_match_tells():
    assert Address.parse("127.0.0.1:5029") == ("127.0.0.1", 5029)


def test_without_a_display_nobody_can_play(monkeypatch, capsys):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert main(["--env=doom_basic"]) == 1
    assert "there is no display to open a window on" in capsys.readouterr().err
