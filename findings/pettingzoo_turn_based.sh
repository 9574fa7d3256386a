#!/usr/bin/env bash
# Guess: turn-based games of PettingZoo become parallel by `aec_to_parallel`, and of the actions in a step
#     all count.
# Truth: `aec_to_parallel` refuses them. `turn_based_aec_to_parallel`, which its message does not name,
#     takes them: each agent must send an action, and only the one whose turn it is plays; the others' are
#     dropped without a check, so even taken fields are accepted. `active_agent` in the infos says whose
#     turn is next, from the first step on; after `reset` nothing does.
# Why it matters: half of the samples carry actions that had no effect. Trained on, they push the policy at
#     random and the waiting player's entropy counts in the loss.
# Source: pettingzoo/utils/conversions.py, both functions and their wrappers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    "pettingzoo==1.27.0" "pygame==2.6.1" "gymnasium==1.4.0" "numpy==2.2.6"

venv/bin/python - <<'PY'
import warnings

warnings.simplefilter("ignore")
import numpy as np
import pettingzoo
from pettingzoo.classic import tictactoe_v3
from pettingzoo.utils import aec_to_parallel
from pettingzoo.utils.conversions import turn_based_aec_to_parallel

print("PettingZoo", pettingzoo.__version__)
try:
    aec_to_parallel(tictactoe_v3.env())
    message = ""
except AssertionError as error:
    message = str(error)
print("aec_to_parallel:", message[:106], "...")
env = turn_based_aec_to_parallel(tictactoe_v3.env())
_, infos = env.reset(seed=0)
print("infos after reset:", infos)
seen = "is_parallelizable" in message and not any(infos.values())
for actions, taken, next_player in (((0, 8), {0}, "player_2"), ((0, 4), {0, 4}, "player_1")):
    observations, _, terminated, _, infos = env.step(dict(zip(("player_1", "player_2"), actions)))
    board = observations["player_1"]["observation"].any(-1).ravel()
    print(
        f"players 1 and 2 send fields {actions}: taken fields {np.flatnonzero(board).tolist()}, infos {infos}"
    )
    seen &= set(np.flatnonzero(board)) == taken and not any(terminated.values())
    seen &= all(info["active_agent"] == next_player for info in infos.values())
raise SystemExit(None if seen else "no longer seen")
PY
