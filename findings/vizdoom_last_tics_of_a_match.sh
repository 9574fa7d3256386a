#!/usr/bin/env bash
# Guess: a match with `+timelimit 0.08` (minutes; 0.08 * 60 * 35 = 168 tics) has 168 tics to act in, and
#     what happens in its last tic can be read afterwards.
# Truth: it has 167, since the clock starts at 1: with a frame skip of 4, the last step has 3 tics. If the
#     skipped tics are played by `advance_action(1, False)` and only each fourth updates the state, the
#     match ends in a tic that did not. Then the player counts as dead, with a death, but not with the frag
#     that a suicide costs: the frags and the reward are those of the last update, and no later call mends
#     them.
# Why it matters: frags of the last step are lost and the winner can be the wrong one, in every match whose
#     length is a multiple of the frame skip, as usual ones are.
# Source: ViZDoom's documentation of `DoomGame.advance_action` says when state and reward are updated; which
#     values are old and which are new is what the engine does.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    "vizdoom==1.3.2" "numpy==2.4.6"

venv/bin/python - <<'PY'
import os
import socket
from multiprocessing import get_context

import vizdoom

TICS = 168
Variable = vizdoom.GameVariable


def play(is_host, port, tics_per_update, results):
    game = vizdoom.DoomGame()
    game.load_config(os.path.join(vizdoom.scenarios_path, "multi.cfg"))
    game.set_window_visible(False)
    game.set_mode(vizdoom.Mode.PLAYER)
    game.add_game_args(
        "-host 2 -deathmatch +timelimit 0.08 +sv_forcerespawn 1" if is_host else "-join 127.0.0.1"
    )
    game.add_game_args(f"-port {port}")
    game.init()
    tics = 0
    while not game.is_episode_finished():
        if is_host and tics == TICS - 4:
            game.send_game_command("kill")
        game.advance_action(1, (tics + 1) % tics_per_update == 0)
        tics += 1
    game.advance_action(1, True)
    values = [int(game.get_game_variable(name)) for name in (Variable.DEATHCOUNT, Variable.FRAGCOUNT)]
    results.put((is_host, [tics, game.is_player_dead(), *values, game.get_server_state().players_frags[0]]))
    game.close()


print("ViZDoom", vizdoom.__version__, flush=True)
ends = []
for tics_per_update in (1, 4):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    queue = get_context("fork").Queue()
    kind = {"target": play, "daemon": True}
    players = [
        get_context("fork").Process(args=(i == 0, port, tics_per_update, queue), **kind) for i in (0, 1)
    ]
    [player.start() for player in players]
    ends.append(dict(queue.get(timeout=120) for _ in players)[True])
    [player.join() for player in players]
for tics_per_update, (tics, is_dead, deaths, frags, server) in zip((1, 4), ends):
    print(
        f"an update every {tics_per_update} tics: {tics} of {TICS} tics; a suicide 4 tics before the limit:",
        f"dead {is_dead}, deaths {deaths}, frags {frags}, frags of the server {server}",
    )
raise SystemExit(None if ends == [[167, True, 1, -1, -1], [167, True, 1, 0, 0]] else "no longer seen")
PY
