"""The command `imitate`, with scripted players whose actions are known, and with games from data sets."""

import gymnasium as gym
import minari
import numpy as np
import pytest
from minari.data_collector.episode_buffer import EpisodeBuffer

from sample_factory.__main__ import command
from sample_factory.config.flags import ConfigError
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.envs import env_registry
from sample_factory.envs.abilities import ScriptedPlayers
from sample_factory.envs.env_registry import register_env
from sample_factory.evaluation.load_policy import load_policy
from sample_factory.imitation import check
from sample_factory.imitation.command import COMMAND
from sample_factory.imitation.games import Episode, load_games, save_games
from sample_factory.imitation.imitate import Cloner, Recording, discounted_returns, imitate, join, split
from sample_factory.launch.command_line import parse
from sample_factory.spaces.actions import action_layout
from sample_factory.spaces.agent_kinds import KindSpaces

NUM_CARDS = 4
ROUNDS = 6
SMALL = [
    "--use_rnn=False",
    "--encoder_mlp_layers=32",
    "--learning_rate=0.01",
    "--batch_size=64",
    "--learner_main_loop_num_cores=1",
    "--device=cpu",
    "--seed=1",
    "--imitate_samples=600",
]


class Follow(ScriptedPlayers):
    """Two agents see a card each, which is forbidden; a reward of 1 for the next one.

    The player "next" puts down the next card, "last" the card before.
    """

    num_agents = 2
    action_space = gym.spaces.Discrete(NUM_CARDS)
    observation_space = gym.spaces.Dict(
        {
            "card": gym.spaces.Box(0, 1, (NUM_CARDS,), np.float32),
            "action_mask": gym.spaces.Box(0, 1, (NUM_CARDS,), np.int8),
        }
    )

    def reset(self, *, seed=None, options=None):
        self._rng = np.random.default_rng(seed)
        self._round = 0
        return self._draw(), [{}, {}]

    def step(self, actions):
        assert all(action != card for action, card in zip(actions, self._cards))
        rewards = [float((action - card) % NUM_CARDS == 1) for action, card in zip(actions, self._cards)]
        self._round = (self._round + 1) % ROUNDS
        return self._draw(), rewards, [self._round == 0] * 2, [False] * 2, [{}, {}]

    def _draw(self):
        self._cards = self._rng.integers(NUM_CARDS, size=2)
        one_hot = np.eye(NUM_CARDS)
        return [
            {"card": np.float32(one_hot[card]), "action_mask": np.int8(1 - one_hot[card])}
            for card in self._cards
        ]

    def scripted_players(self):
        return "next", "last"

    def scripted_action(self, player, agent):
        return int(self._cards[agent] + {"next": 1, "last": -1}[player]) % NUM_CARDS

    def render(self):
        return None

    def close(self):
        pass


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    monkeypatch.setattr(env_registry, "_FAMILIES", dict(env_registry._FAMILIES))
    register_env("follow", lambda full_env_name: Follow())


@pytest.fixture
def run(tmp_path):
    """Returns run(*flags), which imitates in experiment "clone"."""

    def imitated(*flags):
        identity = ["--env=follow", "--experiment=clone", f"--train_dir={tmp_path}"]
        config = parse(COMMAND, [*identity, *SMALL, *flags])
        check(config)
        return imitate(config)

    return imitated


def next_cards(tmp_path):
    """Returns the most likely action of the saved policy for each card."""
    spaces = {"observation_space": Follow.observation_space, "action_space": Follow.action_space}
    policy = load_policy("clone", tmp_path, deterministic=True, **spaces)
    policy.reset(num_envs=NUM_CARDS)
    cards = np.eye(NUM_CARDS, dtype=np.float32)
    return policy.act({"card": cards, "action_mask": np.int8(1 - cards)}).tolist()


def test_the_saved_policy_plays_like_its_teacher(run, tmp_path):
    score = run("--teachers=last")
    assert score.accuracy == 1.0 and score.log_prob > -0.1
    assert next_cards(tmp_path) == [3, 0, 1, 2]


def test_of_two_teachers_both_are_imitated(run):
    score = run("--imitate_epochs=20")
    assert 0.3 < score.accuracy < 0.7
    assert score.log_prob == pytest.approx(-np.log(2), abs=0.1)


def test_a_recurrent_policy_learns_from_whole_chunks(run):
    score = run(
        "--teachers=next",
        "--use_rnn=True",
        "--hidden_size=16",
        "--recurrence=3",
        "--rollout=6",
        "--batch_size=60",
    )
    assert score.accuracy == 1.0


def test_games_are_saved_and_imitated_from_the_data_set(run, tmp_path):
    first = run("--teachers=next", f"--save_games={tmp_path / 'games'}")
    second = run(f"--games={tmp_path / 'games'}", "--restart_behavior=overwrite")
    assert second == first


def test_games_that_others_recorded_with_minari_are_imitated(run, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    cards = np.random.default_rng(0).integers(NUM_CARDS, size=(40, ROUNDS + 1))
    one_hot = np.eye(NUM_CARDS)[cards]
    buffers = [
        EpisodeBuffer(
            observations={"card": rows, "action_mask": np.int8(1 - rows), "more": rows},
            actions=(own[:-1] + 1) % NUM_CARDS + 7,
            rewards=np.ones(ROUNDS),
            terminations=np.arange(ROUNDS) == ROUNDS - 1,
            truncations=np.zeros(ROUNDS, bool),
        )
        for rows, own in zip(one_hot, cards)
    ]
    numbers = gym.spaces.Box(0, 1, (NUM_CARDS,), np.float64)
    observed = {"card": numbers, "action_mask": gym.spaces.Box(0, 1, (NUM_CARDS,), np.int8), "more": numbers}
    minari.create_dataset_from_buffers(
        "cards-v0",
        buffers,
        observation_space=gym.spaces.Dict(observed),
        action_space=gym.spaces.Discrete(NUM_CARDS, start=7),
        data_format="arrow",
        author="tests",
        author_email="tests",
        code_permalink="tests",
        algorithm_name="tests",
        description="tests",
    )
    assert run("--games=cards-v0").accuracy == 1.0
    assert next_cards(tmp_path) == [1, 2, 3, 0]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--teachers=best"], "--teachers"),
        (["--games=nowhere"], "--games=nowhere"),
        (["--save_games=nowhere/games"], "--save_games=nowhere/games"),
        (["--imitate_epochs=0"], "--imitate_epochs"),
        (["--env=gym_CartPole-v1"], "--games=FOLDER"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, refused_by, flags, words):
    identity = ["--env=follow", "--experiment=clone", f"--train_dir={tmp_path}"]
    assert words in refused_by(command("imitate"), *identity, *SMALL, *flags, may_log=True)
    assert not (tmp_path / "clone").exists()


def test_without_a_checkpoint_there_is_no_folder_and_the_experiment_before_it_is_back(
    run, tmp_path, monkeypatch
):
    def interrupt(*_):
        raise KeyboardInterrupt

    clone = tmp_path / "clone"
    with monkeypatch.context() as patched:
        patched.setattr(Cloner, "fit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run("--teachers=next")
    assert not clone.exists()
    run("--teachers=next", "--imitate_epochs=1")
    files = sorted(clone.rglob("*.*"))
    monkeypatch.setattr(Cloner, "fit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run("--teachers=last", "--restart_behavior=restart")
    assert sorted(clone.rglob("*.*")) == files and list(tmp_path.iterdir()) == [clone]


def test_an_experiment_with_checkpoints_is_not_touched(run, tmp_path):
    run("--teachers=next", "--imitate_epochs=1")
    with pytest.raises(Exception, match="clone has checkpoints already"):
        run("--teachers=last")


@pytest.fixture
def save(tmp_path):
    """Returns save(cards, mask, actions), which writes 20 episodes of 3 steps as data set "games"."""

    def saved(observations, space, action, actions=None):
        arrays = {key: np.stack([value] * 4) for key, value in observations.items()}
        spaces = KindSpaces(space, actions or Follow.action_space)
        rows = np.full((3, action_layout(spaces.action).num_action_values), action, np.float32)
        episode = Episode(arrays, rows, np.zeros(3), *np.zeros((2, 3), bool))
        save_games(str(tmp_path / "games"), spaces, [episode] * 20, {})
        return f"--games={tmp_path / 'games'}"

    return saved


FIRST_CARD = {"card": np.eye(NUM_CARDS, dtype=np.float32)[0]}
ALL_ALLOWED = {"action_mask": np.ones(NUM_CARDS, np.int8)}


CARD_ONLY = gym.spaces.Dict(card=Follow.observation_space["card"])
FREE = {**FIRST_CARD, **ALL_ALLOWED}
FORBIDDEN = {**FIRST_CARD, "action_mask": np.int8(FIRST_CARD["card"] == 0)}


@pytest.mark.parametrize(
    ("observations", "space", "action", "actions", "message"),
    [
        (FIRST_CARD, CARD_ONLY, 1, None, r"it has card \(4,\) float32 -> .*; it should have action_mask"),
        (FREE, None, 1, gym.spaces.Discrete(9), r"-> Discrete\(9\); it should have .* -> Discrete\(4\)"),
        (FREE, None, NUM_CARDS, None, "less than .4,.; there are 4 to 4"),
        (FORBIDDEN, None, 0, None, "forbidden by its action mask"),
    ],
)
def test_games_that_do_not_fit_the_env_are_refused(run, save, observations, space, action, actions, message):
    with pytest.raises(ConfigError, match=message):
        run(save(observations, space or Follow.observation_space, action, actions))


OPEN = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)


@pytest.mark.parametrize("found", [gym.spaces.Box(0, 1, (4,)), gym.spaces.Box(0, 255, (4,), np.uint8)])
@pytest.mark.parametrize("own", [gym.spaces.Box(0, 2, (4,)), gym.spaces.Box(0, 200, (4,), np.uint8)])
@pytest.mark.parametrize("part", ["observation", "action"])
def test_numbers_that_mean_something_else_in_the_env_are_refused(save, found, own, part):
    if part == "observation":
        games = save({"card": np.ones(4, found.dtype)}, gym.spaces.Dict(card=found), 0)
        spaces = KindSpaces(gym.spaces.Dict(card=own), Follow.action_space)
    else:
        games = save({"card": np.ones(4, np.float32)}, gym.spaces.Dict(card=OPEN), 0, found)
        spaces = KindSpaces(gym.spaces.Dict(card=OPEN), own)
    with pytest.raises(ConfigError, match="does not fit the env"):
        next(load_games(games.partition("=")[2], spaces))


def test_bounds_that_one_side_leaves_open_fit(save):
    closed = gym.spaces.Box(-1, 1, (4,), np.float32)
    games = save({"card": np.ones(4, np.float32)}, gym.spaces.Dict(card=OPEN), 0)
    spaces = KindSpaces(gym.spaces.Dict(card=closed), Follow.action_space)
    assert len(list(load_games(games.partition("=")[2], spaces))) == 20


@pytest.mark.parametrize("part", ["card", "actions", "rewards"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_refused_with_its_place(part, value):
    good, broken = (
        Episode({"card": np.zeros((4, 1))}, np.zeros((3, 1)), np.zeros(3), *np.zeros((2, 3), bool))
        for _ in range(2)
    )
    {**broken.observations, "actions": broken.actions, "rewards": broken.rewards}[part][-1] = value
    with pytest.raises(ConfigError, match=f"in episode 1, in its {part}"):
        join([good, broken])


def recording(lengths):
    n = sum(lengths)
    episodes = np.repeat(np.arange(len(lengths)), lengths)
    rewards = np.random.default_rng(0).normal(size=n).astype(np.float32)
    return Recording({"card": np.zeros((n, 1), np.float32)}, np.zeros((n, 1), np.float32), rewards, episodes)


def test_chunks_lie_within_episodes_and_no_episode_is_in_both_parts():
    games = recording([7, 3, 2, 12, 5, 6])
    parts = split(games, 3, 0.3, np.random.default_rng(1))
    for part in parts:
        assert part.shape[1] == 3 and (np.diff(part) == 1).all()
        assert (games.episodes[part] == games.episodes[part[:, :1]]).all()
    rows = [part.ravel() for part in parts]
    episodes = [set(games.episodes[of_part]) for of_part in rows]
    assert not episodes[0] & episodes[1] and episodes[0] | episodes[1] == {0, 1, 3, 4, 5}
    assert sum(map(len, rows)) == len(set(np.concatenate(rows))) == 6 + 3 + 12 + 3 + 6


def test_returns_are_the_discounted_rewards_of_training_to_the_end_of_the_episode():
    games = recording([3, 2])
    flags = LearningFlags(gamma=0.9, reward_scale=2.0, reward_clip=1.0)
    first, second, third, fourth, fifth = np.clip(2 * games.rewards, -1, 1)
    expected = [
        first + 0.9 * (second + 0.9 * third),
        second + 0.9 * third,
        third,
        fourth + 0.9 * fifth,
        fifth,
    ]
    np.testing.assert_allclose(discounted_returns(games, flags), expected, rtol=1e-5)
