"""An env with an observation that only a critic should get."""

from typing import ClassVar

import gymnasium as gym
import numpy as np

NUM_CARDS = 4


class Guided(gym.Env):
    """Rewards the choice of the card that is shown; episodes have 5 steps.

    Observations: card, and next/card: the card of the next step.
    """

    observation_space: ClassVar = gym.spaces.Dict(
        card=gym.spaces.Box(0, 1, (NUM_CARDS,), np.float32),
        next=gym.spaces.Dict(card=gym.spaces.Discrete(NUM_CARDS)),
    )
    action_space: ClassVar = gym.spaces.Discrete(NUM_CARDS)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._cards = self.np_random.integers(NUM_CARDS, size=7)
        self._step = 0
        return self._observe(), {}

    def step(self, action):
        reward = float(action == self._cards[self._step])
        self._step += 1
        return self._observe(), reward, self._step == 5, False, {}

    def _observe(self):
        card = np.eye(NUM_CARDS, dtype=np.float32)[self._cards[self._step]]
        return {"card": card, "next": {"card": self._cards[self._step + 1]}}


class Unguided(Guided):
    """The same env without next/card."""

    observation_space: ClassVar = gym.spaces.Dict(card=Guided.observation_space["card"])

    def _observe(self):
        return {"card": super()._observe()["card"]}
