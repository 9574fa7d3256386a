#!/usr/bin/env bash
# Guess: `max_episode_steps=-1` removes the time limit, as in `gymnasium.make`.
# Truth: `gymnasium.make_vec` hands it on to vector envs of their own, such as CartPole's, as the limit
#     itself: all episodes are truncated after one step. Envs that it copies (`vectorization_mode="sync"`)
#     have no limit then.
# Why it matters: the same arguments train on episodes of one step with several copies, without a word.
# Source: gymnasium/envs/registration.py (`make`, `make_vec`); the comparison is in the vector class of
#     gymnasium/envs/classic_control/cartpole.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    "gymnasium==1.4.0" "numpy==2.4.6"

venv/bin/python - <<'PY'
import gymnasium as gym
import numpy as np

NO_LIMIT = {"max_episode_steps": -1}
print("Gymnasium", gym.__version__)
truncated = {}
env = gym.make("CartPole-v1", **NO_LIMIT)
env.reset(seed=0)
truncated["make"] = bool(env.step(0)[3])
for mode in ("vector_entry_point", "sync"):
    env = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode=mode, **NO_LIMIT)
    env.reset(seed=0)
    truncated[f"make_vec, {mode}"] = bool(env.step(np.zeros(2, int))[3].all())
    env.close()
print("truncated in the first step:", truncated)
raise SystemExit(None if list(truncated.values()) == [False, True, False] else "no longer seen")
PY
