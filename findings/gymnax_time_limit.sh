#!/usr/bin/env bash
# Guess: gymnax tells a time limit from a failure: it has both `done` and a `discount`, the sign of a true
#     end in DeepMind's envs (0 where the game is over, 1 where only the clock has run out).
# Truth: both say that the game is over. The limit of `max_steps_in_episode` is part of the terminal
#     condition: `done` is True and the discount 0. The observation beside it is the next episode's; the
#     last one is not returned.
# Why it matters: values are never bootstrapped at the limit, and cannot be: CartPole's best policy looks as
#     if it fell after 500 steps. Whoever needs the truth must count steps, and call `step_env`, which does
#     not reset.
# Source: gymnax/environments/environment.py, `step` and `discount`; `is_terminal` of each env, e.g.
#     gymnax/environments/classic_control/cartpole.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    "gymnax==0.0.9" "six==1.17.0" "jax==0.10.2" "flax==0.12.8" "numpy==2.4.6"

venv/bin/python - <<'PY'
import warnings
from importlib.metadata import version

warnings.simplefilter("ignore")
import gymnax
import jax
import numpy as np

print("gymnax", version("gymnax"), "JAX", jax.__version__)
env, params = gymnax.make("CartPole-v1")
params = params.replace(max_steps_in_episode=10)
key = jax.random.PRNGKey(0)
_, state = env.reset(key, params)
for step in range(10):
    last = state
    observation, state, reward, done, info = env.step(key, state, step % 2, params)
plain, after, _, plain_done, _ = env.step_env(jax.random.split(key)[0], last, 9 % 2, params)
upright = abs(float(plain[2])) < 0.2 and abs(float(plain[0])) < 2.4
print(f"step 10 of 10: done {bool(done)}, discount {float(info['discount'])}, pole upright: {upright}")
print("observation returned:", np.asarray(observation).round(3), "reached:", np.asarray(plain).round(3))
seen = bool(done) and float(info["discount"]) == 0 and upright and not np.allclose(observation, plain)
raise SystemExit(None if seen and int(state.time) == 0 else "no longer seen")
PY
