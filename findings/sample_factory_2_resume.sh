#!/usr/bin/env bash
# Guess: the same command again resumes a training of Sample Factory 2, and ends with an error if its
#     checkpoint cannot be read.
# Truth: since PyTorch 2.6, version 2.1.1 cannot read its own checkpoint once a best policy has been saved: the
#     best reward in it is a NumPy scalar, which torch.load refuses by default. The learner tries three
#     times, logs that, and trains a new network from frame 0; the exit code is 0, and old checkpoints are
#     deleted as new ones come.
# Why it matters: days of training are lost at the first restart, and scripts that look at the exit code do
#     not notice. Numbers in a checkpoint should be Python's; old files can be read with
#     torch.load(..., weights_only=False), by whoever trusts them.
# Source: algo/learning/learner.py of the package, load_checkpoint; torch/serialization.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check "torch==2.13.0" "sample-factory==2.1.1" \
    "numpy==1.26.4" "gymnasium==0.29.1"

venv/bin/pip list --disable-pip-version-check 2>/dev/null | grep -E "^(sample-factory|torch) "

train() {
    venv/bin/python -m sf_examples.train_gym_env --env=CartPole-v1 --algo=APPO --device=cpu --seed=1 \
        --serial_mode=True --async_rl=False --num_workers=1 --num_envs_per_worker=8 --worker_num_splits=1 \
        --rollout=32 --batch_size=1024 --use_rnn=False --with_wandb=False --experiment=again --train_dir=runs \
        --save_best_after=1000 --save_best_every_sec=1 --save_every_sec=5 --train_for_env_steps="$1"
}
train 60000 >first 2>&1
train 80000 >second 2>&1
trained=$(grep -oE "Total num frames: [0-9]+" first | grep -oE "[0-9]+" | tail -1)
begun=$(grep -oE "Total num frames: [0-9]+" second | grep -oE "[0-9]+" | head -1)
refused=$(grep -c "Could not load from checkpoint" second || true)
echo "exit code 0; checkpoint refused $refused times; first run until frame $trained, second from about $begun"
if [ "$refused" -lt 1 ] || [ "$begun" -ge "$trained" ]; then
    echo "changed: the second run has resumed the first one" >&2
    exit 1
fi
