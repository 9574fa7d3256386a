"""Doom matches: what is reported of each player, beside the counters of the engines themselves."""

import math

import cv2
import numpy as np
import pytest
import vizdoom
from vizdoom import GameVariable

from sample_factory.envs.random_actions import RandomActions
from sample_factory.families.doom.doom_family import TICS_PER_MINUTE, DoomSpec, MatchSpec
from sample_factory.families.doom.engine import DoomEngine
from sample_factory.families.doom.engine_resources import PortClaim
from tests.conformance.ledger import Plain, Tally, assert_equal
from tests.conformance.product import adapted_by_name, train_on
from tests.conformance.test_doom import BareGame, package_spec, pressed

FRAMESKIP = 4
SUICIDES = 0.1  # share of the steps in which one of the players is killed by a command of the console


def standing(game: vizdoom.DoomGame) -> dict:
    """Returns what an engine counts: of all players, and of its own."""
    server = game.get_server_state()
    return {
        "time": game.get_episode_time(),
        "frags": list(server.players_frags[: server.player_count]),
        "deaths": game.get_game_variable(GameVariable.DEATHCOUNT),
        "own_frags": game.get_game_variable(GameVariable.FRAGCOUNT),
        "hits": game.get_game_variable(GameVariable.HITCOUNT),
        "damage": game.get_game_variable(GameVariable.DAMAGECOUNT),
        "number": int(game.get_game_variable(GameVariable.PLAYER_NUMBER)),
    }


@pytest.fixture
def matches(monkeypatch):
    """Returns the standings, by engine, at the start and at the end of each match."""
    found: dict[str, dict[int, list]] = {"start": {}, "end": {}}
    new_episode = DoomEngine.new_episode

    def look(engine, seed):
        if engine.index in found["start"]:
            found["end"].setdefault(engine.index, []).append(standing(engine.game))
        new_episode(engine, seed)
        found["start"].setdefault(engine.index, []).append(standing(engine.game))

    monkeypatch.setattr(DoomEngine, "new_episode", look)
    return found


@pytest.mark.parametrize(
    ("env_name", "flags", "tics", "num_matches"),
    [
        ("doom_duel", {"timelimit": 42 / 2100}, 42, 60),  # the last step is shorter
        ("doom_duel", {"timelimit": 120 / 2100}, 120, 30),
        ("doom_deathmatch_full", {"timelimit": 81 / 2100, "num_agents": 3, "num_bots": 2}, 81, 15),
        ("doom_duel_bots", {"timelimit": 120 / 2100}, 120, 30),  # one engine
    ],
)
def test_matches_report_what_the_engines_count(env_name, flags, tics, num_matches, matches, count):
    env = adapted_by_name(env_name, **flags)
    steps_of_match = math.ceil((tics - 1) / FRAMESKIP)  # the engines have played a tic at the start
    made = env.env
    engines = [made.agent.engine] if env.num_agents == 1 else [agent.engine for agent in made.agents]
    draw = RandomActions(env.kinds, 1)
    rng = np.random.default_rng(1)

    def act(rows):
        if rng.random() < SUICIDES:
            engines[rng.integers(len(engines))].game.send_game_command("kill")
        return draw(rows)

    trained = train_on(env, num_matches * steps_of_match, act=act, frameskip=FRAMESKIP)
    assert trained.acted.all() and not trained.terminated.any()
    ends = np.flatnonzero(trained.truncated[:, 0])
    assert (trained.truncated == trained.truncated[:, :1]).all(), "all players end at once"
    assert (np.diff(ends, prepend=-1) == steps_of_match).all() and len(ends) == num_matches
    num_deaths = 0
    for episode in trained.episodes:
        match = int(np.searchsorted(ends, episode.step))
        start, end = (matches[when][episode.agent][match] for when in ("start", "end"))
        frags = end["frags"]
        own, others = frags[end["number"]], [f for i, f in enumerate(frags) if i != end["number"]]
        objective = own if env_name.endswith("_bots") else own > max(others)
        assert (start["time"], end["time"], end["own_frags"]) == (1, tics, own)
        assert episode.length == tics - 1
        assert episode.stats["frags"] == own and episode.objective == objective
        for name in ("deaths", "hits", "damage"):
            assert episode.stats[name] == end[name] - start[name], name
        assert episode.stats["final_place"] == 1 + sum(other > own for other in others)
        assert episode.stats["num_players"] == len(frags)
        num_deaths += episode.stats["deaths"]
    assert num_deaths > num_matches / 2, "else the counters show nothing"
    num_episodes = len(trained.episodes)
    assert num_episodes == num_matches * env.num_agents
    count("vizdoom matches", Tally("", num_episodes, trained.acted.size))


def play_match(spec: DoomSpec, actions: np.ndarray, match_tics: int, seed: int = 1) -> Plain:
    """Plays actions as the only player of a deathmatch, which the engine hosts."""
    bare = BareGame(spec.scenario_path(), seed, vizdoom.ScreenFormat.CRCGCB)
    game = bare.game
    port = PortClaim()
    game.set_mode(vizdoom.Mode.PLAYER)
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
    game.set_episode_timeout(match_tics)
    game.add_game_args(
        f"-host 1 -port {port.number} -deathmatch +sv_forcerespawn 1 +sv_noautoaim 1 +sv_respawnprotect 1 "
        "+sv_spawnfarthest 1 +sv_nocrouch 1 +sv_nojump 1 +sv_nofreelook 1 +sv_noexit 1 "
        f"+viz_respawn_delay 0 +timelimit {(match_tics + 0.5) / TICS_PER_MINUTE:.9g} +name AI +colorset 0"
    )
    seed = bare.next_seed()
    game.set_seed(seed)
    game.init()
    plain = Plain()

    def see() -> None:
        planes = game.get_state().screen_buffer
        small = [cv2.resize(plane, (128, 72), interpolation=cv2.INTER_NEAREST) for plane in planes]
        plain.see(obs=np.stack(small)[None])

    def begin(seed: int) -> None:
        game.set_seed(seed)
        game.new_episode()
        see()

    begin(seed)
    for row in actions:
        before = game.get_episode_time()
        reward = game.make_action(pressed(spec.actions, row), FRAMESKIP)
        is_over = game.is_episode_finished()
        plain.add(reward, False, is_over, frames=game.get_episode_time() - before)
        if is_over:
            begin(bare.next_seed())
        else:
            see()
    game.close()
    port.release()
    return plain


@pytest.mark.parametrize(("name", "tics"), [("cig", 240), ("multi", 242), ("multi_duel", 120)])
def test_matches_of_the_package(name, tics, count):
    spec = package_spec(name, match=MatchSpec(1, 0, minutes=tics / TICS_PER_MINUTE))
    trained = train_on(
        adapted_by_name(spec.name), 70 * math.ceil((tics - 1) / FRAMESKIP), frameskip=FRAMESKIP
    )
    plain = play_match(spec, trained.actions[:, 0], tics)
    count("vizdoom matches of the package", assert_equal(trained, plain))
