#!/usr/bin/env bash
# Guess: `episodic_life=True` of ale-py's vector env does what the wrapper of that name does since the DQN
#     paper: a lost life ends the episode, and the next one goes on in the same game with one life less.
# Truth: it starts the game anew. Nothing after the first life is ever played; `lives` goes from 4 back to
#     5. The option that ends an episode and plays on is `life_loss_info=True`.
# Why it matters: the agent trains on the first life only (no late levels, no game over), and sums of
#     "games" are sums of first lives, which cannot be compared with published scores or with EnvPool's
#     option of the same name.
# Source: ale_py/vector_env.py hands both options to the C++ vector interface; its docstring describes both
#     in words that fit either behaviour.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    "ale-py==0.12.1" "gymnasium==1.4.0" "numpy==2.4.6"

venv/bin/python - <<'PY'
import ale_py
import gymnasium as gym
import numpy as np

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
print("ale-py", ale_py.__version__)
lives_at_ends = {}
for option in ("episodic_life", "life_loss_info"):
    env = gym.make_vec("ALE/Breakout-v5", num_envs=1, noop_max=0, **{option: True})
    env.reset(seed=0)
    lives_at_ends[option] = []
    for step in range(400):
        _, _, terminated, _, info = env.step(np.array([step % 4]))
        if terminated[0]:
            lives_at_ends[option].append(int(info["lives"][0]))
    env.close()
    print(f"{option}=True: lives left at the ends of episodes:", lives_at_ends[option])
starts_anew = len(lives_at_ends["episodic_life"]) >= 5 and set(lives_at_ends["episodic_life"]) == {4}
plays_on = lives_at_ends["life_loss_info"][:5] == [4, 3, 2, 1, 0]
raise SystemExit(None if starts_anew and plays_on else "no longer seen")
PY
