#!/usr/bin/env bash
# Guess: `set_doom_skill` between two episodes changes the difficulty from the next episode on, as its
#     documentation says, and as a curriculum needs.
# Truth: on a running game it changes nothing but what `get_doom_skill` returns. The console command
#     `skill`, one less than the number, before `new_episode` does change it.
# Why it matters: a curriculum (or a population that evolves the skill) trains on the first level's
#     difficulty to the end, and every number that it logs says otherwise.
# Source: documentation of `DoomGame.set_doom_skill` ("from the next episode"), compared with what the
#     engine does.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    "vizdoom==1.3.2" "numpy==2.4.6"

venv/bin/python - <<'PY'
import os

import vizdoom


def start(skill):
    game = vizdoom.DoomGame()
    game.load_config(os.path.join(vizdoom.scenarios_path, "deadly_corridor.cfg"))
    game.set_window_visible(False)
    game.set_doom_skill(skill)
    game.init()
    return game


def health(game):
    """Returns the health after each step of an episode of standing still, always with the same seed."""
    game.set_seed(7)
    game.new_episode()
    values = []
    while not game.is_episode_finished() and len(values) < 70:
        game.make_action([0] * 7, 4)
        values.append(int(game.get_game_variable(vizdoom.GameVariable.HEALTH)))
    return values


print("ViZDoom", vizdoom.__version__)
game, hard = start(1), start(5)
episodes = {"started with skill 1": health(game)}
game.set_doom_skill(5)
claimed = game.get_doom_skill()
episodes["then set_doom_skill(5)"] = health(game)
game.send_game_command("skill 4")
episodes["then the command `skill 4`"] = health(game)
episodes["started with skill 5"] = health(hard)
for name, values in episodes.items():
    print(f"{name}: health every 5 steps {values[::5]}")
one, after_set, after_command, five = episodes.values()
print("get_doom_skill says", claimed)
game.close()
hard.close()
seen = claimed == 5 and one == after_set and after_command == five and one != five
raise SystemExit(None if seen else "no longer seen")
PY
