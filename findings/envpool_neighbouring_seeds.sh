#!/usr/bin/env bash
# Guess: two pools made with seed=1 and seed=2 play different episodes.
# Truth: copy k of a pool is seeded with seed + k. Copies 1, 2, ... of the first pool are copies 0, 1, ...
#     of the second, for ever: later episodes are equal too, and so are the no-ops and the randomness of the
#     game.
# Why it matters: "seed + index of the worker" is the usual way to seed workers. With 8 copies each, two
#     neighbours then share 7 of 8 simulators; a sample of 16 episodes is one of 9, and the runs of seeds 1,
#     2, 3 are no independent repeats. Seeds must be at least the number of copies apart.
# Source: envpool/core/env.h of EnvPool's sources, where an env seeds its generator from the seed and its
#     id.
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


def equal_steps(name, num_actions, second_seed):
    """Returns (steps in which copies 1 to 3 of seed 1 equal copies 0 to 2 of the other seed, steps, ends)."""
    pools = [envpool.make_gymnasium(name, num_envs=4, seed=seed) for seed in (1, second_seed)]
    [pool.reset() for pool in pools]
    actions = np.random.default_rng(0)
    equal = ends = 0
    for _ in range(600):
        action = np.full(4, actions.integers(num_actions))
        (one, _, terminated, truncated, _), (two, *_) = (pool.step(action) for pool in pools)
        equal += np.array_equal(one[1:], two[:3])
        ends += int((terminated | truncated)[1:].sum())
    return equal, 600, ends


print("EnvPool", version("envpool"))
seen = True
for name, num_actions in (("Breakout-v5", 4), ("CartPole-v1", 2)):
    near, far = equal_steps(name, num_actions, 2), equal_steps(name, num_actions, 5)
    print(
        f"{name}: copies 1-3 of seed 1 and copies 0-2 of seed 2 agree in {near[0]} of {near[1]} steps,",
        f"over {near[2]} ends; with seed 5 in {far[0]}",
    )
    seen &= near[0] == near[1] and near[2] >= 3 and far[0] < far[1]
raise SystemExit(None if seen else "no longer seen")
PY
