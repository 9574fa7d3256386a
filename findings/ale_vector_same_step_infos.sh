#!/usr/bin/env bash
# Guess: in Gymnasium's SAME_STEP mode the step that ends an episode returns `final_info` and `final_obs`
#     with their masks, as SyncVectorEnv does, and `infos` without `final_` belong to the next episode.
# Truth: ale-py's vector env sends no `final_info`, and `final_obs` without a mask. The lives and frame
#     numbers beside the end are those of the new game; the ended game's are nowhere.
# Why it matters: statistics of an episode (lives left, length in frames) read beside its end are another
#     game's, and code that waits for `final_info` sees no end at all.
# Source: ale_py/vector_env.py, `recv` returns what the C++ vector interface gives; Gymnasium's
#     sync_vector_env.py for what its own vector env returns.
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
from gymnasium.vector import AutoresetMode

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
print("ale-py", ale_py.__version__, "Gymnasium", gym.__version__)


def infos_at_first_end(mode, **kind):
    env = gym.make_vec("ALE/Breakout-v5", num_envs=2, **kind)
    actions = np.random.default_rng(0)
    env.reset(seed=0)
    ended = np.zeros(2, bool)
    while not ended.any():
        _, _, ended, _, infos = env.step(actions.integers(4, size=2))
    env.close()
    print(
        f"{mode}: game {np.flatnonzero(ended)[0]} of 2 has ended:",
        {
            name: value.shape if name == "final_obs" else value
            for name, value in infos.items()
            if name != "env_id"
        },
    )
    return ended, infos


_, sooner = infos_at_first_end("ale-py, NEXT_STEP", autoreset_mode=AutoresetMode.NEXT_STEP)
ended, same = infos_at_first_end("ale-py, SAME_STEP", autoreset_mode=AutoresetMode.SAME_STEP)
_, own = infos_at_first_end(
    "Gymnasium, SAME_STEP",
    vectorization_mode="sync",
    vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
)
seen = (
    (sooner["lives"][ended] == 0).all()
    and (same["lives"][ended] == 5).all()
    and (same["episode_frame_number"][ended] < sooner["episode_frame_number"][ended]).all()
    and not {"final_info", "_final_obs"} & same.keys()
    and {"final_info", "_final_obs"} <= own.keys()
)
raise SystemExit(None if seen else "no longer seen")
PY
