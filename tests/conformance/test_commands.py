"""Whole commands: what `train`, `eval`, `enjoy` and `record` report, beside logs within the packages."""

import importlib
import json
import os
from collections import Counter

import minari
import numpy as np
import pytest

from sample_factory import enjoy, train
from sample_factory.__main__ import command
from sample_factory.mainloop.observer import Observer, register_observer, unregister_observer
from tests.conformance.ledger import Tally
from tests.conformance.package_logs import Logs

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame
SERIAL = ["--serial_mode=True", "--num_workers=1", "--num_envs_per_worker=2", "--seed=1", "--device=cpu"]
TINY = [
    "--hidden_size=16",
    "--use_rnn=False",
    "--rollout=32",
    "--batch_size=64",
    "--decorrelate_envs_on_one_worker=False",
]
SHORT_GAMES = '--env_kwargs={"max_num_frames_per_episode": 200, "obs_type": "grayscale"}'
NUM_EPISODES = 6


class Episodes(Observer):
    """Keeps the episodes of a training: (reward, length in env frames) by agent."""

    def __init__(self):
        self.of_agent = {}

    def on_episode(self, run, episode):
        self.of_agent.setdefault(episode.agent_id, []).append((episode.reward, episode.length))


def in_steps(rewards, skip=1, scale=1.0):
    """Returns the sums of each `skip` rewards, which can be compared and counted."""
    return tuple(round(float(scale * sum(rewards[i : i + skip])), 6) for i in range(0, len(rewards), skip))


def install(logs, env_name):
    kind, _, name = env_name.partition("_")
    if kind in ("gym", "minigrid"):
        logs.gymnasium()
    elif kind == "envpool":
        logs.envpool()
    elif kind == "doom":
        logs.doom(time_limit=300)
    elif kind == "generals":
        logs.generals(time_limit=60)
    else:
        module = importlib.import_module(f"pettingzoo.{name}")
        logs.pettingzoo(module, "parallel_env" if hasattr(module, "parallel_env") else "env")


@pytest.mark.parametrize(
    # steps: of the training, in env frames. frames: of a step in the package. scale: of its rewards.
    ("package", "env_name", "flags", "steps", "frames", "scale"),
    [
        ("gymnasium", "gym_CartPole-v1", [], 2048, 1, 1),
        ("vizdoom Gymnasium ids", "gym_VizdoomBasic-v1", ["--env_frameskip=4"], 2048, 1, 1),
        ("vizdoom own scenarios", "doom_basic", [], 4096, 4, 0.01),
        ("ale-py", "gym_ALE/Breakout-v5", [SHORT_GAMES], 512, 1, 1),
        (
            "minigrid",
            "minigrid_Empty-5x5-v0",
            ["--env_engine=gymnasium", "--vector_env_copies=2"],
            2048,
            1,
            1,
        ),
        ("envpool classic control", "envpool_CartPole-v1", ["--vector_env_copies=3"], 2048, 1, 1),
        ("pettingzoo parallel", "pettingzoo_classic.rps_v2", [], 1024, 1, 1),
        ("pettingzoo turn-based", "pettingzoo_classic.tictactoe_v3", [], 1024, 1, 1),
        ("generals-bots", "generals_4x4", ["--generals_shaping=0", "--generals_time_limit=60"], 1024, 1, 1),
    ],
)
def test_commands(package, env_name, flags, steps, frames, scale, tmp_path, monkeypatch, count):
    place = ["--experiment=ledger", f"--train_dir={tmp_path}"]
    logs = Logs(monkeypatch)
    install(logs, env_name)

    def summaries():
        """Returns (reward, length in env frames) of the episodes by agent, and forgets them."""
        rows = [[(scale * sum(e.rewards), frames * len(e.rewards)) for e in own] for own in logs.episodes]
        logs.all.clear()
        return rows

    def assert_reported(reported, rows, is_whole=False):
        """reported: (reward, length) by agent, numbered over all envs."""
        for agent, own in reported.items():
            expected = rows[agent] if is_whole else rows[agent][: len(own)]
            np.testing.assert_allclose(own, expected, rtol=1e-6, atol=1e-9)
        return sum(map(len, reported.values()))

    trained = Episodes()
    register_observer("ledger", trained)
    try:
        length = f"--train_for_env_steps={steps}"
        assert train.main([f"--env={env_name}", *place, *SERIAL, *TINY, *flags, length]) == 0
    finally:
        unregister_observer("ledger")
    rows = summaries()
    num_agents = len(rows) // 2  # in an env
    num_compared = assert_reported(trained.of_agent, rows, is_whole=True)
    assert num_compared == sum(map(len, rows)) > 0, "every episode that ended is reported"

    for main, how in (
        (command("eval"), ["--serial_mode=True", f"--eval_episodes={NUM_EPISODES}"]),
        (enjoy.main, ["--no_render", f"--max_num_episodes={NUM_EPISODES}"]),
    ):
        file = tmp_path / "results.json"
        assert main([*place, *how, "--seed=2", f"--json={file}"]) == 0
        (figures,) = json.loads(file.read_text())["evaluations"]
        by_agent = {}
        for episode in figures["episodes"]:
            agent = episode["agent"] + episode["env"] * num_agents
            by_agent.setdefault(agent, []).append((episode["reward"], episode["length"]))
        assert figures["num_episodes"] == NUM_EPISODES
        num_compared += assert_reported(by_agent, summaries())

    games = tmp_path / "games"
    how = ["--serial_mode=True", f"--episodes={NUM_EPISODES}", "--video_episodes=0", "--seed=3"]
    assert command("record")([*place, *how, f"--out={games}"]) == 0
    skip = 4 if "--env_frameskip=4" in flags else 1  # steps of the package in one of the product
    # At a time limit, ViZDoom's Gymnasium ids report both ends; elsewhere, both are a terminal state.
    ended = [episode for own in logs.episodes for episode in own]
    is_cut = [e.truncated and (not e.terminated or "Vizdoom" in env_name) for e in ended]
    played = Counter((in_steps(e.rewards, skip, scale), not cut, cut) for e, cut in zip(ended, is_cut))
    for episode in minari.MinariDataset(games / "data"):
        end = bool(episode.terminations[-1]), bool(episode.truncations[-1])
        assert not episode.terminations[:-1].any() and not episode.truncations[:-1].any()
        played.subtract([(in_steps(episode.rewards), *end)])
        num_compared += 1
    assert min(played.values()) >= 0, "recorded, but not played"
    count(package, Tally("", num_compared, 0))
