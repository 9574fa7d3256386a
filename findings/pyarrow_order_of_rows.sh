#!/usr/bin/env bash
# Guess: a table that `pyarrow.dataset.write_dataset` writes into one file comes back in the same order.
# Truth: a table of more than 131,072 rows is written in blocks by several threads, in any order, unless
#     `preserve_order=True` is given.
# Why it matters: an episode is a sequence. Now and then, a long one comes back with its end flag in the
#     middle, and returns and sequences for a recurrent network are mixed up. The number of rows and all
#     sums are right.
# Source: documentation of `write_dataset`, parameters `use_threads` and `preserve_order`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    "pyarrow==26.0.1" "numpy==2.4.6"

venv/bin/python - <<'PY'
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

print("pyarrow", pa.__version__)
pa.set_cpu_count(4)  # blocks swap places only where there are threads


def is_in_order(**kind):
    with tempfile.TemporaryDirectory(dir=".") as folder:
        ds.write_dataset(pa.table({"step": np.arange(1 << 22)}), folder, format="arrow", **kind)
        steps = ds.dataset(folder, format="arrow").to_table()["step"].to_numpy()
    assert len(steps) == 1 << 22
    return bool((np.diff(steps) == 1).all())


tries, disordered = 0, 0
while tries < 200 and disordered < 2:
    tries += 1
    disordered += not is_in_order()
kept = all(is_in_order(preserve_order=True) for _ in range(20))
print(f"{disordered} of {tries} writes changed the order; 20 writes with preserve_order=True kept it: {kept}")
raise SystemExit(None if disordered and kept else "no longer seen")
PY
