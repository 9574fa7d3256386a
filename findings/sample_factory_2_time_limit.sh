#!/usr/bin/env bash
# Guess: in Sample Factory 2, `--train_for_seconds=1` ends a training about a second after it has begun, as it
#     does in version 1, and the help says so: "Stop training after this many seconds".
# Truth: the training goes on until `--train_for_env_steps`, 10 billion by default. The runner compares the
#     limit with a counter that is set to 0 when the runner is made, and never again.
# Why it matters: a comparison with equal minutes, or a script that must end before its reservation does, runs
#     for days. The same counter, at more than 300 s, should let curves of statistics with fewer than
#     `--stats_avg` (100) episodes appear in TensorBoard: without it, envs with long episodes have none for
#     hours. Use a signal from outside, for example `timeout -s INT 3600 python ...`.
# Source: algo/runners/runner.py of the package, total_train_seconds: one assignment, three comparisons.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check "torch==2.13.0" "sample-factory==2.1.1" \
    "numpy==1.26.4" "gymnasium==0.29.1"

venv/bin/pip list --disable-pip-version-check 2>/dev/null | grep -E "^sample-factory "

start=$(date +%s)
venv/bin/python -m sf_examples.train_gym_env --env=CartPole-v1 --algo=APPO --device=cpu --seed=1 \
    --serial_mode=True --async_rl=False --num_workers=1 --num_envs_per_worker=8 --worker_num_splits=1 \
    --rollout=32 --batch_size=1024 --use_rnn=False --with_wandb=False --experiment=limit --train_dir=runs \
    --train_for_seconds=1 --train_for_env_steps=200000 >log 2>&1
seconds=$(($(date +%s) - start))
frames=$(grep -oE "Collected \{0: [0-9]+\}" log | grep -oE "[0-9]+\}" | tr -d "}" | tail -1)
echo "with --train_for_seconds=1: $frames frames in $seconds s"
if [ "$frames" -lt 200000 ] || [ "$seconds" -lt 4 ]; then
    echo "changed: the limit of one second ended the training" >&2
    exit 1
fi
