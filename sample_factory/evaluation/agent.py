"""A trained policy for your own code: it acts in an env with the observations and actions of its author."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.evaluation.policy import TrainedPolicy, load_policy
from sample_factory.evaluation.policy_choice import choices_of_agents
from sample_factory.spaces.actions import action_decoder
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import observation_layout


class Agent:
    """Acts for one agent of an env. With an RNN, it remembers the observations since the last `reset`."""

    def __init__(
        self,
        policy: TrainedPolicy,
        flatten: Callable[[Any], Mapping[str, np.ndarray]],
        decode: Callable[[np.ndarray], Any],
    ):
        """flatten: from an observation of the env to arrays by key. decode: from a row to an action."""
        self._policy = policy
        self._flatten = flatten
        self._decode = decode
        self.reset()

    def reset(self) -> None:
        """Forgets the past; to be called when an episode begins."""
        self._rnn_state = self._policy.first_rnn_state(1)

    def act(self, observation: Any) -> Any:
        """Returns the action, of the env's action space, for an observation of its observation space."""
        batch = {key: np.asarray(value)[None] for key, value in self._flatten(observation).items()}
        rows, self._rnn_state = self._policy.act(batch, self._rnn_state)
        return self._decode(rows[0])


def load_agent(
    flags: Sequence[str], observation_space: gym.Space[Any], action_space: gym.Space[Any]
) -> Agent:
    """Loads the policy of an experiment.

    flags: as for `enjoy`, e.g. ["--experiment=battle", "--checkpoint=best", "--eval_deterministic=True"].
    observation_space, action_space: those of the agent in the env of the training.

    Raises ConfigError when there is no such checkpoint, CheckpointError when it cannot be used.
    """
    config = parse_config(flags, resolve_family, evaluation=True)
    layout = observation_layout(observation_space)
    (choice,) = choices_of_agents(config, AgentKinds.one(layout.space, action_space, num_agents=1))
    policy = load_policy(config, choice, observation_space, action_space)
    return Agent(policy, layout.flatten, action_decoder(action_space))
