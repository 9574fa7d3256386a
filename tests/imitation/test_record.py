"""The command `record`, whose data sets are read with Minari's own loader."""

import subprocess

import av
import gymnasium as gym
import minari
import numpy as np
import pytest

from sample_factory.__main__ import command
from sample_factory.config.command import PLAYS
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig, ObservationRows
from sample_factory.imitation.games import MAX_STEPS, Episode, NotWritten, load_games, save_games
from sample_factory.imitation.record import rgb, write_video
from sample_factory.imitation.recorded_env import RecordedEnv
from sample_factory.spaces.agent_kinds import KindSpaces
from sample_factory.spaces.observations import image_layout
from tests.evaluation.conftest import SMALL, identity_of
from tests.evaluation.playable_envs import UnevenAgents
from tests.evaluation.uneven_envs import DiesOnce, Interrupts
from tests.mounts import mount_tmpfs

SERIAL = ["--serial_mode=True", "--num_workers=2", "--num_envs_per_worker=2", "--seed=1", "--device=cpu"]


@pytest.fixture
def recorded(tmp_path):
    """Returns recorded(*flags), which runs the command and returns the data set."""

    def run(*flags, out=tmp_path / "games", code=0):
        assert command("record")([*SERIAL, *flags, f"--out={out}"]) == code
        assert sorted(path.name for path in out.iterdir() if path.suffix != ".mp4") == ["data"]
        return minari.MinariDataset(out / "data")

    return run


class Room(gym.Env):
    """The observation is noise; what it draws counts the steps of all episodes."""

    observation_space = gym.spaces.Box(0, 255, (40, 48, 3), np.uint8)
    action_space = gym.spaces.Discrete(3)
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self._drawn = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        return self._look(), {}

    def step(self, action):
        self._step += 1
        self._drawn += 1
        return self._look(), float(self.np_random.normal()), self._step == 4, False, {}

    def render(self):
        return np.full((64, 80, 3), self._drawn, np.int64)  # as some envs draw

    def _look(self):
        return self.np_random.integers(256, size=(40, 48, 3), dtype=np.uint8)


def seeds(dataset):
    return [found["seed"] for found in dataset.storage.get_episode_metadata(dataset.episode_indices)]


@pytest.mark.parametrize("env_name", ["gym_CartPole-v1", "doom_basic"])
def test_recorded_actions_and_seeds_give_the_recorded_games(saved_experiment, recorded, tmp_path, env_name):
    identity = saved_experiment(env_name, *SMALL)
    dataset = recorded(*identity, "--episodes=6")
    config = parse_config(identity, resolve_family, PLAYS)
    assert dataset.total_episodes == 6 and dataset.total_steps == sum(map(len, dataset))
    assert len(set(seeds(dataset))) == 6
    env = make_adapted_env(resolve_family(env_name), config.namespace(), EnvConfig(0, 0, 0))
    rows = ObservationRows.allocate(env.kinds)
    games = list(load_games(str(tmp_path / "games"), env.kinds.spaces[0]))
    for game, seed in zip(games, seeds(dataset)):
        env.reset(seed, rows)
        for t, action in enumerate(game.actions):
            for key, seen in game.observations.items():
                np.testing.assert_array_equal(rows.view(0)[key], seen[t])
            result = env.step(action[None], rows)
            assert result.rewards[0] == game.rewards[t]
            assert (result.terminated[0], result.truncated[0]) == (game.terminated[t], game.truncated[t])
        assert game.terminated[-1] or game.truncated[-1]
    env.close()


def test_minari_samples_episodes_with_what_the_policy_saw_and_what_was_drawn(
    registry, choosing, recorded, tmp_path
):
    registry("room", lambda full_env_name, render_mode=None: Room(render_mode))
    checkpoints = choosing("room", 2)
    checkpoints.save({**checkpoints.load(), "train_step": 7}, 7, 28)
    dataset = recorded(*identity_of(checkpoints), "--episodes=5", "--screens=True", "--video_episodes=2")
    assert dataset.observation_space == Room.observation_space and dataset.action_space == Room.action_space
    for episode in dataset.sample_episodes(5):
        assert episode.observations.shape == (5, 40, 48, 3) and episode.observations.dtype == np.uint8
        assert episode.actions.tolist() == [2] * 4
        assert episode.infos["screen"].shape == (5, 64, 80, 3)
        first = int(episode.infos["screen"][0, 0, 0, 0])
        assert episode.infos["screen"][:, 0, 0, 0].tolist() == [first + t for t in (0, 1, 2, 3, 4)]
    firsts = sorted(int(episode.infos["screen"][0, 0, 0, 0]) for episode in dataset)
    assert firsts == [0, 0, 0, 0, 4], "env 0 plays two"
    with av.open(str(tmp_path / "games" / "video.mp4")) as video:
        assert sum(1 for _ in video.decode(video=0)) == 2 * 4, "the first two episodes"
    about = list(dataset.storage.get_episode_metadata(range(5)))
    assert [found["id"] for found in about] == list(range(5))
    assert {found["policy_version"] for found in about} == {7}
    assert sorted((found["env"], found["agent"]) for found in about) == [
        (0, 0),
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 0),
    ]


@pytest.mark.parametrize(
    "shape", [(6, 8), (6, 8, 3), (3, 6, 8), (4, 6, 8), (2, 3, 6, 8), (2, 6, 8, 3), (1, 6, 8)]
)
def test_of_an_image_observation_the_video_shows_the_newest_image(shape):
    image = np.zeros(shape, np.uint8)
    layout = image_layout(shape)
    newest = image[-1] if layout.is_stack else image
    channels_last = newest if layout.is_hwc or layout.is_plane else np.moveaxis(newest, 0, -1)
    channels_last[2, 5] = 9
    picture = rgb(image)
    assert picture.shape == (6, 8, 3)
    assert np.argwhere(picture).tolist() == [[2, 5, 0], [2, 5, 1], [2, 5, 2]]


@pytest.mark.parametrize(("white", "dtype"), [(255, np.uint8), (255, np.float32), (1, np.float32)])
def test_of_images_of_any_dtype_the_video_has_the_brightness(tmp_path, white, dtype):
    images = np.full((5, 120, 160, 3), white, dtype)
    images[:, :, :80] = 0
    spaces = KindSpaces(
        gym.spaces.Dict(obs=gym.spaces.Box(0, white, images.shape[1:], dtype)), Room.action_space
    )
    steps = np.zeros(4)
    ends = np.arange(4) == 3
    episode = Episode({"obs": images}, np.zeros((4, 1), np.float32), steps, ends, ends & False)
    save_games(str(tmp_path / "games"), spaces, [episode], {})
    path = write_video(tmp_path / "games", 1, 10)
    with av.open(str(path)) as video:
        pictures = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
    assert len(pictures) == 4
    width = pictures[0].shape[1]
    assert pictures[0][:, width * 5 // 8 :].mean() > 245 and pictures[0][:, : width * 3 // 8].mean() < 10


def test_the_longest_episodes_are_read_whole_by_minari_and_longer_ones_are_refused(tmp_path):
    spaces = KindSpaces(
        gym.spaces.Dict(obs=gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)), gym.spaces.Discrete(2)
    )

    def episode(length, first):
        steps = np.arange(first, first + length + 1, dtype=np.float32)[:, None]
        ends = np.arange(length) == length - 1
        return Episode({"obs": steps}, steps[:-1] % 2, steps[:-1, 0].astype(float), ends, ends & False)

    saved = [episode(MAX_STEPS, 0), episode(10, 1_000_000)]
    save_games(str(tmp_path / "games"), spaces, saved, {})
    found = minari.MinariDataset(tmp_path / "games" / "data")
    for back, expected in zip(found, saved, strict=True):
        np.testing.assert_array_equal(back.observations, expected.observations["obs"])
        np.testing.assert_array_equal(back.terminations, expected.terminated)
    for back, expected in zip(load_games(str(tmp_path / "games"), spaces), saved, strict=True):
        np.testing.assert_array_equal(back.rewards, expected.rewards)
    with pytest.raises(NotWritten, match=r"an episode has 32,768 steps, and Minari reads at most 32,767"):
        save_games(str(tmp_path / "longer"), spaces, [episode(MAX_STEPS + 1, 0)], {})


ACTIONS = gym.spaces.Dict(
    z=gym.spaces.Discrete(3, start=1),
    m=gym.spaces.Tuple((gym.spaces.MultiBinary((2, 2)), gym.spaces.Box(0, 9, (2,), np.int32))),
    a=gym.spaces.Discrete(3),
)


def test_actions_with_parts_are_read_by_their_keys(tmp_path):
    observations = gym.spaces.Dict(obs=gym.spaces.Box(-1, 1, (2,)))
    rows = np.float32([[0, 1, 0, 0, 1, 3, 9, 2], [2, 0, 1, 1, 1, 0, 4, 0]])
    ends = np.array([False, True])
    episode = Episode({"obs": np.zeros((3, 2), np.float32)}, rows, np.zeros(2), ends, ends & False)
    folder = str(tmp_path / "games")
    save_games(folder, KindSpaces(observations, ACTIONS), [episode], {})
    (found,) = minari.MinariDataset(tmp_path / "games" / "data")
    assert found.actions["z"].tolist() == [1, 3] and found.actions["a"].tolist() == [2, 0]
    assert found.actions["m"][0].tolist() == [[[1, 0], [0, 1]], [[0, 1], [1, 1]]]
    (loaded,) = load_games(folder, KindSpaces(observations, ACTIONS))
    np.testing.assert_array_equal(loaded.actions, rows)
    in_other_order = gym.spaces.Dict({key: ACTIONS[key] for key in ("a", "m", "z")})  # sorted, as in the file
    (loaded,) = load_games(folder, KindSpaces(observations, in_other_order))
    np.testing.assert_array_equal(loaded.actions, rows[:, [7, *range(1, 7), 0]])
    renamed = gym.spaces.Dict(y=ACTIONS["z"], m=ACTIONS["m"], a=ACTIONS["a"])
    with pytest.raises(ConfigError, match="does not fit the env"):
        next(load_games(folder, KindSpaces(observations, renamed)))


def test_episodes_of_a_process_that_died_are_recorded_once(registry, choosing, tmp_path):
    marker = tmp_path / "has_died"
    registry("uneven", lambda full_env_name, cfg, env_config: DiesOnce(env_config.env_id, str(marker)))
    flags = [*identity_of(choosing("uneven", 0)), *SERIAL, "--serial_mode=False", "--num_workers=1"]
    out = tmp_path / "games-v2"
    assert command("record")([*flags, "--episodes=8", f"--out={out}"]) == 0
    assert marker.exists()
    dataset = minari.MinariDataset(out / "data")
    assert dataset.spec.dataset_id == "games-v2" and sorted(map(len, dataset)) == [1] * 4 + [20] * 4


def test_after_ctrl_c_the_data_set_has_the_episodes_so_far(registry, choosing, recorded):
    registry("uneven", lambda full_env_name, cfg, env_config: Interrupts(env_config.env_id))
    dataset = recorded(*identity_of(choosing("uneven", 0)), "--num_workers=1", "--episodes=100")
    assert 0 < dataset.total_episodes < 100
    assert all(episode.terminations[-1] for episode in dataset)


def test_on_a_full_disk_the_data_set_has_the_episodes_so_far(choosing, recorded, tmp_path, capfd):
    disk = tmp_path / "disk"
    mount_tmpfs(disk, "size=400k")
    try:
        flags = [*identity_of(choosing("gym_CartPole-v1", 0)), "--episodes=200"]
        dataset = recorded(*flags, out=disk / "games", code=1)
        assert 2 <= dataset.total_episodes < 100
        assert all(episode.terminations[-1] for episode in dataset)
        assert f"cannot write to {disk / 'games'}: No space left on device" in capfd.readouterr().err
        del dataset
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_rewards_between_an_agents_actions_belong_to_its_last_action():
    episodes = []
    env = RecordedEnv(adapt(UnevenAgents()), lambda agent, episode: episodes.append((agent, episode)))
    rows = ObservationRows.allocate(env.kinds)
    env.reset(3, rows)
    for number in range(6):
        env.step(np.full((2, 1), number, np.float32), rows)
    of_agent = [[episode for agent, episode in episodes if agent == wanted] for wanted in (0, 1)]
    assert [episode.actions.ravel().tolist() for episode in of_agent[0]] == [[0, 1], [2, 3], [4, 5]]
    assert [episode.actions.ravel().tolist() for episode in of_agent[1]] == [[0, 2], [3, 5]]
    assert [episode.rewards.tolist() for episode in of_agent[1]] == [[2.0, 1.0]] * 2
    assert [episode.seed for episode in of_agent[0]] == [3, None, None], "with several agents, no new seeds"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "--out=FOLDER is missing"),
        (["--out=."], "--out=. should be a new folder"),
        (["--out=nowhere/games"], "--out=nowhere/games"),
        (["--out=new", "--checkpoint", "latest", "best"], "2 checkpoints are chosen"),
        (
            ["--out=new", "--checkpoint=best"],
            "checkpoint best: there is none beyond --save_best_after=100000",
        ),
    ],
)
def test_bad_input_is_one_line(choosing, flags, words, refused_by):
    line = refused_by(command("record"), *identity_of(choosing("gym_CartPole-v1", 0)), *flags)
    assert line.startswith(f"error: {words}")
