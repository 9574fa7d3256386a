"""A model in which every action and state is an integer that must line up."""

from typing import Any

import torch

from sample_factory.models.actor_critic import PolicyOutput
from tests.counting import EPISODE, NUM_ACTIONS, STATE_SIZE, STEP


class CountingModel(torch.nn.Module):
    """Counts its own calls in the recurrent state; the value is the state before the step.

    The action is the step of the episode plus ten times the episode, modulo NUM_ACTIONS.
    """

    state_size = STATE_SIZE

    def __init__(self, *_: Any):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def act(self, observations, state, *choice) -> PolicyOutput:
        obs = observations["obs"]
        actions = ((obs[:, STEP] + 10 * obs[:, EPISODE]) % NUM_ACTIONS)[:, None]
        zeros = torch.zeros(len(obs))
        return PolicyOutput(actions, zeros, state[:, 0], torch.zeros(len(obs), 1), state + 1)
