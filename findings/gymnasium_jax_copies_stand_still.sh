#!/usr/bin/env bash
# Guess: in Gymnasium's JAX vector envs (`phys2d/...`), NEXT_STEP resets a copy by leaving the others alone.
# Truth: in a step in which some copy resets, all other copies stay where they are: their observation does
#     not change and their action is dropped, but they are paid a reward and the step counts towards their
#     time limit. `tabular/CliffWalking-v0` raises IndexError instead.
# Why it matters: the more copies, the more such steps. With 64 copies of CartPole an episode looks nearly
#     twice as long, for the same policy.
# Source: gymnasium/envs/functional_jax_env.py, `FunctionalJaxVectorEnv.step`: new first states are written
#     into the state from before the step.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    "gymnasium==1.4.0" "jax==0.10.2" "flax==0.12.8" "numpy==2.4.6"

venv/bin/python - <<'PY'
import warnings

warnings.simplefilter("ignore")
import gymnasium as gym
import jax
import numpy as np


def mean_length(copies, steps=300):
    """Returns the mean length of episodes with the cart always pushed right, and two counts of steps.

    The counts are of steps in which another copy reset, and of those in which the observation did not change.
    """
    env = gym.make_vec("phys2d/CartPole-v1", num_envs=copies)
    before, _ = env.reset(seed=0)
    age, lengths, resets, beside, frozen = np.zeros(copies, int), [], np.zeros(copies, bool), 0, 0
    for _ in range(steps):
        after, rewards, terminated, truncated, _ = map(np.asarray, env.step(np.ones(copies, int)))
        playing = ~resets
        age[playing] += 1
        if resets.any():
            beside += int(playing.sum())
            frozen += int((playing & (after == before).all(-1) & (rewards == 1)).sum())
        before, resets = after, terminated | truncated
        lengths += age[resets].tolist()
        age[resets] = 0
    env.close()
    return np.mean(lengths), beside, frozen


print("Gymnasium", gym.__version__, "JAX", jax.__version__)
(alone, *_), (many, beside, frozen) = mean_length(1), mean_length(64)
print(
    f"mean length: {alone:.1f} with 1 copy, {many:.1f} with 64;",
    f"of {beside} steps beside a reset, {frozen} left the observation as it was and paid 1",
)
try:
    env = gym.make_vec("tabular/CliffWalking-v0", num_envs=2)
    env.reset(seed=0)
    [env.step(np.array([step % 2, 1])) for step in range(30)]
    cliff = "no error"
except IndexError as error:
    cliff = f"IndexError: {error}"
print("tabular/CliffWalking-v0 with 2 copies:", cliff)
seen = many > 1.3 * alone and 0 < beside == frozen and cliff != "no error"
raise SystemExit(None if seen else "no longer seen")
PY
