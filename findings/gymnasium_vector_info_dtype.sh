#!/usr/bin/env bash
# Guess: a number in the infos of one copy arrives as that number in the infos of the vector env.
# Truth: the array of an info gets the Python or NumPy type of the first copy that sends it. After a 1 or a
#     True, the 0.5 of another copy is stored as 0 or True; after a 0.5, all is right. No warning.
# Why it matters: success rates and scores that are whole numbers in some episodes (0, 1) and not in others
#     (0.5) are cut off in statistics, depending on which copy came first.
# Source: gymnasium/vector/vector_env.py, `_add_info`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    "gymnasium==1.4.0" "numpy==2.4.6"

venv/bin/python - <<'PY'
import gymnasium as gym
from gymnasium.spaces import Discrete


class Scored(gym.Env):
    observation_space = action_space = Discrete(2)

    def __init__(self, score):
        self.score = score

    def reset(self, *, seed=None, options=None):
        return 0, {"score": self.score}


print("Gymnasium", gym.__version__)
seen = True
for scores, stored in (((1, 0.5), [1, 0]), ((True, 0.5), [True, True]), ((0.5, 1), [0.5, 1.0])):
    env = gym.vector.SyncVectorEnv([lambda score=score: Scored(score) for score in scores])
    _, infos = env.reset()
    print("copies send", scores, "- the vector env reports", infos["score"], infos["score"].dtype)
    seen &= infos["score"].tolist() == stored and infos["_score"].all()
raise SystemExit(None if seen else "no longer seen")
PY
