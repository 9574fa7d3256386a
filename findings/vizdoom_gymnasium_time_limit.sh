#!/usr/bin/env bash
# Guess: at the time limit of ViZDoom's Gymnasium ids, `truncated` is True and `terminated` False, and the
#     observation is the last one seen.
# Truth: both are True, and the observation is black, with all game variables 0.
# Why it matters: `terminated` says "no value beyond", so values are never bootstrapped: doing nothing for
#     300 tics looks as bad as dying there. Code that looks at `truncated` first bootstraps from a black
#     screen.
# Source: vizdoom/gymnasium_wrapper/base_gymnasium_env.py, `step`: `terminated` is the engine's "episode
#     finished", which includes the timeout; the option `treat_episode_timeout_as_truncation` only adds the
#     other flag.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    "vizdoom==1.3.2" "gymnasium==1.4.0" "numpy==2.4.6"

venv/bin/python - <<'PY'
import gymnasium as gym
import vizdoom
import vizdoom.gymnasium_wrapper  # noqa: F401

print("ViZDoom", vizdoom.__version__, "Gymnasium", gym.__version__)
env = gym.make("VizdoomBasic-v1")
observation, _ = env.reset(seed=1)
terminated = truncated = False
while not (terminated or truncated):
    before = observation
    observation, _, terminated, truncated, _ = env.step(0)
print(f"doing nothing until the limit: terminated {terminated}, truncated {truncated}")
brightest = [int(part["screen"].max()) for part in (before, observation)]
ammunition = [int(part["gamevariables"].max()) for part in (before, observation)]
print("brightest pixel of the last two observations:", brightest, "ammunition:", ammunition)
env.close()
seen = terminated and truncated and brightest[0] > 0 == brightest[1] and ammunition == [50, 0]
raise SystemExit(None if seen else "no longer seen")
PY
