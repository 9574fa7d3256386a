#!/usr/bin/env bash
# Guess: `death_penalty=100` takes 100 from the reward when the player dies.
# Truth: in multiplayer it is taken in each update of the state in which the player is dead, until he is
#     alive again: 35 times for one death if each tic updates, a quarter of it with a frame skip of 4. A
#     player also begins the match of this scenario dead, until the engine lets him in, and pays for that
#     without any death.
# Why it matters: the reward of a death depends on the frame skip and on how soon the player respawns, and
#     dwarfs what a frag is worth. In single-player maps it is taken once, as death ends the episode.
# Source: ViZDoom's documentation of `DoomGame.set_death_penalty` ("for the player's death"), compared with
#     the engine.
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

SUICIDE = 80


def play(is_host, port, frame_skip, results):
    game = vizdoom.DoomGame()
    game.load_config(os.path.join(vizdoom.scenarios_path, "multi.cfg"))
    game.set_window_visible(False)
    game.set_mode(vizdoom.Mode.PLAYER)
    game.set_death_penalty(100)
    game.add_game_args(
        "-host 2 -deathmatch +timelimit 0.1 +sv_forcerespawn 1" if is_host else "-join 127.0.0.1"
    )
    game.add_game_args(f"-port {port}")
    game.init()
    buttons, charged = [0] * game.get_available_buttons_size(), []
    for tic in range(0, 160, frame_skip):
        if is_host and tic == SUICIDE:
            game.send_game_command("kill")
        if game.make_action(buttons, frame_skip) < 0:
            charged.append(tic)
    results.put((is_host, (charged, int(game.get_game_variable(vizdoom.GameVariable.DEATHCOUNT)))))
    game.close()


print("ViZDoom", vizdoom.__version__, flush=True)
seen = True
for frame_skip in (1, 4):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    queue = get_context("fork").Queue()
    kind = {"target": play, "daemon": True}
    players = [get_context("fork").Process(args=(i == 0, port, frame_skip, queue), **kind) for i in (0, 1)]
    [player.start() for player in players]
    charged, deaths = dict(queue.get(timeout=120) for _ in players)[True]
    [player.join() for player in players]
    after = [tic for tic in charged if tic >= SUICIDE]
    print(
        f"frame skip {frame_skip}: deaths {deaths}; the penalty was taken {len(after)} times after it",
        f"(tics {after[0]} to {after[-1]}) and {len(charged) - len(after)} times before",
    )
    seen &= deaths == 1 and len(after) > 24 / frame_skip
raise SystemExit(None if seen else "no longer seen")
PY
