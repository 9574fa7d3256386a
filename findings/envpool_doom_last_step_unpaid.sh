#!/usr/bin/env bash
# Guess: EnvPool's Doom ids pay what `reward_config` lists, e.g. -0.75 for DEATHCOUNT, 1 for KILLCOUNT.
# Truth: the step in which the engine ends the episode is paid 0, whatever happened in it, and its infos and
#     observation are those of the step before. A death in DeadlyCorridor is therefore never paid. The kill
#     that ends Basic and the vest that ends MyWayHome are paid only if they fall into the last tic of a
#     step, so that the engine ends the episode in the next one.
# Why it matters: nothing is lost by dying, and the reward of reaching the goal comes in some of the
#     episodes that reach it, by chance.
# Source: envpool/vizdoom/vizdoom_env.h of EnvPool's sources, `GetState`: without a state of the engine it
#     writes 0. The engine gives no state once the episode has finished.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    "envpool==1.2.5" "envpool-assets==0.3.0" "gymnasium==1.4.0" "numpy==2.2.6"

venv/bin/python - <<'PY'
from importlib.metadata import version

import envpool
import numpy as np

print("EnvPool", version("envpool"))
seen = True
for name, steps, variable in (
    ("Basic-v1", 1500, "KILLCOUNT"),
    ("DeadlyCorridor-v1", 1500, "DEATHCOUNT"),
    ("MyWayHome-v1", 6000, "ARMOR"),
):
    env = envpool.make_gymnasium(name, num_envs=4, seed=1, use_combined_action=True)
    env.reset()
    actions = np.random.default_rng(0)
    last_rewards, counted = [], 0
    for _ in range(steps // 4):
        _, rewards, terminated, truncated, infos = env.step(actions.integers(env.action_space.n, size=4))
        last_rewards += rewards[terminated].tolist()
        counted += int((infos[variable][terminated] > 0).sum())
    env.close()
    ends = len(last_rewards)
    print(
        f"{name}: {ends} episodes ended by the game, rewards of their last steps {set(last_rewards)},",
        f"{variable} in their infos above 0 in {counted}",
    )
    seen &= ends >= 3 and set(last_rewards) == {0.0}
    seen &= counted == 0 if variable == "DEATHCOUNT" else counted < ends / 2
raise SystemExit(None if seen else "no longer seen")
PY
