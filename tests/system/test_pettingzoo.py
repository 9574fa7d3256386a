"""A PettingZoo env in whole runs: trained and played."""

import re

import pytest

from sample_factory.config.parsing import parse_config
from sample_factory.enjoy import main as enjoy
from sample_factory.envs.env_registry import resolve_family
from sample_factory.training.run import train_config
from tests.envs.parallel_envs import Cards
from tests.system.running import SMALL, newest_state, scalars

CARDS = "pettingzoo_tests.envs.parallel_envs:make_cards"


def train(train_dir, *flags):
    """Trains in this process; returns the contents of the checkpoint."""
    flags = [*SMALL, "--ppo_epochs=1", "--batch_size=384", "--seed=1", "--serial_mode=True", *flags]
    argv = [f"--env={CARDS}", f"--train_dir={train_dir}", "--experiment=cards", *flags]
    assert train_config(parse_config(argv, resolve_family)).status != "failed"
    return newest_state(train_dir / "cards")


@pytest.mark.parametrize("use_rnn", ["False", "True"])
def test_acting_and_training_agree_where_agents_die_and_join(tmp_path, use_rnn):
    """On-policy the ratio is 1 at every valid step, and steps of absent agents are not trained on."""
    state = train(tmp_path, "--async_rl=False", "--train_for_env_steps=2000", f"--use_rnn={use_rnn}")
    assert 0.1 < state["samples"] / (384 * state["train_step"]) < 0.8
    assert max(value for _, value in scalars(tmp_path / "cards")["train/ratio_mean"]) < 1e-5


def test_agents_learn_their_game_and_play_it(tmp_path, capsys):
    train(tmp_path, "--use_rnn=False", "--learning_rate=0.01", "--gamma=0.5", "--train_for_env_steps=10000")
    flags = [f"--env={CARDS}", f"--train_dir={tmp_path}", "--experiment=cards", "--seed=1", "--no_render"]
    assert enjoy([*flags, "--max_num_episodes=30"]) == 0
    episodes = re.findall(
        r"^episode +\d+  agent +(\d)  reward +(\S+)  length +(\d+)", capsys.readouterr().out, re.M
    )
    best = (f"{Cards.max_steps}.000", f"{Cards.max_steps - 3}.000")
    assert sum(reward in best for _, reward, _ in episodes) > 20, "at random: about none"
    assert ("2", best[1], str(Cards.max_steps - 3)) in episodes, "its episode begins when it joins"
