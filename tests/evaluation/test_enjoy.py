"""The `enjoy` command, on an experiment with untrained weights."""

import json
import os
import signal

import cv2
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sample_factory import enjoy as program
from sample_factory.config.parsing import parse_config
from sample_factory.enjoy import enjoy
from sample_factory.envs.abilities import SplitsScreen
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig, ObservationRows
from sample_factory.envs.wrappers.frame_stack import FrameSkip
from sample_factory.evaluation import enjoy as enjoy_module
from sample_factory.evaluation.policy_choice import LATEST, PolicyChoice
from sample_factory.evaluation.screen import Overlay
from sample_factory.evaluation.video import VideoWriter
from sample_factory.evaluation.watched_env import Watch
from sample_factory.hub import ENJOY
from tests.envs.parallel_envs import Scripted, Turn
from tests.evaluation.conftest import always
from tests.evaluation.playable_envs import Cards, Guest, Undrawable, UnevenAgents
from tests.evaluation.test_video import read
from tests.forked import run_programs
from tests.mixed import MixedCounting

CARTPOLE = "gym_CartPole-v1"


def evaluate(identity, *typed):
    return enjoy(parse_config([*identity, "--no_render", *typed], resolve_family, ENJOY))


def num_pictures(path) -> int:
    return len(read(path))


def test_stops_after_the_wanted_episodes(saved_experiment, capsys):
    result = evaluate(saved_experiment(CARTPOLE), "--max_num_episodes=10")
    assert len(result.episodes) == 10
    rewards = [episode.reward for episode in result.episodes]
    assert [episode.length for episode in result.episodes] == rewards  # CartPole pays 1 for each step
    assert result.reward.mean == pytest.approx(np.mean(rewards))
    assert result.reward.std == pytest.approx(np.std(rewards))
    assert result.true_objective == result.reward
    assert result.env_frames == sum(rewards)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in printed[:10]] == [["episode", f"{i}"] for i in range(1, 11)]
    lowest, highest = min(rewards), max(rewards)
    interval = f"mean {result.reward.low:.3f} to {result.reward.high:.3f} (95 %)"
    assert printed[11] == f"reward    {result.reward} ({lowest:.3f} to {highest:.3f})  {interval}"
    assert "objective" not in "".join(printed), "the env reports no other than the reward"


def test_an_agent_that_takes_part_in_no_match_ends_it_with_one_line_if_episodes_are_counted(
    saved_experiment, registry, capfd
):
    registry("guest", lambda full_env_name: Guest())
    command = [*saved_experiment("guest"), "--no_render"]
    assert program.main([*command, "--max_num_episodes=4"]) == 1
    [line] = [line for line in capfd.readouterr().err.splitlines() if "error:" in line]
    assert "env 0 (guest): agent 1 has taken part in none of the last 100 matches" in line
    assert program.main([*command, "--max_num_episodes=1"]) == 0, "an episode of agent 0"
    assert program.main([*command, "--max_num_frames=150"]) == 0


def drawing(render):
    """Returns how an env is made whose render() is `render`."""

    class Drawn(Undrawable):
        def render(self):
            return render()

    return lambda full_env_name: Drawn()


def fail_to_draw():
    raise AttributeError("no attribute 'eglQueryString'")


def make_undrawable(full_env_name, cfg, env_config, render_mode=None):
    assert render_mode is None, "there is nothing to see"
    return Undrawable()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (make_undrawable, "cannot be drawn: env 'undrawable': make raised AssertionError: there is"),
        (drawing(fail_to_draw), "played without pictures: AttributeError: no attribute 'eglQueryString'"),
        (drawing(lambda: None), "played without pictures: its render() returned nothing"),
        (drawing(lambda: "a text"), "it should be uint8 [height, width, 3]"),
    ],
)
def test_an_env_that_cannot_be_drawn_is_played_without_pictures(
    registry, saved_experiment, caplog, monkeypatch, make, reason
):
    monkeypatch.setattr("sample_factory.runtime.log.log.propagate", True)
    registry("undrawable", make)
    result = evaluate(saved_experiment("undrawable"), "--save_video", "--max_num_episodes=2")
    assert [(episode.reward, episode.length) for episode in result.episodes] == [(6.0, 3), (6.0, 3)]
    assert result.video is None
    assert caplog.text.count(reason) == 1, caplog.text


def test_a_signal_ends_the_wait_for_the_first_reset(registry, saved_experiment):
    class Waiting(Undrawable):
        """Waits for humans, who do not come."""

        def reset(self, *, seed=None, options=None):
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("still waiting")

    registry("waiting", lambda full_env_name: Waiting())
    result = evaluate(saved_experiment("waiting"), "--max_num_episodes=3")
    assert not result.episodes and result.is_partial


def test_each_copy_of_a_vector_env_plays_its_share_of_the_episodes(saved_experiment, capsys):
    """The first episodes to end are the short ones: they must not be all that counts."""
    flags = ["--vector_env_copies=4", "--max_num_episodes=10", "--seed=1"]
    result = evaluate(saved_experiment(CARTPOLE), *flags)
    assert [len(result.for_agent(agent).episodes) for agent in range(4)] == [3, 3, 2, 2]
    summary = capsys.readouterr().out.splitlines()[10:]
    assert [line.split()[0] for line in summary] == ["10", "reward", "length"], "totals only"


def test_stops_after_the_wanted_env_frames_which_count_the_frameskip(saved_experiment):
    identity = saved_experiment(CARTPOLE)
    assert evaluate(identity, "--max_num_frames=25").env_frames == 25
    assert evaluate(identity, "--max_num_frames=25", "--vector_env_copies=4").env_frames == 28, (
        "7 of each copy"
    )
    skipping = [*identity, "--env_frameskip=2"]
    assert evaluate(skipping, "--max_num_frames=10").env_frames in (10, 11)
    assert 9 <= evaluate(skipping, "--max_num_frames=9", "--render_action_repeat=3").env_frames < 9 + 3


def test_of_an_action_that_an_end_cuts_short_only_the_frames_that_were_played_count(saved_experiment):
    identity = saved_experiment(CARTPOLE, "--env_frameskip=6")
    for flags in ("--render_action_repeat=7", "--eval_env_frameskip=3"):
        result = evaluate(identity, "--max_num_episodes=6", flags)
        lengths = [episode.length for episode in result.episodes]
        assert lengths == [episode.reward for episode in result.episodes], "1 for each frame"
        assert any(length % 3 for length in lengths)
        assert result.env_frames == sum(lengths)


@pytest.mark.parametrize(
    ("memory", "how"),
    [("--use_rnn=False", "--eval_deterministic=True"), ("--use_rnn=True", "--eval_deterministic=False")],
)
def test_a_seed_determines_the_episodes_and_another_one_gives_others(saved_experiment, memory, how):
    flags = (saved_experiment(CARTPOLE, memory, "--hidden_size=8"), "--max_num_episodes=3", how)
    first, same, other = (evaluate(*flags, f"--seed={seed}").episodes for seed in (5, 5, 6))
    assert first == same != other


@pytest.mark.parametrize("flag", ["--eval_deterministic=True", "--continuous_actions_sample=False"])
def test_continuous_actions_are_the_mean_if_asked_to(saved_experiment, registry, flag):
    class Paying(Undrawable):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, float(action[0]), *rest

    registry("paying", lambda full_env_name: Paying())
    played = [*saved_experiment("paying", "--use_rnn=False"), "--max_num_episodes=5"]
    rewards = [{e.reward for e in evaluate(played, *typed).episodes} for typed in ([flag], [])]
    assert [len(different) for different in rewards] == [1, 5]


def test_the_video_has_all_pictures_of_each_episode_and_holds_the_last_for_half_a_second(saved_experiment):
    result = evaluate(saved_experiment(CARTPOLE), "--max_num_episodes=2", "--save_video", "--seed=1")
    assert result.video.name == "replay.mp4"
    assert num_pictures(result.video) == result.env_frames + 2 * (1 + 25)
    assert not list(result.video.parent.glob(".*"))  # nothing unfinished
    capture = cv2.VideoCapture(str(result.video))
    assert capture.get(cv2.CAP_PROP_FRAME_HEIGHT) == 480
    assert capture.get(cv2.CAP_PROP_FPS) == pytest.approx(50)  # of CartPole's metadata


def test_a_video_without_other_limits_has_whole_episodes_for_10_seconds(saved_experiment, monkeypatch):
    assert enjoy_module.MIN_VIDEO_SECONDS == 10
    monkeypatch.setattr(enjoy_module, "MIN_VIDEO_SECONDS", 3)  # faster
    monkeypatch.setattr("sample_factory.evaluation.video.MIN_HEIGHT", 48)
    identity = saved_experiment(CARTPOLE)
    result = evaluate(identity, "--save_video", "--seed=1")
    lengths = [episode.length for episode in result.episodes]
    assert result.env_frames == sum(lengths), "no episode is unfinished"
    pictures = [1 + length + 25 for length in lengths]  # half a second of the last one
    assert sum(pictures[:-1]) < 3 * 50 <= sum(pictures) <= num_pictures(result.video) + 1


def test_a_long_first_episode_is_the_whole_video(saved_experiment, monkeypatch):
    monkeypatch.setattr("sample_factory.evaluation.enjoy.MIN_VIDEO_SECONDS", 0.1)
    identity = saved_experiment(CARTPOLE)
    assert len(evaluate(identity, "--save_video").episodes) == 1
    copies = evaluate(identity, "--save_video", "--vector_env_copies=3")
    assert [episode.agent for episode in copies.episodes] == [0], "the copy that is drawn"


def test_the_number_of_frames_of_a_video_ends_it_and_an_evaluation_without_other_limits(saved_experiment):
    identity = saved_experiment(CARTPOLE)
    result = evaluate(identity, "--save_video", "--video_frames=5", "--video_name=short.mp4", "--fps=12")
    assert result.video.name == "short.mp4" and num_pictures(result.video) == 5
    assert cv2.VideoCapture(str(result.video)).get(cv2.CAP_PROP_FPS) == pytest.approx(12)
    assert result.env_frames == 4
    result = evaluate(identity, "--save_video", "--video_frames=5", "--max_num_episodes=3")
    assert num_pictures(result.video) == 5 and len(result.episodes) == 3


def test_a_video_without_a_display_prints_no_error(saved_experiment, tmp_path, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    argv = [*saved_experiment(CARTPOLE), "--save_video", "--no_render", "--video_frames=2"]
    [(code, shown)] = run_programs([["-m", "sample_factory.enjoy", *argv]], tmp_path, timeout=400)
    assert code == 0 and "replay.mp4" in shown
    assert "error" not in shown and "XDG_RUNTIME_DIR" not in shown


def test_an_overlay_is_drawn_on_every_picture(saved_experiment):
    identity = saved_experiment(CARTPOLE)
    flags = ["--save_video", "--max_num_frames=8", "--seed=1"]
    plain, with_text = (evaluate(identity, *flags, f"--overlay={on}").video for on in (False, True))
    for ours, theirs in zip(read(with_text), read(plain), strict=True):
        assert (ours[:24, :100].astype(int) < theirs[:24, :100].astype(int) - 50).mean() > 0.7
        assert np.abs(ours[100:].astype(int) - theirs[100:]).mean() < 2, "the rest stays"


def test_the_overlay_says_who_plays_the_episode_the_reward_and_the_action(saved_experiment, monkeypatch):
    drawn = []
    monkeypatch.setattr(Overlay, "draw", lambda self, picture: drawn.append(self._texts[0]) or picture)
    result = evaluate(
        saved_experiment(CARTPOLE), "--save_video", "--overlay", "--max_num_episodes=2", "--seed=1"
    )
    first, second = result.episodes
    assert drawn[0] == ["tiny: policy 0, latest", "episode 1  reward 0.00", ""]
    assert drawn[1][:2] == ["tiny: policy 0, latest", "episode 1  reward 1.00"]
    assert drawn[1][2] in ("action 0", "action 1")
    assert f"episode 1  reward {first.reward:.2f}" in drawn[first.length + 1]
    assert drawn[-1][1] == f"episode 2  reward {second.reward:.2f}", "the whole, and no third episode"


def test_in_a_split_screen_each_part_has_the_text_of_its_agent(choosing, registry, tmp_path):
    class SplitCards(Cards, SplitsScreen):
        def screen_grid(self):
            return 2, 1

    registry("cards", lambda full_env_name, cfg, env_config: SplitCards())
    choosing("cards", 2)
    choosing("cards", 4, policy=1)
    flags = ["--save_video", "--overlay", "--max_num_frames=1", "--policy_index", "0", "1"]
    picture = read(evaluate(["--experiment=tiny", f"--train_dir={tmp_path}"], *flags).video)[1]
    red = picture[:, :, 0].astype(int)
    left, right = red[:60, :320], red[:60, 320:]
    assert (left[:, :100] < 150).mean() > 0.5 and (right[:, :100] < 150).mean() > 0.5
    assert np.abs(left - right).max() > 100, "another policy"
    assert (red[100:] > 200).all()


def test_the_overlay_names_the_action_of_an_agent_that_has_fewer_numbers_than_others():
    class Narrow(MixedCounting):
        action_spaces = [gym.spaces.Box(-9, 9, (size,), np.float32) for size in (1, 3, 1)]

    adapted = adapt(Narrow())
    watch = Watch(adapted)
    env = watch(adapted, EnvConfig(0, 0, 0))
    overlay = Overlay("a", watch, [PolicyChoice(0, LATEST)] * 3, range(3))
    rows = ObservationRows.allocate(env.kinds)
    env.reset(None, rows)
    env.step(np.tile(np.arange(1, 4, dtype=np.float32), (3, 1)), rows)
    overlay.update([])
    assert [action for _, _, action in overlay._texts] == ["action 1", "action 1 2 3", "action 1"]


def test_each_agent_has_its_own_episodes(saved_experiment, registry, capsys):
    registry("uneven", lambda full_env_name, cfg, env_config: UnevenAgents())
    result = evaluate(saved_experiment("uneven", "--use_rnn=True", "--hidden_size=8"), "--max_num_frames=12")
    lengths = {agent: [e.length for e in result.episodes if e.agent == agent] for agent in (0, 1)}
    assert lengths == {0: [2] * 6, 1: [2] * 4}, "steps in which it acted, as in training"
    assert {episode.true_objective for episode in result.episodes} == {10.0, 11.0}
    assert {episode.reward for episode in result.episodes} == {2.0, 3.0}
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_each_agent_has_its_own_policy_and_checkpoint(choosing, registry, tmp_path, capsys):
    registry("cards", lambda full_env_name, cfg, env_config: Cards(num_agents=3))
    checkpoints, _ = choosing("cards", 3), choosing("cards", 4, policy=1)
    identity = ["--experiment=tiny", f"--train_dir={tmp_path}", "--max_num_episodes=6"]
    config = parse_config(identity, resolve_family, ENJOY)
    checkpoints.save_milestone(always(config, 2), 7, 8)
    flags = ["--policy_index", "0", "1", "0", "--checkpoint", "milestone:7", "latest", "latest"]
    result = evaluate(identity, *flags)
    assert [result.for_agent(agent).true_objective.mean for agent in range(3)] == [2.0, 4.0, 3.0]
    first, *_, third, _, _, objective = capsys.readouterr().out.splitlines()[-12:]
    assert first == "policy 0, milestone:7 (agent 0): 2 episodes"
    assert third == "policy 0, latest (agent 2): 2 episodes"
    assert objective == "  objective 3.000 +- 0.000 (3.000 to 3.000)"


def test_one_policy_plays_all_agents_if_only_one_is_named(choosing, registry, tmp_path):
    registry("cards", lambda full_env_name, cfg, env_config: Cards())
    choosing("cards", 2)
    choosing("cards", 4, policy=1)
    identity = ["--experiment=tiny", f"--train_dir={tmp_path}", "--max_num_episodes=2"]
    assert [episode.true_objective for episode in evaluate(identity).episodes] == [2.0, 2.0]
    result = evaluate(identity, "--policy_index=1")
    assert [episode.true_objective for episode in result.episodes] == [4.0, 4.0]
    file = tmp_path / "tiny" / "cfg.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "policy_index": 1}))
    assert evaluate(identity).episodes == result.episodes, "saved as a number, not as a list"


class Fading(gym.Env):
    """Episodes of three steps; step t is a picture of brightness 50 t.

    late: whether the first picture is drawn after a step, as in a game that has to be started.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gym.spaces.Box(-1, 1, (3,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode=None, late=False):
        self.render_mode = render_mode
        self.late = late

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(3, np.float32), 1.0, self.time == 3, False, {}

    def render(self):
        return None if self.late and not self.time else np.full((4, 4, 3), 50 * self.time, np.uint8)


class FadingParallel(Scripted):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def render(self):
        return np.full((4, 4, 3), 50 * self.time, np.uint8)


class FadingSkipped(FrameSkip):
    """Two frames per step; draws all of them."""

    metadata = {"render_modes": ["rgb_array_list"], "render_fps": 20}

    def __init__(self):
        super().__init__(gym.wrappers.RenderCollection(Fading("rgb_array")), 2)


def fading_copies(mode):
    return SyncVectorEnv([lambda: Fading("rgb_array")], autoreset_mode=mode)


WHOLE = [0, 50, 100, 150]


@pytest.mark.parametrize(
    ("make", "pictures"),
    [
        (lambda: Fading("rgb_array"), WHOLE),
        (lambda: FadingParallel([Turn("abc"), Turn("abc"), Turn("", "abc")]), WHOLE),
        (FadingSkipped, WHOLE),
        (lambda: fading_copies(AutoresetMode.DISABLED), WHOLE),
        (lambda: fading_copies(AutoresetMode.NEXT_STEP), WHOLE),
        (lambda: Fading("rgb_array", late=True), WHOLE[1:]),
    ],
    ids=["single", "parallel", "frame skip", "disabled", "next step", "late"],
)
def test_a_video_shows_the_last_state_of_each_episode(
    saved_experiment, registry, monkeypatch, make, pictures
):
    drawn = []
    monkeypatch.setattr(VideoWriter, "write", lambda self, picture: drawn.append(int(picture[0, 0, 0])))
    registry("fading", lambda full_env_name, cfg, env_config: make())
    flags = ["--save_video", "--overlay=False", "--max_num_episodes=6"]  # two of each of three agents
    evaluate(saved_experiment("fading"), *flags)
    changes = [picture for picture, before in zip(drawn, [None, *drawn]) if picture != before]
    assert changes[: 2 * len(pictures)] == 2 * pictures
    first = drawn[: drawn.index(150) + 1]
    assert first == pictures and drawn[len(first) :][:5] == [150] * 5, "it stays for half a second"


def slow(env_class):
    """Returns the class with a slower rate of pictures in its metadata."""
    return type("Slow", (env_class,), {"metadata": {"render_fps": 12, "render_modes": ["rgb_array"]}})


@pytest.mark.parametrize(
    "make",
    [
        lambda **how: slow(Cards)(),
        lambda **how: slow(Scripted)([Turn("abc")] * 9, **how),
        lambda **how: SyncVectorEnv([lambda: slow(CartPoleEnv)(**how)]),
    ],
)
def test_a_video_has_the_rate_in_the_metadata_of_an_env_of_any_kind(saved_experiment, registry, make):
    registry("slow", lambda full_env_name, cfg, env_config, render_mode=None: make(render_mode=render_mode))
    result = evaluate(saved_experiment("slow"), "--save_video", "--video_frames=2")
    assert cv2.VideoCapture(str(result.video)).get(cv2.CAP_PROP_FPS) == pytest.approx(12)


def test_a_window_that_is_closed_ends_the_evaluation(saved_experiment, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "offscreen")
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
    result = enjoy(parse_config(identity, resolve_family, ENJOY))
    assert result.env_frames == 3


def test_without_a_display_it_logs_that_once_and_plays(saved_experiment, monkeypatch, caplog):
    monkeypatch.setattr("sample_factory.runtime.log.log.propagate", True)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    identity = saved_experiment(CARTPOLE)
    config = parse_config([*identity, "--max_num_episodes=1"], resolve_family, ENJOY)
    assert len(enjoy(config).episodes) == 1
    assert caplog.text.count("no display") == 1
    assert len(enjoy(parse_config(identity, resolve_family, ENJOY)).episodes) == 10
    assert "no display: playing 10 episodes without pictures; --max_num_episodes=N for more" in caplog.text


def test_an_exception_of_the_env_is_not_treated_as_the_end(saved_experiment, registry):
    class Failing(Undrawable):
        def step(self, action):
            raise ZeroDivisionError

    registry("failing", lambda full_env_name, cfg, env_config: Failing())
    with pytest.raises(ZeroDivisionError):
        evaluate(saved_experiment("failing"), "--max_num_episodes=1")


def test_a_wrong_env_is_one_line_that_names_the_env_of_the_training(saved_experiment, registry, capsys):
    def make_refusing(full_env_name, cfg, env_config, render_mode=None):
        raise TypeError("unexpected None")

    registry("refusing", make_refusing)
    identity = saved_experiment(CARTPOLE)
    for env, words in {
        "gym_Acrobot-v1": "does not fit gym_Acrobot-v1",
        "refusing": "unexpected None",
    }.items():
        assert program.main([*identity, "--no_render", f"--env={env}"]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith(f"error: experiment tiny was trained on {CARTPOLE}, and ")
        assert words in error and "leave --env out" in error and len(error) < 500
        assert ("its action space is Discrete(3), not Discrete(2)" in error) == (env == "gym_Acrobot-v1")
    assert program.main([*identity, "--no_render", "--env=gym_Acrobot-v1", "--policy_index=4"]) == 2
    assert "checkpoint latest: there is none; " in capsys.readouterr().err


def test_another_env_with_the_same_spaces_is_played_with_a_warning(
    saved_experiment, registry, caplog, monkeypatch
):
    monkeypatch.setattr("sample_factory.runtime.log.log.propagate", True)
    registry("longer_cartpole", lambda full_env_name, cfg, env_config: gym.make("CartPole-v1"))
    result = evaluate(saved_experiment(CARTPOLE), "--env=longer_cartpole", "--max_num_episodes=1")
    assert len(result.episodes) == 1
    assert f"was trained on {CARTPOLE}, and plays in longer_cartpole now" in caplog.text


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--policy_index", "0", "0"], "--policy_index has 2 values"),
        (["--checkpoint", "best", "latest"], "--checkpoint has 2 values"),
        (["--policy_index"], "--policy_index has 0 values"),
        (["--load_checkpoint_kind=best"], "checkpoint best"),
        (["--env=dom_basic"], "dom_basic"),
        (["--save_video", "--video_name=film.avi"], "--video_name=film.avi"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(saved_experiment, refused_by, flags, words):
    assert words in refused_by(program.main, *saved_experiment(CARTPOLE), "--no_render", *flags, may_log=True)


def test_the_results_are_written_as_json(saved_experiment, tmp_path, capsys):
    file = tmp_path / "results.json"
    identity = saved_experiment(CARTPOLE)
    assert program.main([*identity, "--no_render", "--max_num_episodes=3", f"--json={file}"]) == 0
    (figures,) = json.loads(file.read_text())["evaluations"]
    rewards = [episode["reward"] for episode in figures["episodes"]]
    assert len(rewards) == figures["num_episodes"] == 3 and not figures["is_partial"]
    assert figures["statistics"]["reward"]["mean"] == pytest.approx(np.mean(rewards))
    assert program.main([*identity, "--no_render", f"--json={tmp_path}"]) == 2
    assert "is a folder; it should be the name of a file" in capsys.readouterr().err
