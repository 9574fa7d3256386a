"""Generals in whole runs: a clone of a bot is trained by self-play, filmed, and plays against the bot."""

from sample_factory.__main__ import command
from sample_factory.enjoy import main as enjoy
from tests.system.running import SMALL, scalars, train

ENV = "generals_4x4"


def test_a_clone_trains_against_itself_and_its_past_and_meets_the_bot(tmp_path, capsys):
    place = [f"--env={ENV}", f"--train_dir={tmp_path}", "--seed=1", "--generals_time_limit=40"]
    games = ["--imitate_samples=400", "--imitate_epochs=1", "--teachers=expander"]
    assert command("imitate")([*place, *SMALL, *games, "--experiment=clone"]) == 0
    selfplay = [
        "--experiment=duel",
        "--transfer_from=clone",
        "--serial_mode=True",
        "--async_rl=False",
        "--selfplay_past_share=0.5",
        "--selfplay_snapshot_env_steps=200",
        "--train_for_env_steps=1000",
        "--ppo_epochs=1",
    ]
    assert train(tmp_path, *place, *SMALL, *selfplay)["train_step"] > 0
    assert "num_opponents" in " ".join(scalars(tmp_path / "duel"))  # it met its past
    played = [f"--train_dir={tmp_path}", "--experiment=duel", "--seed=1"]
    assert (
        command("match")([*played, "--opponent_player=random", "--num_matches=2", "--serial_mode=True"]) == 0
    )
    assert "2 matches" in capsys.readouterr().out
    assert enjoy([*played, "--no_render", "--save_video", "--max_num_frames=10"]) == 0
    assert list((tmp_path / "duel").glob("*.mp4"))
