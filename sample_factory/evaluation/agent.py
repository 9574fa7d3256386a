"""A trained policy for your own code: it acts in an env with the observations and actions of its author."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import ObservationRows
from sample_factory.envs.wrappers.frame_stack import FrameHistory
from sample_factory.evaluation.policy import TrainedPolicy, load_policy
from sample_factory.evaluation.policy_choice import choices_of_agents
from sample_factory.spaces.actions import action_decoder
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import observation_layout


class Agent:
    """Acts for one agent of an env. With an RNN, it remembers the observations since the last `reset`; with
    --env_framestack, the last images.
    """

    def __init__(
        self,
        policy: TrainedPolicy,
        flatten: Callable[[Any], Mapping[str, np.ndarray]],
        decode: Callable[[np.ndarray], Any],
        frames: FrameHistory | None = None,
    ):
        """flatten: from an observation of the env to arrays by key. decode: from a row to an action. frames:
        stacks the images; None: they are used as they are."""
        self._policy = policy
        self._flatten = flatten
        self._decode = decode
        self._frames = frames
        self.reset()

    def reset(self) -> None:
        """Forgets the past; to be called when an episode begins."""
        self._rnn_state = self._policy.first_rnn_state(1)
        self._is_first = True

    def act(self, observation: Any) -> Any:
        """Returns the action, of the env's action space, for an observation of its observation space."""
        rows, self._rnn_state = self._policy.act(self._batch(observation), self._rnn_state)
        self._is_first = False
        return self._decode(rows[0])

    def _batch(self, observation: Any) -> Mapping[str, np.ndarray]:
        """Returns the observation as the policy gets it, [1, *shape] by key."""
        flat = self._flatten(observation)
        if self._frames is None:
            return {key: np.asarray(value)[None] for key, value in flat.items()}
        self._frames.advance().write(0, flat)
        if self._is_first:
            self._frames.restart()
        rows = ObservationRows.allocate(self._frames.kinds)
        self._frames.write_stacks(rows)
        return {key: array[:, 0] for key, array in rows.arrays.items()}


def load_agent(
    flags: Sequence[str], observation_space: gym.Space[Any], action_space: gym.Space[Any]
) -> Agent:
    """Loads the policy of an experiment.

    flags: as for `enjoy`, e.g. ["--experiment=battle", "--checkpoint=best", "--eval_deterministic=True"].
    observation_space, action_space: those of the agent in the env of the training, as the env has them: the
        agent stacks images as the training did.

    Raises ConfigError when there is no such checkpoint, CheckpointError when it cannot be used.
    """
    config = parse_config(flags, resolve_family, evaluation=True)
    layout = observation_layout(observation_space)
    kinds = AgentKinds.one(layout.space, action_space, num_agents=1)
    (choice,) = choices_of_agents(config, kinds)
    num_frames = config.env.env_framestack
    frames = FrameHistory(kinds, num_frames) if num_frames > 1 else None
    (stored,) = kinds.spaces if frames is None else frames.kinds.spaces
    policy = load_policy(config, choice, stored.observation, action_space)
    return Agent(policy, layout.flatten, action_decoder(action_space), frames)
