#!/usr/bin/env bash
# Guess: `freedoom1.cfg`, which is in ViZDoom's package beside `freedoom1.wad`, can be played as it is.
# Truth: the map is map01 by default, and the maps of Doom 1 are called E1M1 to E4M9. `init` succeeds, with a
#     picture of the title, and `new_episode` never returns: it asks for the map again and again. With
#     `set_doom_map("E1M1")` before `init`, or `doom_map` in the .cfg, it plays. `doom.cfg` is the same.
# Why it matters: no error and no message; a worker seems to hang in its first reset.
# Source: `freedoom1.cfg` and `doom.cfg` in the package's `scenarios`, neither of which has a `doom_map`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    "vizdoom==1.3.2" "numpy==2.4.6"

cat > play.py <<'PY'
import os
import sys

import vizdoom

game = vizdoom.DoomGame()
game.load_config(os.path.join(vizdoom.scenarios_path, "freedoom1.cfg"))
game.set_window_visible(False)
if sys.argv[1:]:
    game.set_doom_map(sys.argv[1])
game.init()
print(game.get_doom_map(), "has started, with a picture:", game.get_state() is not None, flush=True)
game.new_episode()
print(game.get_doom_map(), "is played", flush=True)
game.close()
PY
venv/bin/python - <<'PY'
import glob
import os
import re
import signal
import subprocess
import sys

import vizdoom

print("ViZDoom", vizdoom.__version__)
played = {}
for arguments in ([], ["E1M1"]):
    child = subprocess.Popen(
        [sys.executable, "play.py", *arguments], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, _ = child.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        arguments_of_engine = subprocess.run(
            ["ps", "-s", str(child.pid), "-o", "args="], capture_output=True, text=True, check=True
        ).stdout
        os.killpg(child.pid, signal.SIGKILL)  # the engine too, which leaves its shared memory
        for instance in set(re.findall(r"viz_instance_id (\w+)", arguments_of_engine)):
            for file in glob.glob(f"/dev/shm/ViZDoom*{instance}"):
                os.remove(file)
        output, _ = child.communicate()
        output += "new_episode has not returned after 30 s\n"
    print(output, end="")
    played[len(arguments)] = "is played" in output
raise SystemExit(None if played == {0: False, 1: True} else "no longer seen")
PY
