"""A policy that has learned plays against its past, from the files of a real run."""

from sample_factory.config.parsing import parse_config
from sample_factory.enjoy import enjoy
from sample_factory.envs.env_registry import resolve_family
from sample_factory.evaluation.match import run_match
from sample_factory.evaluation.match_command import COMMAND
from sample_factory.hub import ENJOY
from sample_factory.launch.command_line import parse
from tests.system.running import SMALL, train
from tests.system.selfplay_game import ENV, register


def trained(train_dir, name, env_steps):
    """Returns the folder of the checkpoints."""
    flags = ["--serial_mode=True", "--seed=3", f"--train_for_env_steps={env_steps}", *SMALL]
    flags += ["--use_rnn=False", "--learning_rate=3e-3", "--save_milestones_sec=1"]
    train(train_dir, f"--env={ENV}", f"--experiment={name}", *flags)
    return train_dir / name / "checkpoint_p0"


def test_a_trained_policy_beats_an_untrained_one(tmp_path):
    register()
    early, late = trained(tmp_path, "early", 128), trained(tmp_path, "late", 16_000)
    identity = ["--experiment=late", f"--train_dir={tmp_path}", "--serial_mode=True"]

    series = run_match(parse(COMMAND, [*identity, "--opponent_experiment=early", "--num_matches=40"]))
    assert sum(series.tally) == 40 and series.win_rate.low > 0.6
    ours, theirs = series.objectives
    assert ours.mean == -theirs.mean > 2.0

    past = next(early.glob("checkpoint_*.pth"))
    shown = ["--checkpoint", str(past), "latest", "--no_render", "--max_num_episodes=40"]
    evaluation = enjoy(parse_config([*identity, *shown], resolve_family, ENJOY))
    assert evaluation.for_agent(0).reward.mean == -evaluation.for_agent(1).reward.mean < -2.0

    version = min(path.name for path in (late / "milestones").iterdir()).split("_")[1]
    series = run_match(
        parse(COMMAND, [*identity, f"--opponent_checkpoint=milestone:{version}", "--num_matches=3"])
    )
    assert sum(series.tally) == 3
