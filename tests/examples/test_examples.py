"""Runs every example as a user starts it: as a script."""

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import pytest

import sample_factory
from examples import (
    algorithms,
    curriculum,
    doom_table,
    from_python,
    minutes_to_score,
    policy_lag,
    team_doom,
)
from sample_factory.checkpoints.milestones import best_value, env_frames_of
from sample_factory.config.algorithms import BUILT_IN
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.training.run import train_config
from tests.examples.run_snippets import with_tiny_keywords
from tests.forked import run_programs
from tests.system.running import scalars

pytestmark = pytest.mark.timeout(900)  # seconds; beside other load, workers of low priority are slow

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
# Not the number of cores: the result after a number of frames depends on the number of envs.
WORKERS = "--num_workers=2"
# In one process: the result is the same each time, and less time goes into the start of processes.
SERIAL = ["--serial_mode=True", "--seed=1"]
SMALL_DOOM = ["--num_workers=1", "--num_envs_per_worker=2", "--rollout=8", "--batch_size=64"]
SHORT_MAZE = ["--corridor_length=4", "--rnn_type=mingru", "--rollout=16", "--batch_size=256"]


def run(*command_lines: list[str]) -> list[str]:
    """Runs examples with their arguments, one after another; returns what each has shown, and its exit code
    in the last line."""
    lines = [[str(EXAMPLES / script), *arguments] for script, *arguments in command_lines]
    with tempfile.TemporaryDirectory() as folder:
        ended = run_programs(lines, Path(folder), timeout=800)
    return [f"{shown}exit code {code}" for code, shown in ended]


def succeed(*command_lines: list[str]) -> list[str]:
    """Runs examples as `run` does; fails unless their exit codes are 0."""
    shown = run(*command_lines)
    assert all(text.endswith("exit code 0") for text in shown), "".join(shown)
    return shown


def run_python(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess:
    """Runs Python with these arguments. Its stdout and stderr are in `stdout`, in the order of a terminal."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=800,
    )


def means(shown: str) -> dict[str, float]:
    """Returns the means of reward and length that `enjoy` has shown."""
    found = re.findall(r"^(reward|length) +(\S+) \+-", shown, re.MULTILINE)
    return {name: float(mean) for name, mean in found}


def train_then_enjoy(script: str, train_dir: Path, flags: list[str], episodes: int) -> dict[str, float]:
    """Returns the means of reward and length over the episodes that `enjoy` plays after `train`."""
    identity = ["--experiment=a", f"--train_dir={train_dir}"]
    playing = ["--no_render", f"--max_num_episodes={episodes}", "--seed=1"]
    _, enjoyed = succeed(
        [script, "train", *identity, WORKERS, *flags], [script, "enjoy", *identity, *playing]
    )
    assert f"{episodes} episodes, " in enjoyed
    return means(enjoyed)


@pytest.mark.parametrize(
    ("script", "flags", "at_least"),
    [
        # Random actions get 2.5, and 7 in the best of 2,000 episodes; the most is 10.
        ("custom_env.py", [*SERIAL, "--train_for_env_steps=8000"], 6),
        # Random free fields get 3.3, the most is 5; the env raises for a field that is not free.
        ("action_mask.py", [*SERIAL, "--train_for_env_steps=10000"], 4.2),
        # Without a memory, 0.5; the most is 1.
        ("t_maze.py", [*SERIAL, *SHORT_MAZE, "--train_for_env_steps=22000"], 0.85),
    ],
)
def test_an_example_learns_its_task_in_seconds(tmp_path, script, flags, at_least):
    assert train_then_enjoy(script, tmp_path, flags, episodes=10)["reward"] >= at_least


def test_other_examples_with_parts_of_their_own_train_and_play(tmp_path):
    """The tasks take minutes to learn."""
    own = {
        "custom_multi_env.py": ["--corridor_length=6"],
        "custom_encoder.py": [],
        "custom_core.py": [],
        "custom_actor_critic.py": [],
        "gym_env.py": ["--env=sticky_CartPole-v1"],
        "own_algorithm.py": ["--spo_epsilon=0.1"],
        "lagrangian_ppo.py": ["--cost_limit=0.5"],
    }
    small = [*SERIAL, "--num_workers=1", "--num_envs_per_worker=4", "--rollout=16", "--batch_size=128"]
    lines = []
    for script, flags in own.items():
        identity = [f"--experiment={script}", f"--train_dir={tmp_path}"]
        lines.append([script, "train", *identity, *small, "--train_for_env_steps=600", *flags])
        lines.append([script, "enjoy", *identity, "--no_render", "--max_num_episodes=2", "--seed=1"])
    for enjoyed in succeed(*lines)[1::2]:
        assert "2 episodes, " in enjoyed and means(enjoyed)["length"] > 0


def test_levels_have_a_choice_of_their_own_and_a_row_each_in_the_table_of_an_evaluation(tmp_path):
    identity = ["--experiment=a", f"--train_dir={tmp_path}", "--serial_mode=True", "--seed=1"]
    small = ["--num_workers=1", "--num_envs_per_worker=4", "--train_for_env_steps=800", "--use_rnn=False"]
    _, evaluated = succeed(
        ["levels.py", "train", *identity, *small], ["levels.py", "eval", *identity, "--eval_episodes=2"]
    )
    assert re.findall(r"^(short|usual|long|all levels) +(\d)", evaluated, re.MULTILINE) == [
        ("short", "2"),
        ("usual", "2"),
        ("long", "2"),
        ("all levels", "6"),
    ]
    assert min(json.loads((tmp_path / "a" / "levels.json").read_text())["policies"][0]) > 0


def test_a_custom_doom_scenario_runs_with_its_own_flag(tmp_path):
    flags = ["--turret_seconds=1", "--train_for_env_steps=300", *SERIAL, *SMALL_DOOM]
    played = train_then_enjoy("custom_doom_scenario.py", tmp_path, flags, episodes=2)
    assert 0 < played["length"] <= 36  # a second has 35 tics, an action takes 4 of them
    assert json.loads((tmp_path / "a" / "cfg.json").read_text())["turret_seconds"] == 1
    assert list((tmp_path / "a" / "checkpoint_p0").glob("checkpoint_*.pth"))


def test_a_critic_of_the_whole_team_tells_skill_from_the_luck_of_the_others(tmp_path):
    identity = ["--experiment=a", f"--train_dir={tmp_path}"]
    flags = [*SERIAL, "--train_for_env_steps=40000", "--centralized_critic=True"]
    succeed(["centralized_critic.py", "train", *identity, *flags])
    # Random choices are right in 0.125, and 0.2 are right without the flag.
    assert scalars(tmp_path / "a")["0_aux/avg_skill"][-1][1] > 0.3


def test_a_team_of_two_doom_players_trains_with_a_critic_of_both_and_plays_without(tmp_path):
    flags = ["--timelimit=0.05", "--centralized_critic=True", "--train_for_env_steps=400"]
    played = train_then_enjoy("team_doom.py", tmp_path, [*SERIAL, *SMALL_DOOM, *flags], episodes=2)
    assert 0 < played["length"] <= 3 * 35
    cfg = json.loads((tmp_path / "a" / "cfg.json").read_text())
    assert "others/obs" in cfg["critic_only_keys"]


def test_doom_players_of_a_team_get_the_mean_of_their_rewards():
    class Two(gym.Env):
        num_agents = 2

        def step(self, actions):
            return [0, 0], [1.0, 4.0], [False] * 2, [False] * 2, [{}, {}]

    assert team_doom.SharedReward(Two()).step([0, 0])[1] == [2.5, 2.5]


def test_a_curriculum_is_learned_up_to_its_hardest_level_and_then_ends_the_run(tmp_path):
    played = train_then_enjoy("curriculum.py", tmp_path, SERIAL, episodes=20)
    assert played["reward"] >= 0.7, "random actions open the whole lock once in a million episodes"
    log = (tmp_path / "a" / "sf_log.txt").read_text()
    assert "finished early (all 10 dials are learned): " in log
    assert scalars(tmp_path / "a")["curriculum/level"][-1][1] == 10


def test_a_resumed_curriculum_goes_on_at_its_level(tmp_path):
    sent = []
    run = SimpleNamespace(folder=tmp_path, send_to_envs=sent.append)
    for _ in range(2):
        observer = curriculum.Curriculum()
        observer.on_init(run)
        level = sent[-1]["level"]
        for _ in range(curriculum.WINDOW):
            observer.on_episode(run, SimpleNamespace(reward=1.0, info={"level": level}))
    assert [values["level"] for values in sent] == [1, 2, 2, 3]


def test_policies_that_always_play_the_same_sides_learn_their_roles(tmp_path):
    identity = ["--experiment=a", f"--train_dir={tmp_path}"]
    playing = ["--no_render", "--max_num_episodes=10", "--seed=1", "--policy_index", "0", "1"]
    # In one process, every run on a machine gives the same result. With several processes, the policy lag
    # varies, and both policies can prefer the same role for a while.
    _, enjoyed = succeed(
        ["matchmaking.py", "train", *identity, *SERIAL], ["matchmaking.py", "enjoy", *identity, *playing]
    )
    assert means(enjoyed)["reward"] >= 9, "one policy for both sides gets 5 of 10 at best"


def test_the_best_policy_by_evaluation_is_an_earlier_one_than_the_best_by_the_shaped_reward(tmp_path):
    identity = ["--experiment=a", f"--train_dir={tmp_path}", "--seed=1"]
    file = tmp_path / "shaped.json"
    both = ["--checkpoint", "best", "latest", "--eval_episodes=64", "--serial_mode=True", f"--json={file}"]
    script = "best_by_evaluation.py"
    succeed([script, "train", *identity], [script, "eval", *identity, *both])
    evaluated = scalars(tmp_path / "a")["eval/reward"]
    (best,) = (tmp_path / "a" / "checkpoint_p0").glob("best_*_eval_reward_*.pth")
    true_reward, frames = max((reward, frames) for frames, reward in evaluated)
    assert env_frames_of(best) == frames and best_value(best, "eval_reward") == pytest.approx(
        true_reward, abs=0.001
    )
    shaped = [found["statistics"]["reward"]["mean"] for found in json.loads(file.read_text())["evaluations"]]
    assert shaped[1] > shaped[0] + 0.5, "by the reward of the training, the last policy is the best"
    assert true_reward > evaluated[-1][1] + 1, "by evaluation, the best one is an earlier one"


def test_rock_paper_scissors_is_played_against_past_selves_and_prints_its_strategies(tmp_path):
    script, identity = "rock_paper_scissors.py", ["--experiment=a", f"--train_dir={tmp_path}"]
    flags = [*SERIAL, "--selfplay_past_share=0.8", "--num_envs_per_worker=8", "--train_for_env_steps=8000"]
    _, shown, played, nothing = run(
        [script, "train", *identity, WORKERS, *flags],
        [script, "strategies", *identity],
        [script, "match", *identity, "--opponent_checkpoint=milestone:1", "--num_matches=4"],
        [script, "strategies", "--experiment=b", f"--train_dir={tmp_path}"],
    )
    past_selves = json.loads((tmp_path / "a" / "league.json").read_text())["past_selves"]
    assert sum(record["matches"] for past in past_selves.values() for record in past["against"].values()) > 20
    chances = re.findall(r"rock (\S+), paper (\S+), scissors ([\d.]+); exploitability", shown)
    assert len(chances) == len(past_selves) + 1 >= 4
    assert all(sum(map(float, row)) == pytest.approx(1, abs=0.02) for row in chances)
    assert "4 matches: " in played
    assert nothing.startswith("error: no experiment at") and nothing.endswith("exit code 2")


def test_all_functions_for_python_work_in_one_script_and_it_learns(tmp_path, monkeypatch, capsys):
    """With fewer frames, in this process."""
    train, evaluate = sample_factory.run, sample_factory.evaluate
    shorter = {"train_for_env_steps": 15_000, "serial_mode": True}
    monkeypatch.setattr(sample_factory, "run", with_tiny_keywords(train, shorter))
    monkeypatch.setattr(sample_factory, "evaluate", with_tiny_keywords(evaluate, {"serial_mode": True}))
    assert from_python.main(str(tmp_path)) == 0
    shown = capsys.readouterr().out
    # Random actions get 21; the most is 500.
    assert float(re.search(r"6 episodes: mean reward (\d+)", shown)[1]) > 60, shown
    assert re.search(r"done: 15,\d+ frames, mean reward \d+, in ", shown)
    assert re.search(r"in 100 steps of 4 envs, \d+ episodes ended\n env_frames +value\n", shown)


def test_a_script_for_version_2_trains_unchanged(tmp_path):
    flags = [*SERIAL, WORKERS, "--train_for_env_steps=6000"]
    identity = ["--env=my_lit_corner", "--experiment=a", f"--train_dir={tmp_path}"]
    [shown] = succeed(["sample_factory_2.py", *identity, *flags])
    # Random actions get 2.5; the most is 10.
    assert float(re.search(r"best mean reward ([\d.]+)", shown)[1]) > 5, shown


WITHOUT_COMMANDS = {
    "algorithms.py",
    "cluster_capacity.py",
    "compare_defaults.py",
    "doom_sb3.py",
    "from_python.py",
    "grid.py",
    "sample_factory_2.py",
    "search.py",
    "search_doom.py",
}


def test_an_example_without_a_command_prints_its_usage():
    scripts = [path.name for path in sorted(EXAMPLES.glob("*.py")) if path.name not in WITHOUT_COMMANDS]
    for script, shown in zip(scripts, run(*([script] for script in scripts)), strict=True):
        assert shown.startswith(f"usage: python {EXAMPLES / script} ") and shown.endswith("exit code 2")


@pytest.mark.parametrize(("score", "is_reached"), [(10, True), (400, False)])
def test_minutes_to_a_score_are_counted_until_the_mean_of_the_last_episodes(score, is_reached, tmp_path):
    flags = ["--env=gym_CartPole-v1", f"--score={score}", "--seed=3", f"--train_dir={tmp_path}"]
    fast = [
        "--serial_mode=True",
        "--num_workers=1",
        "--train_for_env_steps=8000",
        "--encoder_mlp_layers=[16]",
    ]
    table = tmp_path / "minutes.csv"
    assert minutes_to_score.main([*flags, *fast, f"--csv={table}"]) == (0 if is_reached else 1)
    (row,) = csv.DictReader(table.read_text().splitlines())
    assert (row["score"], row["seed"], bool(row["minutes"])) == (str(float(score)), "3", is_reached)
    assert float(row["evaluated"]) > 5


def test_a_grid_of_experiments_leaves_a_table_and_a_picture(tmp_path):
    shorter = """
from examples.grid import RUN_DESCRIPTION
(experiment,) = RUN_DESCRIPTION.experiments
experiment.cmd += " --serial_mode=True --num_envs_per_worker=2 --rollout=16 --batch_size=64"
experiment.cmd += " --train_for_env_steps=600"
experiment.params = experiment.params[::3]
"""
    (tmp_path / "shorter.py").write_text(shorter)
    ended = run_python("-m", "sample_factory", "run", "--run=shorter.py", "--pause_between=0", cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout
    folder = tmp_path / "train_dir" / "cartpole_grid"
    with open(folder / "results.csv") as file:
        rows = list(csv.DictReader(file))
    assert [(row["state"], row["learning_rate"], row["env"]) for row in rows] == [
        ("finished", "0.0001", "gym_CartPole-v1"),
        ("finished", "0.001", "gym_CartPole-v1"),
    ]
    assert all(int(row["env_frames"]) >= 600 and float(row["reward"]) > 5 for row in rows)
    assert json.loads((folder / "cartpole" / rows[0]["run"] / "result.json").read_text())["status"] == "done"
    assert (folder / "curves.png").exists()
    assert "learning_rate=0.001" in ended.stdout


def test_the_comparison_of_algorithms_has_valid_flags_and_equal_seeds(tmp_path):
    seeds = {}
    for run in algorithms.RUN_DESCRIPTION.plan(tmp_path):
        config = parse_config(run.command[3:], resolve_family)
        seeds.setdefault((run.folder.parent, config.run.algo), set()).add(config.run.seed)
    names = {algo for _, algo in seeds}
    assert len(names) > 1 and names <= set(BUILT_IN)
    for group in {group for group, _ in seeds}:
        first, *others = (seeds[group, algo] for algo in names)
        assert all(other == first for other in others)


def test_the_best_flags_of_a_search_are_a_recipe_for_cfg(tmp_path):
    shorter = """
from dataclasses import replace
from examples import search
few = {"seeds": (1,), "num_trials": 1, "num_reports": 1, "envs": {"gym_CartPole-v1": (0, 500)}}
SEARCH = replace(search.SEARCH, cmd=search.SEARCH.cmd + " --stats_avg=5", frames=600, **few)
"""
    (tmp_path / "search.py").write_text(shorter)
    searched = run_python(
        "-m", "sample_factory", "search", "--run=search.py", "--max_parallel=2", cwd=tmp_path
    )
    assert searched.returncode == 0, searched.stdout
    folder = tmp_path / "train_dir" / "cartpole_and_acrobot"
    argv = ["--env=gym_CartPole-v1", f"--cfg={folder / 'best.json'}", f"--train_dir={tmp_path}"]
    config = parse_config(argv, resolve_family)
    assert config.learning.batch_size == 256 and config.flat()["hidden_size"] == 64


def test_the_study_of_policy_lag_draws_the_runs_of_its_grid(tmp_path, capsys):
    planned = policy_lag.RUN_DESCRIPTION.plan(tmp_path)
    configs = [parse_config(run.command[3:], resolve_family) for run in planned]
    assert len(configs) == 54 and {config.sampling.forced_policy_lag for config in configs} >= {0, 256, 512}
    for run in (planned[1], planned[6]):  # 4 batches, by two algorithms
        argv = [*run.command[3:], "--train_for_env_steps=600", "--stats_avg=5"]
        config = parse_config(argv, resolve_family)
        assert train_config(config).status != "failed"
    assert policy_lag.main([str(tmp_path), f"--out={tmp_path / 'lag.svg'}"]) == 0
    rows = re.findall(r"^gym_CartPole-v1 (\w+) (\d+) 1: \d+", capsys.readouterr().out, re.MULTILINE)
    assert rows == [("APPO", "4"), ("IMPACT", "4")] and (tmp_path / "lag.svg").stat().st_size > 0


def test_the_table_of_doom_keeps_its_rows_and_gets_one_for_each_step_of_a_run(tmp_path, monkeypatch, capsys):
    planned = doom_table.RUN_DESCRIPTION.plan(tmp_path)
    assert len({run.command[3:] for run in planned}) == 3 * len(doom_table.SCENARIOS)
    small = ["--serial_mode=True", "--num_workers=1", "--rollout=8", "--batch_size=64", "--hidden_size=16"]
    argv = [*planned[0].command[3:], *small, "--device=cpu", "--stats_avg=2"]
    for frames in (1024, 2048):  # a run writes a summary at its end
        config = parse_config([*argv, f"--train_for_env_steps={frames}"], resolve_family)
        assert train_config(config).status == "done"
    for name, value in {"STEP": 1024, "LAST": 2048, "SHOWN": (1024, 2048), "EPISODES": 2}.items():
        monkeypatch.setattr(doom_table, name, value)
    files = [f"--csv={tmp_path / 'doom.csv'}", f"--picture={tmp_path / 'doom.png'}"]
    other = {**dict.fromkeys(doom_table.COLUMNS, "1"), "env": "doom_alien", "seed": "7"}
    (tmp_path / "doom.csv").write_text("\n".join(map(",".join, (other.keys(), other.values()))))
    for _ in range(2):
        assert doom_table.main([str(tmp_path), *files]) == 0
    with open(tmp_path / "doom.csv") as file:
        rows = list(csv.DictReader(file))
    assert rows.pop(0) == other
    assert [[row[name] for name in doom_table.IDENTITY] for row in rows] == [
        ["doom_basic", doom_table.OURS, "1", "1024"],
        ["doom_basic", doom_table.OURS, "1", "2048"],
    ]
    assert all(float(row["reward"]) == float(row["objective"]) for row in rows)
    assert rows[0]["sampled"] == "" and float(rows[1]["sampled"]) and float(rows[1]["deterministic"])
    assert (tmp_path / "doom.png").stat().st_size > 0
    (printed,) = [text for text in capsys.readouterr().out.splitlines() if "`doom_basic`" in text][-1:]
    cells = [f"{float(row['objective']):.3g}, {float(row['minutes']):.1f} min" for row in rows]
    cells.append(f"{float(rows[1]['sampled']):.3g}, {float(rows[1]['deterministic']):.3g}")
    assert printed == f"| `doom_basic` | {doom_table.OURS} | {' | '.join(cells)} |"

    doom_table.write([other, {**rows[0], "reward": "0.1"}], tmp_path / "doom.csv")  # of another run
    before = (tmp_path / "doom.csv").read_text()
    assert doom_table.main([str(tmp_path), *files]) == 0
    assert (tmp_path / "doom.csv").read_text() == before and "another run" in capsys.readouterr().err


def test_the_table_of_doom_has_mean_and_range_of_the_seeds_and_the_rest_of_the_longest_one():
    def row(seed, frames, objective, minutes):
        values = ("doom_basic", "x", seed, frames, minutes, objective)
        return dict(zip(("env", "trainer", "seed", "frames", "minutes", "objective"), map(str, values)))

    rows = [row(1, 500_000, 3, 1.0), row(2, 500_000, 5, 2.0), row(1, 1_000_000, 9, 3.0)]
    *_, printed = doom_table.markdown(rows)
    assert printed == "| `doom_basic` | x | 4 (3 to 5), 1.0 min | 9, 3.0 min |  |  |"
    mean, rest = doom_table.lines_of("x", rows)
    assert (list(mean.x), list(mean.y), mean.label) == ([1.0], [4.0], "x")
    assert (list(rest.x), list(rest.y), rest.label) == ([1.0, 3.0], [3.0, 9.0], "x, one seed")
    assert [line.label for line in doom_table.lines_of("x", rows[:1])] == ["x"]


def test_the_table_of_doom_gets_rows_of_stable_baselines(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import doom_sb3

    for name, value in {"STEP": 160, "NUM_ENVS": 2, "NUM_STEPS": 256}.items():
        monkeypatch.setattr(doom_sb3, name, value)
    table = tmp_path / "doom.csv"
    other = {**dict.fromkeys(doom_table.COLUMNS, "1"), "env": "doom_alien"}
    doom_table.write([other], table)
    doom_sb3.main([f"--csv={table}", "--env=doom_health_gathering_supreme", "--seed=3", "--minutes=0.05"])
    first, *rows = doom_table.read(table).values()
    assert first == other and {row["seed"] for row in rows} == {"3"}
    assert all(row["trainer"].startswith("Stable-Baselines3 ") for row in rows)
    frames = [int(row["frames"]) for row in rows]
    assert frames == list(range(frames[0], frames[-1] + 1, 160))
    assert all(2 < float(row["objective"]) < 21 for row in rows), "nobody starves sooner, nor plays longer"


def test_the_queues_of_a_cluster_carry_what_the_formula_says(tmp_path):
    picture = tmp_path / "cluster.svg"
    sizes = ["--nodes", "1", "4", "--gigabits", "1", "10", "--seconds=10", f"--out={picture}"]
    [drawn] = succeed(["cluster_capacity.py", *sizes])
    rows = [line.split("|") for line in drawn.splitlines() if line.startswith("| 1")]
    assert len(rows) == 4 and picture.stat().st_size > 0
    assert {row[4].strip() for row in rows} == {"sampling", "network", "learner"}
    for row in rows:
        by_formula, simulated = (float(row[column].replace(",", "")) for column in (3, 5))
        assert simulated == pytest.approx(by_formula, rel=0.03)
