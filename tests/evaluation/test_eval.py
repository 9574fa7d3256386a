"""The command `eval`: episodes of checkpoints with the workers of training, without a learner."""

import csv
import json
import logging
import math
import os
import re
import signal

import pytest

from sample_factory.__main__ import command
from sample_factory.config.parsing import parse_config
from sample_factory.enjoy import enjoy
from sample_factory.envs.env_registry import register_env, resolve_family
from sample_factory.evaluation.evaluate import EVAL
from sample_factory.evaluation.measurement import (
    Measurement,
    SnapshotMeasurement,
    count_frames,
    measure_checkpoints,
    plan_evaluation,
)
from sample_factory.evaluation.results import EpisodeResult, Progress
from sample_factory.exchange.messages import Snapshot
from sample_factory.hub import ENJOY
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.failures import Failure
from tests.counting import make_plan
from tests.evaluation.conftest import SMALL, always, identity_of
from tests.evaluation.playable_envs import Cards, EarlyDeath, Guest
from tests.evaluation.uneven_envs import LONG, CachedStart, DiesOnce, Interrupts, SameStart, ShortLosses

FLAGS = ["--serial_mode=True", "--num_workers=2", "--num_envs_per_worker=2", "--seed=1"]


@pytest.fixture(autouse=True)
def uneven(registry):
    registry("uneven", lambda full_env_name, cfg, env_config: ShortLosses(env_config.env_id))


def evaluate(identity, *typed):
    config = parse_config([*identity, *FLAGS, *typed], resolve_family, EVAL)
    return list(measure_checkpoints(config, resolve_family(config.env_name)))


def both_names(checkpoints):
    """Returns the flag with two names of the newest checkpoint, which `eval` measures twice."""
    (path,) = checkpoints.folder.glob("*.pth")
    return ["--checkpoint", "latest", str(path)]


def test_short_episodes_do_not_count_more_often_and_an_env_rests_when_it_has_played_its_episodes(choosing):
    (result,) = evaluate(identity_of(choosing("uneven", 0)), "--eval_episodes=16")
    assert len(result.episodes) == 16 and not result.is_partial
    assert [len([e for e in result.episodes if e.env == env]) for env in range(4)] == [4] * 4
    assert result.reward.mean == 0.5, "of the 16 episodes that end first, most are lost"
    assert result.extra_stats["won"].mean == 0.5
    assert {(episode.length, episode.level) for episode in result.episodes} == {(1, "short"), (LONG, "long")}
    assert set(ShortLosses.steps.values()) == {2 * LONG + 2}, "no step after the last episode"


@pytest.mark.parametrize("envs", [[0], [0, 1, 2, 3, 0, 1]])
def test_any_number_of_episodes_is_played_exactly_and_in_the_same_order_each_time(choosing, envs):
    (result,) = evaluate(identity_of(choosing("uneven", 0)), f"--eval_episodes={len(envs)}")
    assert [episode.env for episode in result.episodes] == envs


@pytest.mark.parametrize("make_game, num_episodes", [(Cards, 1), (EarlyDeath, 3), (EarlyDeath, 12)])
def test_a_frame_of_a_game_counts_once_for_all_its_players(
    saved_experiment, registry, make_game, num_episodes
):
    steps = []

    class Counted(make_game):
        def step(self, actions):
            steps.append(1)
            return super().step(actions)

    registry("game", lambda full_env_name: Counted())
    (result,) = evaluate(saved_experiment("game"), f"--eval_episodes={num_episodes}")
    assert len(result.episodes) == num_episodes and result.env_frames == len(steps)


def test_copies_of_an_env_have_frames_of_their_own(saved_experiment):
    (result,) = evaluate(saved_experiment("gym_CartPole-v1"), "--eval_episodes=8", "--vector_env_copies=4")
    lengths = [episode.length for episode in result.episodes]
    assert len(lengths) == 8 and result.env_frames == sum(lengths)


def test_players_of_a_copy_share_its_frames():
    lengths = {(0, 0): 7, (0, 1): 9, (0, 2): 1, (1, 0): 2}  # by (env, agent)
    episodes = [EpisodeResult(agent, 0.0, n, 0.0, env=env) for (env, agent), n in lengths.items()]
    assert count_frames([*episodes, *episodes], copy_of_agent=[0, 0, 1]) == 2 * (9 + 1 + 2)


def test_every_checkpoint_of_every_policy_is_evaluated_and_the_files_have_every_episode(choosing, tmp_path):
    register_env("cards", lambda full_env_name, cfg, env_config: Cards())
    checkpoints = choosing("cards", 1)
    config = parse_config(["--env=cards", *SMALL], resolve_family)
    checkpoints.save_milestone(always(config, 2), 7, 40)
    other = choosing("cards", 3, policy=1)
    other.save_milestone(always(config, 4), 7, 40)
    flags = ["--policy_index", "0", "1", "--checkpoint", "latest", "milestone:7", "--eval_episodes=4"]
    files = [f"--json={tmp_path / 'out.json'}", f"--csv={tmp_path / 'out.csv'}"]
    assert command("eval")([*identity_of(checkpoints), *FLAGS, *flags, *files]) == 0
    figures = json.loads((tmp_path / "out.json").read_text())
    evaluations = figures["evaluations"]
    assert [found["policies"][0] for found in evaluations] == [
        {"policy_index": policy, "checkpoint": checkpoint}
        for policy in (0, 1)
        for checkpoint in ("latest", "milestone:7")
    ]
    means = [found["statistics"]["true_objective"]["mean"] for found in evaluations]
    assert means == [1, 2, 3, 4], "each env's agents play the card that the checkpoint chooses"
    assert figures["failure"] is None
    assert figures["env"] == "cards" and [found["num_episodes"] for found in evaluations] == [4] * 4
    with open(tmp_path / "out.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 16
    assert rows[-1] == {
        "checkpoint": "milestone:7",
        "policy": "1",
        "level": "",
        "env": "1",
        "agent": "1",
        "reward": "0.0",
        "length": "2",
        "true_objective": "4.0",
    }


def test_a_damaged_checkpoint_leaves_the_results_before_it_in_the_output_and_in_the_files(
    choosing, tmp_path, capfd
):
    damaged = tmp_path / "damaged.pth"
    damaged.write_text("no checkpoint")
    checkpoints = choosing("uneven", 0)
    flags = ["--eval_episodes=4", *both_names(checkpoints)]
    flags.insert(-1, str(damaged))
    files = [f"--json={tmp_path / 'out.json'}", f"--csv={tmp_path / 'out.csv'}"]
    assert command("eval")([*identity_of(checkpoints), *FLAGS, *flags, *files]) == 1
    shown = capfd.readouterr()
    assert "policy 0, latest: 4 episodes" in shown.out
    assert f"INCOMPLETE: 1 of 3 checkpoints; policy 0, {damaged} failed" in shown.out
    assert f"error: cannot use checkpoint {damaged}" in shown.err
    figures = json.loads((tmp_path / "out.json").read_text())
    assert [found["num_episodes"] for found in figures["evaluations"]] == [4]
    assert figures["failure"]["checkpoint"] == str(damaged)
    assert figures["failure"]["reason"].startswith(f"cannot use checkpoint {damaged}")
    with open(tmp_path / "out.csv") as file:
        *played, failed = csv.DictReader(file)
    assert [row["failure"] for row in played] == [""] * 4
    assert failed["checkpoint"] == str(damaged) and failed["reward"] == "" and failed["failure"]


def test_a_process_that_fails_for_good_leaves_the_results_before_it(choosing, tmp_path, capfd, monkeypatch):
    play = Measurement.play
    played = []

    def play_once(measurement, signals):
        if played:
            raise Failure("rollout_worker_0", "died 6 times in a row")
        played.append(measurement)
        return play(measurement, signals)

    monkeypatch.setattr(Measurement, "play", play_once)
    checkpoints = choosing("uneven", 0)
    flags = ["--eval_episodes=4", *both_names(checkpoints), f"--json={tmp_path / 'out.json'}"]
    assert command("eval")([*identity_of(checkpoints), *FLAGS, *flags]) == 1
    assert "INCOMPLETE: 1 of 2 checkpoints" in capfd.readouterr().out
    figures = json.loads((tmp_path / "out.json").read_text())
    assert len(figures["evaluations"]) == 1
    assert figures["failure"]["reason"] == "rollout_worker_0: died 6 times in a row"


def test_an_agent_that_rarely_takes_part_is_waited_for(saved_experiment, registry):
    registry("guest", lambda full_env_name: Guest(n=100))
    (result,) = evaluate(saved_experiment("guest"), "--eval_episodes=4")
    assert len(result.for_agent(1).episodes) == 2


def test_deterministic_actions_are_those_of_enjoy(saved_experiment):
    register_env("pole", lambda full_env_name, cfg, env_config: SameStart())
    identity = saved_experiment("pole")
    identity += ["--eval_deterministic=True", "--serial_mode=True"]
    config = parse_config([*identity, "--eval_episodes=4"], resolve_family, EVAL)
    (result,) = measure_checkpoints(config, resolve_family("pole"))
    shown_by = parse_config([*identity, "--no_render", "--max_num_episodes=1"], resolve_family, ENJOY)
    (shown,) = enjoy(shown_by).episodes
    assert {episode.length for episode in result.episodes} == {shown.length}


@pytest.mark.parametrize(
    ("module", "deterministic", "num_repeats"),
    [("brax.envs.wrappers.gym", True, 12), ("brax.envs.wrappers.gym", False, 0), ("mine", True, 0)],
)
def test_episodes_that_a_package_is_known_to_repeat_count_once_if_actions_are_no_random_ones(
    saved_experiment, registry, module, deterministic, num_repeats
):
    registry("pole", lambda full_env_name: type("Env", (CachedStart,), {"__module__": module})())
    flags = ["--eval_episodes=16", f"--eval_deterministic={deterministic}"]
    (result,) = evaluate(saved_experiment("pole"), *flags)
    assert len(result.episodes) == 16 - num_repeats and result.num_repeats == num_repeats
    assert not result.is_partial and result.figures()["num_repeats"] == num_repeats
    assert ("12 more repeat these and do not count" in result.summary()) == bool(num_repeats)
    assert math.isnan(result.reward.low) == bool(num_repeats), "of 4 episodes there is no interval"


def test_a_worker_that_dies_is_replaced_and_its_episodes_are_played_again(choosing, tmp_path):
    marker = str(tmp_path / "died")
    register_env("uneven", lambda full_env_name, cfg, env_config: DiesOnce(env_config.env_id, marker))
    flags = ["--serial_mode=False", "--eval_episodes=8", "--num_workers=1"]
    (result,) = evaluate(identity_of(choosing("uneven", 0)), *flags)
    assert os.path.exists(marker)
    assert [len([e for e in result.episodes if e.env == env]) for env in range(2)] == [4, 4]
    assert result.reward.mean == 0.5, "no episode counts twice"


def test_ctrl_c_prints_the_results_so_far_and_says_that_they_are_partial(choosing, capsys):
    register_env("uneven", lambda full_env_name, cfg, env_config: Interrupts(env_config.env_id))
    flags = [*FLAGS, "--num_workers=1", "--eval_episodes=100"]
    assert command("eval")([*identity_of(choosing("uneven", 0)), *flags]) == 0
    assert "PARTIAL: stopped before 100 episodes; biased" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        (["--checkpoint=best"], "checkpoint best.* latest, milestone:7"),
        (["--checkpoint=milestone:9"], "checkpoint milestone:9.* latest, milestone:7"),
        (["--checkpoint=milestone:new"], "checkpoint milestone:new.* latest, milestone:7"),
        (["--checkpoint=new.pth"], "checkpoint new.pth"),
        (["--policy_index=3"], "--policy_index may be 0"),
        (["--eval_episodes=0"], "--eval_episodes=0"),
        (["--eval_env_frameskip=3", "--env_frameskip=4"], "--eval_env_frameskip=3"),
        (["--csv=nowhere/out.csv"], "--csv=nowhere/out.csv"),
        (["--json=."], "--json=. is a folder"),
        (["--experiment=tinny"], "--experiment may be tiny"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_started(choosing, typed, complaint, capfd, monkeypatch):
    monkeypatch.setattr("sample_factory.runtime.child.Child.start", lambda child: pytest.fail("started"))
    checkpoints = choosing("uneven", 0)
    config = parse_config(["--env=uneven", *SMALL], resolve_family)
    checkpoints.save_milestone(always(config, 1), 7, 40)
    assert command("eval")([*identity_of(checkpoints), *FLAGS, *typed]) == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error")]
    assert re.search(complaint, line), line


def test_what_steered_the_training_is_not_needed(choosing):
    flags = ["--algo=OF_ANOTHER_SCRIPT", "--eval_every_env_steps=9", "--eval_flags=--env=gym_Nothing-v0"]
    (result,) = evaluate(identity_of(choosing("uneven", 0)), "--eval_episodes=1", *flags)
    assert len(result.episodes) == 1


def test_without_a_seed_all_checkpoints_are_evaluated_with_the_same_one(choosing):
    seeds = []

    class Seeded(ShortLosses):
        def reset(self, *, seed=None, options=None):
            seeds.append(seed)
            return super().reset()

    register_env("uneven", lambda full_env_name, cfg, env_config: Seeded(env_config.env_id))
    checkpoints = choosing("uneven", 0)
    flags = ["--serial_mode=True", *both_names(checkpoints), "--eval_episodes=1"]
    config = parse_config([*identity_of(checkpoints), *flags], resolve_family, EVAL)
    assert len(list(measure_checkpoints(config, resolve_family("uneven")))) == 2
    first, second = filter(None, seeds)
    assert first == second


def test_the_progress_says_how_long_the_rest_takes(capsys):
    now = iter([0.0, 0.0, 10.0, 10.0]).__next__
    progress = Progress(100, now=now)
    progress.update(25, lambda: "reward 0.5")
    assert capsys.readouterr().out == "25 of 100   0:30 left   reward 0.5\n"


def test_an_evaluation_during_training_plays_a_snapshot_in_one_process(choosing, monkeypatch):
    monkeypatch.setattr(logging.getLogger("sample_factory"), "setLevel", lambda level: None)
    register_env("cards", lambda full_env_name, cfg, env_config: Cards())
    checkpoints = choosing("cards", 3)
    typed = [
        *identity_of(checkpoints),
        "--num_envs_per_worker=2",
        "--eval_episodes=4",
        "--eval_every_env_steps=9",
    ]
    config = parse_config(["--env=cards", *typed], resolve_family)
    family = resolve_family("cards")
    (path,) = checkpoints.folder.glob("*.pth")
    plan = plan_evaluation(make_plan(config, Cards(), family, state_size=0))
    snapshot = Snapshot("evaluated.pth", 0, 1, 4, str(path))
    statistics = SnapshotMeasurement(plan, snapshot, ChildContext("evaluation")).run()
    assert statistics["true_objective"].mean == 3.0, "the card that the snapshot chooses"
    stopped = SnapshotMeasurement(plan, snapshot, ChildContext("evaluation"))
    step = Cards.step

    def stop_and_step(env, actions):
        os.kill(os.getpid(), signal.SIGTERM)
        return step(env, actions)

    monkeypatch.setattr(Cards, "step", stop_and_step)
    with pytest.raises(InterruptedError, match="a signal ended it"):
        stopped.run()
