"""An env that does what an env may do, and more, often."""

import gymnasium as gym
import numpy as np

from sample_factory.envs.env_trial import MAX_STEPS


class Nasty:
    """Two agents with mixed actions and a mask.

    Observations and rewards are NaN or inf now and then; the agents are inactive at times, and end their
    episodes one by one.
    """

    num_agents = 2
    is_multiagent = True
    observation_space = gym.spaces.Dict(
        {
            "obs": gym.spaces.Box(-9, 9, (3,), np.float32),
            "action_mask": gym.spaces.Box(0, 1, (4,), np.uint8),
        }
    )
    action_space = gym.spaces.Tuple((gym.spaces.Discrete(4), gym.spaces.Box(-1, 1, (2,))))

    def reset(self, *, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.num_steps = 0
        return [self._observe() for _ in range(2)], [{}, {}]

    def step(self, actions):
        assert all(np.isfinite(box).all() for _, box in actions)
        draw = self.rng.random((5, 2))
        self.num_steps += 1
        if self.num_steps <= MAX_STEPS:
            draw[[0, 4]] = 0.5  # the trial before a run refuses NaN and inf
        rewards = [float(np.where(x < 0.05, np.nan, np.where(x > 0.95, -np.inf, x))) for x in draw[0]]
        infos = [{"is_active": bool(x > 0.1)} for x in draw[3]]
        observations = [self._observe(broken=x) for x in draw[4]]
        return observations, rewards, list(draw[1] < 0.05), list(draw[2] < 0.05), infos

    def _observe(self, broken=0.5):
        obs = self.rng.standard_normal(3).astype(np.float32)
        if not 0.05 < broken < 0.95:
            obs[1] = np.nan if broken < 0.5 else np.inf
        mask = self.rng.random(4) < 0.6
        mask[0] = True
        return {"obs": obs, "action_mask": mask.astype(np.uint8)}

    def close(self):
        """There is nothing to release."""
