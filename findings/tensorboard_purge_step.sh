#!/usr/bin/env bash
# Guess: a run that resumes from step 4,000 and opens its event file with `purge_step=4001` hides what the
#     first start had logged after that step; TensorBoard shows one line per tag.
# Truth: TensorBoard's Python reader does so. The data server, which `tensorboard` uses by default, does not
#     know the mark: a tag that is not written again soon keeps all its old points, and of one that is,
#     points are dropped only from the first new step on.
# Why it matters: after a resume, rare curves (evaluations, episode statistics) show scores of weights that
#     no longer exist. `tensorboard --load_fast=false` shows the truth.
# Source: tensorboard/backend/event_processing/event_accumulator.py for the Python reader; the data server
#     is a binary in the package tensorboard-data-server, asked here through
#     tensorboard/data/server_ingester.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    "tensorboard==2.21.0" "tensorboard-data-server==0.7.2" "tensorboardX==2.6.5" "numpy==2.4.6"

venv/bin/python - <<'PY'
import importlib.metadata
import logging
import time

from tensorboard import context
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.data.server_ingester import SubprocessServerDataIngester, get_server_binary
from tensorboard.util.grpc_util import ChannelCredsType
from tensorboardX import SummaryWriter

logging.disable(logging.WARNING)
for name in ("tensorboard", "tensorboard-data-server", "tensorboardX"):
    print(name, importlib.metadata.version(name))
first = SummaryWriter("run")
for step in range(1000, 11000, 1000):
    first.add_scalar("reward", 1.0, step)
    first.add_scalar("rare", 1.0, step)
first.close()
time.sleep(1.1)  # files are read in the order of the second in their names
resumed = SummaryWriter("run", purge_step=4001)
for step in (8000, 11000):
    resumed.add_scalar("reward", 2.0, step)
resumed.close()

reader = EventAccumulator("run")
reader.Reload()
python = {tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in ("reward", "rare")}
ingester = SubprocessServerDataIngester(
    server_binary=get_server_binary(),
    logdir="run",
    reload_interval=1,
    channel_creds_type=ChannelCredsType.LOCAL,
)
ingester.start()
server = {}
for _ in range(100):
    runs = ingester.data_provider.read_scalars(
        context.RequestContext(), experiment_id="", plugin_name="scalars", downsample=1000
    )
    for tags in runs.values():
        server = {tag: [(point.step, point.value) for point in points] for tag, points in tags.items()}
    if (11000, 2.0) in server.get("reward", []):
        break
    time.sleep(0.1)


def stale(points):
    return [step for step, value in points if value == 1.0 and step > 4000]


for name, tags in (("Python reader", python), ("data server", server)):
    print(
        name,
        "shows points of the first start after step 4,000:",
        {tag: stale(tags[tag]) for tag in sorted(tags)},
    )
seen = not stale(python["rare"]) and not stale(python["reward"]) and len(stale(server["rare"])) == 6
raise SystemExit(None if seen else "no longer seen")
PY
