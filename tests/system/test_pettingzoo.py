"""A PettingZoo env in whole runs: trained and played."""

import re

import pytest

from sample_factory.enjoy import main as enjoy
from tests.envs.parallel_envs import Cards
from tests.system.running import SMALL, scalars, train

CARDS = "pettingzoo_tests.envs.parallel_envs:make_cards"


FLAGS = [f"--env={CARDS}", "--experiment=cards", *SMALL, "--ppo_epochs=1", "--batch_size=384", "--seed=1"]
FLAGS += ["--serial_mode=True"]


@pytest.mark.parametrize("use_rnn", ["False", "True"])
def test_acting_and_training_agree_where_agents_die_and_join(tmp_path, use_rnn):
    """On-policy the ratio is 1 at every valid step, and steps of absent agents are not trained on."""
    more = ["--async_rl=False", "--train_for_env_steps=2000", f"--use_rnn={use_rnn}"]
    state = train(tmp_path, *FLAGS, *more)
    assert 0.1 < state["samples"] / (384 * state["train_step"]) < 0.8
    assert max(value for _, value in scalars(tmp_path / "cards")["train/ratio_mean"]) < 1e-5


def test_agents_learn_their_game_and_play_it(tmp_path, capsys):
    more = ["--use_rnn=False", "--learning_rate=0.01", "--gamma=0.5", "--train_for_env_steps=10000"]
    train(tmp_path, *FLAGS, *more)
    flags = [f"--env={CARDS}", f"--train_dir={tmp_path}", "--experiment=cards", "--seed=1", "--no_render"]
    assert enjoy([*flags, "--max_num_episodes=30"]) == 0
    episodes = re.findall(
        r"^episode +\d+  agent +(\d)  reward +(\S+)  length +(\d+)", capsys.readouterr().out, re.M
    )
    best = (f"{Cards.max_steps}.000", f"{Cards.max_steps - 3}.000")
    assert sum(reward in best for _, reward, _ in episodes) > 20, "at random: about none"
    assert ("2", best[1], str(Cards.max_steps - 3)) in episodes, "its episode begins when it joins"
