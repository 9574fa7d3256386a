"""Trains with a whole network of your own: attention chooses one of many items, and the critic sees more.

    python examples/custom_actor_critic.py train --experiment=lookup
    python examples/custom_actor_critic.py enjoy --experiment=lookup

The same weights score every item, so that the network learns in seconds what the built-in one, which has
weights for each item, does not.
"""

import sys
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
from torch import nn

from sample_factory import register_actor_critic, register_env
from sample_factory.config.flags import flag
from sample_factory.enjoy import main as enjoy
from sample_factory.models.actor_critic import ActorCritic, NetworkOutput
from sample_factory.train import main as train


class Lookup(gym.Env):
    """Chooses the one of 16 items to which the query, with noise, is most similar; 20 times for a point."""

    observation_space = gym.spaces.Dict(
        items=gym.spaces.Box(-1, 1, (16, 6)),
        query=gym.spaces.Box(-2, 2, (6,)),
        noise=gym.spaces.Box(0, 1, ()),
    )
    action_space = gym.spaces.Discrete(16)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self._step = 0
        return self._draw(), {}

    def step(self, action: int):
        self._step += 1
        reward = float(action == self._answer)
        return self._draw(), reward, False, self._step == 20, {}

    def _draw(self) -> dict:
        items = self.np_random.uniform(-1, 1, (16, 6))
        noise = self.np_random.uniform(0, 0.5)
        self._answer = int(self.np_random.integers(16))
        query = items[self._answer] + self.np_random.uniform(-noise, noise, 6)
        return {"items": np.float32(items), "query": np.float32(query), "noise": np.float32(noise)}


class Attention(ActorCritic):
    """Compares the query with each item. The critic sees only the noise, which the actor does not see."""

    def __init__(self, flags, observation_space, action_space):
        super().__init__(flags, observation_space, action_space)
        num_features = observation_space["query"].shape[0]
        self.keys = nn.Linear(num_features, flags.attention_width)
        self.queries = nn.Linear(num_features, flags.attention_width)
        self.critic = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, observations, rnn_state, resets) -> NetworkOutput:
        """Returns logits [T, B, 16] and values [T, B] for observations [T * B, ...]."""
        keys = self.keys(observations["items"])  # [T * B, 16, width]
        logits = (keys @ self.queries(observations["query"]).unsqueeze(-1)).squeeze(-1)
        values = self.critic(observations["noise"].unsqueeze(-1)).squeeze(-1)
        steps = (-1, len(rnn_state))  # (T, B); without a memory, rnn_state is [B, 0]
        return NetworkOutput(logits.unflatten(0, steps), values.unflatten(0, steps), rnn_state)


@dataclass(frozen=True)
class LookupFlags:
    attention_width: int = flag(16, "width of the vectors that are compared")


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `enjoy`, then flags. Returns the exit code."""
    run = {"gamma": 0.0, "learning_rate": 3e-3, "batch_size": 256, "train_for_env_steps": 60_000}
    defaults = {**run, "actor_critic_custom": "attention", "num_envs_per_worker": 16}
    register_actor_critic("attention", Attention)
    register_env(
        "my_lookup", lambda full_env_name: Lookup(), LookupFlags, defaults, follows_observation=False
    )
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        return 2
    return commands[argv[0]](["--env=my_lookup", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
