"""Whole runs with --centralized_critic."""

import pytest

from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import register_env, resolve_family
from sample_factory.launch.shared_imports import shared_imports
from sample_factory.models.towers import OF_CRITIC
from sample_factory.plotting.metrics import read_policies
from sample_factory.training.run import train_config
from tests.counting import CountingEnv
from tests.evaluation.test_eval import evaluate
from tests.mixed import MixedCounting
from tests.system.running import SMALL, newest_state

FLAGS = [*SMALL, "--serial_mode=True", "--centralized_critic=True", "--use_rnn=True", "--ppo_epochs=1"]


def train(train_dir, experiment, *flags):
    register_env("crew", lambda *args, **kwargs: CountingEnv(num_agents=3, first_sleeper=2))
    register_env("mixed_", lambda *args, **kwargs: MixedCounting())
    argv = [f"--train_dir={train_dir}", f"--experiment={experiment}", *FLAGS, *flags]
    config = parse_config(argv, resolve_family)
    with shared_imports(config):  # evaluations are forked
        assert train_config(config).status == "done"
    return newest_state(train_dir / experiment)


def test_a_run_resumes_and_its_actor_plays_alone(tmp_path):
    flags = ["--env=crew"]
    first = train(tmp_path, "a", *flags, "--train_for_env_steps=600")
    resumed = train(tmp_path, "a", *flags, "--train_for_env_steps=1800")
    assert resumed["train_step"] > first["train_step"]
    widths = [first["model"][f"towers.{i}.encoder.encoders.0.layers.0.weight"].shape[1] for i in range(2)]
    assert widths == [4, 4 + 2 * 4 + 2], "the critic gets its own observation, two others and who is there"
    identity = [f"--train_dir={tmp_path}", "--experiment=a", "--env=crew"]
    (result,) = evaluate(identity, "--eval_episodes=6")
    assert len(result.episodes) == 6
    # A run with the flags of another one may leave the critic alone.
    of_first = f"--cfg={tmp_path / 'a' / 'cfg.json'}"
    alone = train(tmp_path, "b", of_first, "--centralized_critic=False", *flags, "--train_for_env_steps=200")
    assert not any(name.startswith(OF_CRITIC[0]) for name in alone["model"])


def test_policies_of_several_kinds_of_agents_see_each_other(tmp_path):
    flags = ["--num_policies=2", "--train_for_env_steps=200"]
    train(tmp_path, "a", "--env=mixed_x", *flags)
    watcher, walker = (newest_state(tmp_path / "a", policy)["model"] for policy in range(2))

    def shapes_of_critics(model):
        of_critic = "observation_normalizers.of_critic."
        return {tuple(tensor.shape) for name, tensor in model.items() if name.startswith(of_critic)}

    assert (2 * 4,) in shapes_of_critics(walker), "`where` of two watchers"
    assert (4,) in shapes_of_critics(watcher) and (7,) in shapes_of_critics(watcher)


@pytest.mark.parametrize("of_evaluation", [[], ["--eval_flags=--eval_deterministic=True"]])
def test_evaluations_during_a_training_go_without_the_others(tmp_path, of_evaluation):
    flags = ["--eval_every_env_steps=300", "--eval_episodes=3", *of_evaluation]
    state = train(tmp_path, "a", "--env=crew", "--train_for_env_steps=600", *flags)
    (curves,) = read_policies(tmp_path / "a")[1]
    assert curves["eval/reward"].steps[-1] == state["env_steps"]
