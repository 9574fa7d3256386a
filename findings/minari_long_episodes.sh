#!/usr/bin/env bash
# Guess: an episode that was written to a Minari data set in the format "arrow" is read back whole.
# Truth: of an episode of 40,000 steps the first 32,767 are read. The rest comes back as if it were the next
#     episode, all later ones are shifted by one, and the last one is missing. Steps are counted right in
#     `total_steps`, and the format "hdf5" reads the same episodes right. By index, each episode is read
#     from its own folder, cut.
# Why it matters: imitation learns from episodes without their ends, and episode i is not episode i. Long
#     episodes are usual in Atari and in continuing tasks.
# Source: minari/dataset/_storages/arrow_storage.py, `get_episodes`: pairs the indices with the batches of a
#     scan, and a batch of an Arrow file is a record batch of at most 32,768 rows, whatever was written.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    "minari[create,hdf5,arrow]==0.5.4" "gymnasium==1.4.0" \
    "pyarrow==26.0.1" "h5py==3.16.0" "pillow==13.0.0" "numpy==2.4.6"

venv/bin/python - <<'PY'
import os
import warnings

warnings.simplefilter("ignore")  # the data sets have no author
os.environ["MINARI_DATASETS_PATH"] = os.getcwd()
import minari
import numpy as np
import pyarrow
from gymnasium.spaces import Box, Discrete
from minari.data_collector import EpisodeBuffer


def episode(steps, first):
    """Returns an episode whose observations count up from `first`."""
    return EpisodeBuffer(
        observations=list(np.arange(first, first + steps + 1, dtype=np.float32)[:, None]),
        actions=[0] * steps,
        rewards=[1.0] * steps,
        terminations=[step == steps - 1 for step in range(steps)],
        truncations=[False] * steps,
    )


print("Minari", minari.__version__, "pyarrow", pyarrow.__version__)
read = {}
for data_format in ("hdf5", "arrow"):
    data = minari.create_dataset_from_buffers(
        f"{data_format}/long-v0",
        [episode(40_000, 0), episode(10, 1e6), episode(20, 2e6)],
        observation_space=Box(-np.inf, np.inf, (1,), np.float32),
        action_space=Discrete(2),
        data_format=data_format,
    )
    read[data_format] = [(len(e.rewards), int(e.observations[0, 0]), bool(e.terminations[-1])) for e in data]
    print(
        f"{data_format}: total_steps {data.total_steps}; (steps, first observation, ended):",
        read[data_format],
        "steps by index:",
        [len(data[i].rewards) for i in range(3)],
    )
whole = read["hdf5"] == [(40_000, 0, True), (10, 1_000_000, True), (20, 2_000_000, True)]
shifted = read["arrow"] == [(32_767, 0, False), (7_232, 32_768, True), (10, 1_000_000, True)]
raise SystemExit(None if whole and shifted else "no longer seen")
PY
