"""COMRAD's tasks for two and four agents, as DoomSpecs from its .cfg and .wad files, beside bare engines.

Its wheel brings a package named sample_factory of its own: it is unpacked, and never installed.
"""

import functools
import math
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import pytest
import vizdoom
from vizdoom import GameVariable

from sample_factory import register_env
from sample_factory.families.doom.action_spaces import flat
from sample_factory.families.doom.doom_family import (
    TICS_PER_MINUTE,
    DoomFlags,
    DoomSpec,
    MatchSpec,
    doom_defaults,
)
from sample_factory.families.doom.make_doom_env import make_doom_env
from sample_factory.runtime.failures import Failure
from tests.conformance.ledger import Plain, Tally, assert_equal
from tests.conformance.product import Trained, adapted_by_name, train_on

VERSION = "1.0.0"
FRAMESKIP = 4
# As VizdoomEnvMultiplayer of the package starts its engines, which has no -deathmatch.
SETTINGS = dict.fromkeys(("sv_forcerespawn", "sv_respawnprotect", "sv_spawnfarthest", "sv_nojump"), 0)
MOVED = {"delta": {"POSITION_X": {"gain": 1.0, "loss": -1.0}}}  # the maps pay nothing themselves


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory) -> Path:
    """Returns the folder of the package's .cfg and .wad files."""
    folder = tmp_path_factory.mktemp("comrad")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", f"comrad-bench=={VERSION}"]
    result = subprocess.run([*command, "-d", str(folder)], capture_output=True, text=True)
    if result.returncode:
        pytest.skip(f"comrad-bench cannot be downloaded: {result.stderr.strip().splitlines()[-1]}")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        names = [name for name in wheel.namelist() if name.startswith("comrad/scenarios/")]
        wheel.extractall(folder, names)
    return folder / "comrad" / "scenarios"


def task_spec(scenarios: Path, task: str, num_agents: int, tics: int) -> DoomSpec:
    """Returns a registered spec: nothing, or one button at a time; rewards are the ways eastwards."""
    cfg = scenarios / f"{task}.cfg"
    game = vizdoom.DoomGame()
    game.load_config(str(cfg))
    match = MatchSpec(
        num_agents,
        num_bots=0,
        minutes=tics / TICS_PER_MINUTE,
        deathmatch=False,
        settings={**SETTINGS, "sv_noexit": 0},
    )
    actions = flat(game.get_available_buttons_size() + 1)
    spec = DoomSpec(f"comrad_{task}_{num_agents}", str(cfg), actions, shaping=MOVED, match=match)
    make = functools.partial(make_doom_env, spec=spec)
    register_env(spec.name, make, DoomFlags, doom_defaults, follows_observation=False)
    return spec


class Look(NamedTuple):
    """What an engine shows after a tic, or at the start of a match. picture: None after the end."""

    is_over: bool
    is_cut: bool
    is_dead: bool
    x: float
    time: int
    picture: np.ndarray | None


def look(game: vizdoom.DoomGame) -> Look:
    state = game.get_state()
    picture = None
    if state is not None:
        planes = [cv2.resize(p, (128, 72), interpolation=cv2.INTER_NEAREST) for p in state.screen_buffer]
        picture = np.stack(planes)
    return Look(
        game.is_episode_finished(),
        game.is_episode_timeout_reached(),
        game.is_player_dead(),
        game.get_game_variable(GameVariable.POSITION_X),
        game.get_episode_time(),
        picture,
    )


def as_plain(looks: list[list[Look]], num_steps: int) -> Plain:
    """Returns what the engines showed as steps. looks: by engine, at the start and after each tic of a match,
    one match after another."""
    plain, tics = Plain(), zip(*looks, strict=True)
    last: list[Look] = []
    seen: list[Any] = []
    for _ in range(num_steps):
        is_first = not last
        if is_first:  # a match begins
            last = list(next(tics))
            seen = [own.picture for own in last]
            out = [False] * len(last)
        plain.see(obs=np.stack(seen))
        now = last
        played = 0
        while played < FRAMESKIP and not now[0].is_over:
            now = list(next(tics))
            played += 1
        assert len({own.is_over for own in now}) == 1, "a match ends for all at once"
        is_over, is_cut = now[0].is_over, now[0].is_cut
        dies = [own.is_dead and not was_out for own, was_out in zip(now, out)]
        ends = [(is_over and not was_out) or died for was_out, died in zip(out, dies)]
        terminated = [end and (died or not is_cut) for end, died in zip(ends, dies)]
        # The first and the last step are not shaped.
        moved = [0.0 if is_first else new.x - old.x for new, old in zip(now, last)]
        rewards = [0.0 if end or was_out else way for end, was_out, way in zip(ends, out, moved)]
        plain.add(
            rewards,
            terminated,
            [end and not final for end, final in zip(ends, terminated)],
            [not was_out for was_out in out],
            frames=played if is_cut else FRAMESKIP,
        )
        out = [was_out or end for was_out, end in zip(out, ends)]
        seen = [old if is_out else own.picture for old, own, is_out in zip(seen, now, out)]
        last = [] if all(out) else now
    plain.see(obs=np.stack([own.picture for own in next(tics)] if not last else seen))
    return plain


class Watched(vizdoom.DoomGame):
    """An engine that notes what it shows, below all code of the product."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[Look] = []

    def new_episode(self, *args: Any) -> None:
        super().new_episode(*args)
        self.looks.append(look(self))

    def advance_action(self, *args: Any) -> None:
        super().advance_action(*args)
        self.looks.append(look(self))


def assert_same(trained: Trained, plain: Plain, package: str, count: Any) -> None:
    tally = assert_equal(trained, plain)
    count(package, Tally("", tally.episodes, tally.steps))


@pytest.mark.parametrize(
    ("task", "num_agents", "num_matches"),
    [
        ("coop_health_gathering", 2, 12),
        ("stag_hunt_arena", 2, 12),
        ("lava_maze_simple", 2, 6),  # deaths, exits
        ("ammo_carrier", 2, 12),
        ("coop_health_gathering", 4, 8),
        ("lavapit", 4, 8),
        ("stag_hunt_arena", 4, 8),
        ("dumb_enemies", 4, 8),
    ],
)
def test_steps_are_those_that_the_engines_show(task, num_agents, num_matches, scenarios, monkeypatch, count):
    monkeypatch.setattr(vizdoom, "DoomGame", Watched)
    tics = 42
    spec = task_spec(scenarios, task, num_agents, tics)
    env = adapted_by_name(spec.name)
    num_steps = num_matches * math.ceil((tics - 1) / FRAMESKIP)
    trained = train_on(env, num_steps, frameskip=FRAMESKIP)
    looks = [agent.engine.game.looks for agent in env.env.agents]
    assert_same(trained, as_plain(looks, num_steps), "vizdoom COMRAD's tasks", count)


@pytest.mark.parametrize("task", ["coop_puzzle", "lava_maze", "foraging_commons"])
def test_four_agents_on_a_map_with_two_starts_are_refused(task, scenarios):
    spec = task_spec(scenarios, task, 4, 42)
    with pytest.raises(Failure, match="2 starts for 4 players"):
        adapted_by_name(spec.name)
