import gymnasium as gym
import numpy as np
import pytest

from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.evaluation.policy import load_trained_policy
from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.spaces.observations import observation_layout


@pytest.mark.parametrize("env_name", ["gym_CartPole-v1", "gym_Taxi-v4", "gym_Blackjack-v1"])
def test_a_policy_is_loaded_with_the_spaces_of_the_env_or_with_the_stored_ones(saved_experiment, env_name):
    config = parse_config(saved_experiment(env_name), resolve_family, evaluation=True)
    with gym.make(env_name.removeprefix("gym_")) as env:
        layout = observation_layout(env.observation_space)
        flat = layout.flatten(env.observation_space.sample())
        batch = {key: np.stack([value] * 5) for key, value in flat.items()}
        for space in (env.observation_space, layout.space):
            policy = load_trained_policy(config, PolicyChoice(0, "latest"), space, env.action_space)
            actions, rnn_state = policy.act(batch, policy.first_rnn_state(5))
            assert actions.shape == (5, 1) and rnn_state.shape == (5, 0)
