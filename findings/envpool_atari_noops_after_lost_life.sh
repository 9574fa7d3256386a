#!/usr/bin/env bash
# Guess: with `episodic_life=True` EnvPool's Atari hides nothing but the life: rewards of all steps of all
#     lives add up to the score of the game, and `info["terminated"]` says when the game is over.
# Truth: the reset after a lost life plays up to 30 frames with no-ops, in the same game. Points scored in
#     them are never paid, and if the game ends in them, it is started anew in silence: lives rise,
#     `terminated` stays 0, and `elapsed_step` goes on.
# Why it matters: scores that sum the lives of a game are too low (Atlantis) or the sum of two games (Road
#     Runner).
# Source: envpool/atari/atari_env.h of EnvPool's sources, `Reset`. Where Atlantis keeps its score in the
#     console's memory is known from ALE's sources (its settings of that game).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check \
    "envpool==1.2.5" "envpool-assets==0.3.0" "gymnasium==1.4.0" "numpy==2.2.6"

venv/bin/python - <<'PY'
from importlib.metadata import version

import envpool
import numpy as np

COPIES = 8


def play(game, steps):
    """Yields (ended before this step, rewards, infos before, infos after) of random play."""
    env = envpool.make_gymnasium(game, num_envs=COPIES, seed=1, episodic_life=True, reward_clip=False)
    actions = np.random.default_rng(0)
    _, before = env.reset()
    ended = np.zeros(COPIES, bool)
    for _ in range(steps):
        _, rewards, terminated, truncated, after = env.step(actions.integers(env.action_space.n, size=COPIES))
        yield ended, rewards, before, after
        before, ended = after, terminated | truncated


def atlantis_score(infos):
    digits = infos["ram"][:, [0x21, 0x23, 0x22]].astype(int)
    return (digits // 16 * 10 + digits % 16) @ [1_000_000, 10_000, 100]


print("EnvPool", version("envpool"))
silent = open_ends = 0
for ended, _, before, after in play("RoadRunner-v5", 500):
    new_game = ended & (after["lives"] > before["lives"])
    open_ends += int((new_game & (before["terminated"] == 1)).sum())
    silent += int((new_game & (before["terminated"] == 0) & (after["elapsed_step"] > 0)).sum())
print(f"Road Runner: {open_ends} games ended with terminated=1, {silent} in silence after a lost life")
paid = unpaid = elsewhere = 0
for ended, rewards, before, after in play("Atlantis-v5", 700):
    gained = np.where(after["elapsed_step"] == 0, 0, atlantis_score(after) - atlantis_score(before))
    paid += int(rewards.sum())
    unpaid += int((gained - rewards)[ended].sum())
    elsewhere += int((gained != rewards)[~ended].sum())
print(
    f"Atlantis: points paid {paid}, scored in resets, not paid {unpaid}; other steps that differ: {elsewhere}"
)
raise SystemExit(None if silent and open_ends and unpaid > 0 and not elsewhere else "no longer seen")
PY
