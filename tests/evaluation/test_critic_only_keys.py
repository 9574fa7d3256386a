"""Policies that were trained with --critic_only_keys act without these observations."""

import numpy as np
import pytest

import sample_factory
from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.config.parsing import parse_config
from sample_factory.enjoy import enjoy
from sample_factory.envs.env_registry import resolve_family
from sample_factory.evaluation.measurement import plan_evaluation
from sample_factory.hub import ENJOY
from tests.counting import make_plan
from tests.evaluation.test_eval import evaluate
from tests.guided import Guided, Unguided

FLAGS = ["--critic_only_keys=next/card", "--use_rnn=True", "--hidden_size=8", "--encoder_mlp_layers", "8"]


@pytest.fixture
def identity(registry, saved_experiment):
    registry("guided", lambda name: Guided())
    registry("unguided", lambda name: Unguided())
    return saved_experiment("guided", *FLAGS)


def test_a_policy_acts_with_and_without_the_keys(identity, tmp_path):
    spaces = {"observation_space": Guided.observation_space, "action_space": Guided.action_space}
    guided, other = (
        sample_factory.load_policy(tmp_path / "tiny", deterministic=True, **spaces) for _ in range(2)
    )
    assert other.observation_space == Unguided.observation_space
    env = Guided()
    observation, _ = env.reset(seed=1)
    for _ in range(4):
        action = guided.act(observation)
        assert action == other.act({"card": observation["card"]})
        observation, *_ = env.step(action)
    other.reset(num_envs=3)
    assert other.act({"card": np.stack([observation["card"]] * 3)}).shape == (3,)
    with pytest.raises(ValueError, match="card.*has shape"):
        guided.act({"card": np.zeros(3, np.float32)})


@pytest.mark.parametrize("env", ["guided", "unguided"])
def test_the_env_that_is_played_need_not_have_the_keys(identity, env):
    own = [*identity, f"--env={env}"]
    (result,) = evaluate(own, "--eval_episodes=4")
    assert [episode.length for episode in result.episodes] == [5] * 4
    config = parse_config([*own, "--no_render", "--max_num_episodes=2"], resolve_family, ENJOY)
    assert len(enjoy(config).episodes) == 2


def test_an_evaluation_during_training_may_use_an_env_without_the_keys(identity):
    flags = ["--eval_every_env_steps=9", "--eval_flags=--env=unguided", "--num_envs_per_worker=2"]
    config = parse_config([*identity, "--env=guided", *flags], resolve_family)
    training = make_plan(config, Guided(), resolve_family("guided"), state_size=16)
    plan = plan_evaluation(training)
    assert plan.session.state_size == 8 and plan.session.envs.cfg.env == "unguided"
    assert not plan.session.acting.policies[0].has_critic


def test_weights_of_another_actor_are_refused(identity):
    with pytest.raises(CheckpointError, match="does not fit"):
        evaluate(identity, "--eval_episodes=4", "--rnn_num_layers=2")
