"""Whole runs of envs that reuse and clear what they hand out: every command reports what is in the envs' own
ledgers, which they write to files. Other forms of envs, and other habits: tests/envs/test_ledger.py."""

import json
import shutil
from collections import defaultdict

import minari
import pytest

import sample_factory
from sample_factory import Observer, enjoy, register_env
from sample_factory.__main__ import command
from tests.evaluation.conftest import SMALL, save_untrained
from tests.system.filed_envs import Filed

TINY = {
    "env": "ledger_single",
    "experiment": "tiny",
    "num_workers": 2,
    "num_envs_per_worker": 8,
    "rollout": 16,
    "batch_size": 256,
    "ppo_epochs": 1,
    "device": "cpu",
    "encoder_mlp_layers": (8,),
    "hidden_size": 8,
    "use_rnn": False,
    "seed": 1,
    "reward_clip": 1000.0,
}


def made_at(path):
    return int(path.stem.split("_")[1])


@pytest.fixture
def ledgers(tmp_path):
    """Returns read(), which returns the episodes of each (env, agent) in the last run, in their order."""
    folder = tmp_path / "ledgers"
    folder.mkdir()
    register_env("ledger_", Filed(folder))

    def read():
        found = defaultdict(list)
        # The newest file of each env: env 0 is also made for the trial before the run.
        paths = {int(path.stem.split("_")[0]): path for path in sorted(folder.iterdir(), key=made_at)}
        for env_id, path in paths.items():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                found[env_id, entry.pop("agent")].append(entry)
        for path in folder.iterdir():
            path.unlink()
        return found

    return read


def entry(result):
    """Returns an episode as it is in a ledger."""
    get = result.get if isinstance(result, dict) else lambda name: getattr(result, name)
    names = {"reward": "reward", "length": "length", "objective": "true_objective", "stats": "extra_stats"}
    return {name: get(of_result) for name, of_result in names.items()}


class Collects(Observer):
    def __init__(self):
        self.episodes = defaultdict(list)

    def on_episode(self, run, episode):
        self.episodes[episode.agent_id].append(entry(episode))


@pytest.mark.parametrize(
    "env, agents, how",
    [
        ("ledger_single", 1, {"serial_mode": True}),
        ("ledger_pair", 2, {"inline_samplers": 1}),
        ("ledger_single", 1, {"inline_samplers": 0}),
    ],
    ids=["serial", "inline", "workers"],
)
def test_training_reports_what_is_in_the_ledgers(ledgers, tmp_path, env, agents, how):
    collected = Collects()
    flags = {**TINY, "env": env, "train_dir": tmp_path, "train_for_env_steps": 3000, **how}
    sample_factory.run(**flags, observers=[collected])
    found = ledgers()
    assert len(collected.episodes) == len(found) == 16 * agents
    for (env_id, agent), own in found.items():
        reported = collected.episodes[env_id * agents + agent]
        # An episode that began with random steps is the first one that is reported. Reports of the last steps
        # may be lost when the run stops.
        first = [episode["stats"] for episode in own].index(reported[0]["stats"])
        assert reported == own[first : first + len(reported)] and len(reported) > (len(own) - first) / 2


@pytest.fixture
def named(ledgers, tmp_path):
    """Returns named(env), which makes an experiment with untrained weights and returns the flags for it."""
    few = ["--device=cpu", "--num_workers=2", "--num_envs_per_worker=4"]
    return lambda env: [*save_untrained(tmp_path, env, *SMALL), *few]


@pytest.mark.parametrize("how", ["--serial_mode=True", "--serial_mode=False"])
def test_eval_reports_what_is_in_the_ledgers(ledgers, named, tmp_path, how):
    assert (
        command("eval")(
            [
                *named("ledger_pair"),
                how,
                "--num_envs_per_worker=4",
                "--eval_episodes=48",
                f"--json={tmp_path / 'out.json'}",
            ]
        )
        == 0
    )
    found = ledgers()
    (evaluation,) = json.loads((tmp_path / "out.json").read_text())["evaluations"]
    assert len(evaluation["episodes"]) == 48
    reported = defaultdict(list)
    for episode in evaluation["episodes"]:
        reported[episode["env"], episode["agent"]].append(entry(episode))
    for place, own in reported.items():
        assert own == found[place][: len(own)]


def test_enjoy_reports_what_is_in_the_ledger(ledgers, named, tmp_path):
    file = tmp_path / "out.json"
    assert (
        enjoy.main([*named("ledger_single"), "--no_render", "--max_num_episodes=12", f"--json={file}"]) == 0
    )
    (evaluation,) = json.loads(file.read_text())["evaluations"]
    assert list(map(entry, evaluation["episodes"])) == ledgers()[0, 0] and len(evaluation["episodes"]) == 12


def test_recorded_games_are_those_of_the_ledgers(ledgers, named, tmp_path):
    folder = tmp_path / "games"
    flags = [*named("ledger_single"), "--serial_mode=True", "--episodes=32", f"--out={folder}"]
    assert command("record")(flags) == 0
    found = ledgers()
    games = list(minari.MinariDataset(folder / "data"))
    assert len(games) == 32
    recorded = sorted((float(game.rewards.sum()), len(game.actions)) for game in games)
    filed = sorted((episode["reward"], episode["length"]) for own in found.values() for episode in own)
    assert set(recorded) <= set(filed) and len(recorded) <= len(filed)


def test_a_match_reports_what_is_in_the_ledger(ledgers, named, tmp_path):
    file = tmp_path / "match.json"
    flags = [*named("ledger_duel"), "--opponent_experiment=other", "--num_matches=6", f"--json={file}"]
    shutil.copytree(tmp_path / "tiny", tmp_path / "other")
    assert command("match")(flags) == 0
    found = ledgers()
    ended = [
        (first["objective"], second["objective"])
        for env in {env for env, _ in found}
        for first, second in zip(found[env, 0], found[env, 1])
    ]
    matches = json.loads(file.read_text())["matches"]
    assert len(matches) == 6
    for played in matches:
        ours, theirs = played["objective"], played["opponent_objective"]
        assert ((ours, theirs) if played["has_first_half"] else (theirs, ours)) in ended
