#!/usr/bin/env bash
# Guess: `env.metadata["autoreset_mode"]` is what the class of this env declares.
# Truth: ale-py's vector env writes its mode into the dict that it inherits from gymnasium.vector.VectorEnv.
#     Each vector env without `metadata` of its own then claims that mode, also an earlier env of ale-py
#     made with another.
# Why it matters: whoever reads the mode to decide which rows are steps of an episode reads that of the last
#     Atari env made in the process: reset rows are trained on as steps, or steps are dropped.
# Source: ale_py/vector_env.py, constructor of AtariVectorEnv; Gymnasium's vector_env.py, where `metadata`
#     is an attribute of the class.
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
from gymnasium.vector import AutoresetMode, VectorEnv

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


class Stranger(VectorEnv):
    """Declares no mode."""


print("ale-py", ale_py.__version__, "Gymnasium", gym.__version__)
before = dict(Stranger().metadata)
same_step = gym.make_vec("ALE/Breakout-v5", num_envs=1, autoreset_mode=AutoresetMode.SAME_STEP)
between = dict(Stranger().metadata)
next_step = gym.make_vec("ALE/Breakout-v5", num_envs=1, autoreset_mode=AutoresetMode.NEXT_STEP)
print("metadata of a class that declares none, before:", before, "after an Atari env was made:", between)
print("the Atari env made with SAME_STEP claims, after another was made:", same_step.metadata)
seen = (
    before == {}
    and between == {"autoreset_mode": AutoresetMode.SAME_STEP}
    and same_step.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    and "autoreset_mode" in VectorEnv.metadata
)
same_step.close()
next_step.close()
raise SystemExit(None if seen else "no longer seen")
PY
