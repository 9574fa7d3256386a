#!/usr/bin/env bash
# Guess: a copy of a Brax env starts each episode in a new random state.
# Truth: the wrapper that `envs.create` adds draws the first state of each copy once, in `reset`, and
#     returns to it at every end. With 4 copies there are 4 first states for the whole run; a deterministic
#     policy repeats 4 episodes.
# Why it matters: an evaluation of 160 episodes on 16 copies has 16 samples; its standard error is printed
#     too small by a factor of about 3. A policy can also learn the few first states by heart.
# Source: brax/envs/wrappers/training.py, AutoResetWrapper.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    "brax==0.14.2" "jax==0.10.2" "flax==0.12.8" "numpy==2.4.6"

venv/bin/python - <<'PY'
import warnings
from importlib.metadata import version

warnings.simplefilter("ignore")
import jax
import numpy as np
from brax import envs

print("Brax", version("brax"), "JAX", jax.__version__)
env = envs.create("inverted_pendulum", backend="spring", episode_length=20, batch_size=4)
state = jax.jit(env.reset)(jax.random.PRNGKey(0))
step = jax.jit(env.step)
first = {row.tobytes() for row in np.asarray(state.obs)}
starts, episodes, parts = [], [], [[], [], [], []]
for _ in range(100):
    state = step(state, jax.numpy.zeros((4, 1)))
    for copy, (observation, done) in enumerate(zip(np.asarray(state.obs), np.asarray(state.done))):
        parts[copy].append(observation.tobytes())
        if done:
            starts.append(observation.tobytes())
            episodes.append(b"".join(parts[copy]))
            parts[copy] = []
print(
    f"{len(starts)} times an episode began after an end, in {len(set(starts))} different states,",
    "all of the first 4:",
    set(starts) == first,
)
print(f"{len(episodes)} episodes were played with the same actions, {len(set(episodes))} of them different")
raise SystemExit(
    None if len(starts) >= 12 and set(starts) == first and len(set(episodes)) == 4 else "no longer seen"
)
PY
