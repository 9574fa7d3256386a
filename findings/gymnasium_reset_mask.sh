#!/usr/bin/env bash
# Guess: `options={"reset_mask": mask}` resets some copies, and belongs to the caller.
# Truth: SyncVectorEnv takes the entry out of the caller's dict. Passed again, the same dict resets all
#     copies; and a wrapper that looks for the mask after the env has been reset finds none:
#     RecordEpisodeStatistics sets the returns and lengths of all copies to 0, also of those that play on.
# Why it matters: with autoreset disabled, episodes are cut off or reported far too short and with too small
#     returns.
# Source: gymnasium/vector/sync_vector_env.py, `reset`; gymnasium/wrappers/vector/common.py, `reset`.
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
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics


def cart_poles():
    kind = {"autoreset_mode": AutoresetMode.DISABLED}
    env = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync", vector_kwargs=kind)
    env.reset(seed=0)
    return env


print("Gymnasium", gym.__version__)
env = cart_poles()
options = {"reset_mask": np.array([True, False])}
kept = []
for _ in range(2):
    before, *_ = env.step(np.array([0, 0]))
    after, _ = env.reset(options=options)
    kept.append(bool((before[1] == after[1]).all()))
print(
    "copy 1 is left alone by the first and the second reset with one dict:", kept, "the dict is now", options
)

env = RecordEpisodeStatistics(cart_poles())
env.reset(seed=0)
ended, steps = np.zeros(2, bool), np.zeros(2, int)
while True:
    _, _, ended, _, infos = env.step(np.array([0, steps[1] % 2]))
    steps += 1
    if ended[1]:
        break
    if ended[0]:
        env.reset(options={"reset_mask": ended})
        steps[0] = 0
reported = int(infos["episode"]["l"][1])
print("copy 1 played", steps[1], "steps; RecordEpisodeStatistics reports", reported)
raise SystemExit(
    None if kept == [True, False] and options == {} and reported < steps[1] else "no longer seen"
)
PY
