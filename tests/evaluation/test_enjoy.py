"""The `enjoy` command, on an experiment with untrained weights."""

import json
import subprocess
import sys

import cv2
import numpy as np
import pytest

from sample_factory import enjoy as program
from sample_factory.config.parsing import parse_config
from sample_factory.enjoy import enjoy
from sample_factory.envs import env_registry
from sample_factory.envs.env_registry import register_env, resolve_family
from tests.evaluation.conftest import always
from tests.evaluation.playable_envs import Cards, FilmedCards, Undrawable, UnevenAgents

CARTPOLE = "gym_CartPole-v1"


@pytest.fixture
def registry(monkeypatch):
    """Removes what a test registers after the test."""
    monkeypatch.setattr(env_registry, "_FAMILIES", dict(env_registry._FAMILIES))
    return register_env


def evaluate(identity, *typed):
    return enjoy(parse_config([*identity, "--no_render", *typed], resolve_family, evaluation=True))


def num_pictures(path) -> int:
    capture = cv2.VideoCapture(str(path))
    count = 0
    while capture.read()[0]:
        count += 1
    return count


def test_stops_after_the_wanted_episodes(saved_experiment, capsys):
    result = evaluate(saved_experiment(CARTPOLE), "--max_num_episodes=3")
    assert len(result.episodes) == 3
    rewards = [episode.reward for episode in result.episodes]
    assert [episode.length for episode in result.episodes] == rewards  # CartPole pays 1 for each step
    assert result.reward.mean == pytest.approx(np.mean(rewards))
    assert result.reward.std == pytest.approx(np.std(rewards))
    assert result.true_objective == result.reward
    assert result.env_frames == sum(rewards)
    printed = capsys.readouterr().out.splitlines()
    assert [line.startswith(f"episode {i + 1} ") for i, line in enumerate(printed[:3])] == [True] * 3
    assert printed[4] == f"reward {result.reward}"


def test_stops_after_the_wanted_env_frames(saved_experiment):
    assert evaluate(saved_experiment(CARTPOLE), "--max_num_frames=25").env_frames == 25


def test_env_frames_count_the_frameskip(saved_experiment):
    identity = saved_experiment(CARTPOLE, "--env_frameskip=2")
    assert evaluate(identity, "--max_num_frames=10").env_frames == 10
    assert evaluate(identity, "--max_num_frames=9", "--render_action_repeat=3").env_frames == 9
    lengths = {
        episode.length % 3
        for episode in evaluate(identity, "--max_num_episodes=4", "--render_action_repeat=3").episodes
    }
    assert lengths == {0}


@pytest.mark.parametrize("how", ["--eval_deterministic=True", "--eval_deterministic=False"])
def test_a_seed_determines_the_episodes(saved_experiment, how):
    flags = (saved_experiment(CARTPOLE), "--max_num_episodes=3", "--seed=5", how)
    assert evaluate(*flags).episodes == evaluate(*flags).episodes


def test_another_seed_gives_other_episodes(saved_experiment):
    identity = saved_experiment(CARTPOLE)
    first, second = (evaluate(identity, "--max_num_episodes=5", f"--seed={seed}").episodes for seed in (1, 2))
    assert first != second


def test_a_recurrent_policy_is_evaluated(saved_experiment):
    identity = saved_experiment(CARTPOLE, "--use_rnn=True", "--hidden_size=8")
    flags = (identity, "--max_num_episodes=2", "--seed=5")
    assert evaluate(*flags).episodes == evaluate(*flags).episodes


def test_the_video_has_the_first_picture_and_one_for_each_step(saved_experiment):
    result = evaluate(saved_experiment(CARTPOLE), "--max_num_episodes=2", "--save_video", "--seed=1")
    assert result.video.name == "replay.mp4"
    assert num_pictures(result.video) == 1 + result.env_frames
    assert not list(result.video.parent.glob(".*"))  # nothing unfinished
    capture = cv2.VideoCapture(str(result.video))
    assert capture.get(cv2.CAP_PROP_FRAME_HEIGHT) == 480
    assert capture.get(cv2.CAP_PROP_FPS) == pytest.approx(50)  # of CartPole's metadata


def test_a_video_without_other_limits_ends_the_evaluation(saved_experiment):
    identity = saved_experiment(CARTPOLE)
    assert len(evaluate(identity, "--save_video").episodes) == 1
    result = evaluate(identity, "--save_video", "--video_frames=5", "--video_name=short.mp4", "--fps=12")
    assert num_pictures(result.video) == 5
    assert cv2.VideoCapture(str(result.video)).get(cv2.CAP_PROP_FPS) == pytest.approx(12)
    assert result.env_frames == 4


def test_a_video_shorter_than_the_evaluation(saved_experiment):
    result = evaluate(saved_experiment(CARTPOLE), "--save_video", "--video_frames=5", "--max_num_episodes=3")
    assert num_pictures(result.video) == 5
    assert len(result.episodes) == 3


def test_an_undrawable_env_is_evaluated_without_pictures(saved_experiment, registry, caplog, monkeypatch):
    monkeypatch.setattr("sample_factory.runtime.log.log.propagate", True)

    def make_env(full_env_name, cfg, env_config, render_mode=None):
        assert render_mode is None, "cannot be drawn"
        return Undrawable()

    registry("undrawable", make_env)
    identity = saved_experiment("undrawable")
    result = evaluate(identity, "--save_video", "--max_num_episodes=2", "--continuous_actions_sample=False")
    assert [(episode.reward, episode.length) for episode in result.episodes] == [(6.0, 3), (6.0, 3)]
    assert result.video is None
    assert "cannot be drawn" in caplog.text


def test_each_agent_has_its_own_episodes(saved_experiment, registry):
    registry("uneven", lambda full_env_name, cfg, env_config: UnevenAgents())
    result = evaluate(saved_experiment("uneven", "--use_rnn=True", "--hidden_size=8"), "--max_num_frames=12")
    lengths = {agent: [e.length for e in result.episodes if e.agent == agent] for agent in (0, 1)}
    assert lengths == {0: [2] * 6, 1: [2] * 4}, "steps in which it acted, as in training"
    assert {episode.true_objective for episode in result.episodes} == {10.0, 11.0}
    assert {episode.reward for episode in result.episodes} == {2.0, 3.0}


def test_each_agent_has_its_own_policy_and_checkpoint(choosing, registry, tmp_path, capsys):
    registry("cards", lambda full_env_name, cfg, env_config: Cards(num_agents=3))
    checkpoints, _ = choosing("cards", 3), choosing("cards", 4, policy=1)
    identity = ["--experiment=tiny", f"--train_dir={tmp_path}", "--max_num_episodes=6"]
    config = parse_config(identity, resolve_family, evaluation=True)
    checkpoints.save_milestone(always(config, 2), 7, 8)
    flags = ["--policy_index", "0", "1", "0", "--checkpoint", "milestone:7", "latest", "latest"]
    result = evaluate(identity, *flags)
    assert [result.for_agent(agent).true_objective.mean for agent in range(3)] == [2.0, 4.0, 3.0]
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "agent 0 (policy 0, milestone:7): 2 episodes, reward 0.000 +- 0.000, true objective 2.000 +- 0.000",
        "agent 1 (policy 1, latest): 2 episodes, reward 0.000 +- 0.000, true objective 4.000 +- 0.000",
        "agent 2 (policy 0, latest): 2 episodes, reward 0.000 +- 0.000, true objective 3.000 +- 0.000",
    ]


def test_one_policy_plays_all_agents_if_only_one_is_named(choosing, registry, tmp_path):
    registry("cards", lambda full_env_name, cfg, env_config: Cards())
    choosing("cards", 2)
    choosing("cards", 4, policy=1)
    identity = ["--experiment=tiny", f"--train_dir={tmp_path}", "--max_num_episodes=2"]
    assert [episode.true_objective for episode in evaluate(identity).episodes] == [2.0, 2.0]
    result = evaluate(identity, "--policy_index=1")
    assert [episode.true_objective for episode in result.episodes] == [4.0, 4.0]


def test_a_saved_policy_index_that_is_no_list_is_one_of_all(choosing, registry, tmp_path):
    registry("cards", lambda full_env_name, cfg, env_config: Cards())
    choosing("cards", 4, policy=1)
    file = tmp_path / "tiny" / "cfg.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "policy_index": 1}))
    result = evaluate(["--experiment=tiny", f"--train_dir={tmp_path}"], "--max_num_episodes=2")
    assert result.true_objective == (4.0, 0.0)


@pytest.mark.parametrize("make, pictures", [(Cards, 1 + 4), (FilmedCards, 1 + 2 * 4)])
def test_an_env_of_several_agents_is_filmed(choosing, registry, tmp_path, make, pictures):
    """Two episodes of two rounds, with one picture for each round or with all that the env has."""
    registry("cards", lambda full_env_name, cfg, env_config: make())
    choosing("cards", 2)
    flags = ["--experiment=tiny", f"--train_dir={tmp_path}", "--save_video", "--max_num_episodes=4"]
    assert num_pictures(evaluate(flags).video) == pictures


def test_a_window_that_is_closed_ends_the_evaluation(saved_experiment, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    import pygame

    identity = saved_experiment(CARTPOLE)
    real_flip = pygame.display.flip
    flips = []

    def flip():
        real_flip()
        flips.append(None)
        if len(flips) == 4:
            pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_ESCAPE))

    monkeypatch.setattr(pygame.display, "flip", flip)
    result = enjoy(parse_config(identity, resolve_family, evaluation=True))
    assert result.env_frames == 3


def test_without_a_display_it_logs_that_once_and_plays(saved_experiment, monkeypatch, caplog):
    monkeypatch.setattr("sample_factory.runtime.log.log.propagate", True)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    argv = [*saved_experiment(CARTPOLE), "--max_num_episodes=1"]
    config = parse_config(argv, resolve_family, evaluation=True)
    assert len(enjoy(config).episodes) == 1
    assert caplog.text.count("there is no display") == 1


def test_an_exception_of_the_env_is_not_treated_as_the_end(saved_experiment, registry):
    class Failing(Undrawable):
        def step(self, action):
            raise ZeroDivisionError

    registry("failing", lambda full_env_name, cfg, env_config: Failing())
    with pytest.raises(ZeroDivisionError):
        evaluate(saved_experiment("failing"), "--max_num_episodes=1")


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--experiment=nothing"], "no experiment at"),
        (["--policy_index", "0", "0"], "takes one for all agents or one for each, and the env has 1"),
        (["--checkpoint", "best", "latest"], "--checkpoint has 2 values"),
        (["--checkpoint=milestone:3"], "has no milestones"),
        (["--checkpoint=bst"], "it should be latest, best, milestone:VERSION, or the path of a checkpoint"),
        (["--policy_index"], "--policy_index has 0 values"),
        (["--policy_index=4"], "no checkpoint (latest) in"),
        (["--load_checkpoint_kind=best"], "no checkpoint (best) in"),
        (["--env=dom_basic"], "unknown env 'dom_basic'"),
        (["--max_episodes=1"], "unknown flag --max_episodes"),
        (["--save_video", "--video_name=film.avi"], "should end with .mp4"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(saved_experiment, capsys, flags, words):
    assert program.main([*saved_experiment(CARTPOLE), "--no_render", *flags]) == 2
    error_lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(error_lines) == 1 and words in error_lines[0]


def test_weights_that_do_not_fit_are_one_line_and_exit_code_1(saved_experiment, capsys):
    flags = [*saved_experiment(CARTPOLE), "--no_render", "--encoder_mlp_layers", "8"]
    assert program.main(flags) == 1
    assert "does not fit the model" in capsys.readouterr().err


def test_the_module_imports_neither_torch_nor_gymnasium():
    code = (
        "import sys, sample_factory.enjoy, sample_factory.dummy_sampler, sample_factory.run_algorithm;"
        "assert not {'torch', 'gymnasium', 'cv2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
