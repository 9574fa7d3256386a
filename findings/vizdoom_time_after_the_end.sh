#!/usr/bin/env bash
# Guess: `get_episode_time()` after an episode is its length in tics, as it is after a timeout.
# Truth: where the map itself ends the episode (the monster is shot, the goal is reached), it is 0.
#     `get_state()` is None then, and `is_episode_timeout_reached()` False.
# Why it matters: lengths of the best episodes, those that reach the goal, are 0 or negative once the start
#     time is taken off. Rewards per tic and "faster is better" objectives are wrong for exactly these.
#     Count the tics.
# Source: ViZDoom's Python documentation of `DoomGame.get_episode_time`, which says: the current tic of the
#     episode.
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

print("ViZDoom", vizdoom.__version__)
game = vizdoom.DoomGame()
game.load_config(os.path.join(vizdoom.scenarios_path, "basic.cfg"))
game.set_window_visible(False)
game.set_seed(3)
game.init()
ends = []
for _ in range(4):
    game.new_episode()
    tics = 0
    while not game.is_episode_finished():
        before = game.get_episode_time()
        is_shot = tics % 10 < 5
        game.make_action([is_shot and tics // 40 % 2 == 1, is_shot and tics // 40 % 2 == 0, True])
        tics += 1
    timeout, after = game.is_episode_timeout_reached(), game.get_episode_time()
    ends.append((timeout, before, after))
    print(
        f"episode of {tics} tics, timeout reached: {timeout}; time in its last tic {before}, after it {after}"
    )
game.close()
by_map = [after for timeout, _, after in ends if not timeout]
by_clock = [after - before for timeout, before, after in ends if timeout]
raise SystemExit(
    None if by_map and by_clock and set(by_map) == {0} and set(by_clock) == {1} else "no longer seen"
)
PY
