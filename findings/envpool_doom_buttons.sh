#!/usr/bin/env bash
# Guess: the action space of EnvPool's Doom ids says what an action is: a vector of real numbers, one per
#     button, so its size or sign should matter, and a Gaussian policy can be trained on it.
# Truth: the space is unbounded (its lower bound is the smallest positive double, not the most negative
#     one), and any number but 0 holds the button down: -1e-6, 0.4 and 1 are one action. A Gaussian never
#     draws 0, so it presses all buttons at all times. `use_combined_action=True` gives a Discrete space of
#     sensible combinations.
# Why it matters: training runs without a word, and no action has any effect on what happens.
# Source: envpool/vizdoom/vizdoom_env.h of EnvPool's sources (`ActionSpec`, `Step`): the numbers go to the
#     engine, which holds a button for each that is not 0.
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


def play(action_of_step, **kind):
    env = envpool.make_gymnasium("D3Battle-v1", num_envs=1, seed=1, **kind)
    env.reset()
    steps = [env.step(action_of_step(step)) for step in range(60)]
    env.close()
    return [(observation.tobytes(), float(reward[0])) for observation, reward, *_ in steps]


print("EnvPool", version("envpool"))
space = envpool.make_gymnasium("D3Battle-v1", num_envs=1).action_space
combined = envpool.make_gymnasium("D3Battle-v1", num_envs=1, use_combined_action=True).action_space
print("action space:", space, "with use_combined_action:", combined)
gaussian = np.random.default_rng(0)
all_held = play(lambda step: np.ones((1, 8)))
same = {
    "a Gaussian": play(lambda step: gaussian.normal(size=(1, 8))) == all_held,
    "all -1e-6": play(lambda step: np.full((1, 8), -1e-6)) == all_held,
    "all 0.4": play(lambda step: np.full((1, 8), 0.4)) == all_held,
    "all 0": play(lambda step: np.zeros((1, 8))) == all_held,
}
print("60 steps equal those with all buttons held:", same)
seen = list(same.values()) == [True, True, True, False] and (space.low > 0).all()
raise SystemExit(None if seen else "no longer seen")
PY
