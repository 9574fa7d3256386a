"""Wraps an env of version 2 for a loop in a script: takes and returns tensors in place of arrays."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sample_factory.config.flags import ConfigError
from sample_factory.envs.protocol import EMPTY_INFO, MultiAgentEnv, ObservationRows


class BatchedVecEnv:
    """Wraps an env so that its A agents are a batch of tensors, as version 2 does. An agent whose episode has
    ended is reset in the same step. Other attributes, such as `unwrapped`, are looked up in the env."""

    def __init__(self, env: MultiAgentEnv):
        if len(env.kinds.spaces) > 1:
            raise ConfigError("the agents of this env have different spaces; call sample_factory.load_policy")
        self._env = env
        self.observation_space, self.action_space = env.kinds.spaces[0]
        self.num_agents, self.is_multiagent = env.num_agents, env.num_agents > 1
        self._rows = ObservationRows.allocate(env.kinds)
        self.render, self.close = env.render, env.close

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_env"].env, name)

    def reset(self, seed: int | None = None, **kwargs: Any) -> tuple[dict[str, Tensor], list[Any]]:
        """Begins an episode. Returns observations [A, ...] by key, and A empty infos."""
        self._env.reset(seed, self._rows)
        return self._observations(), [EMPTY_INFO] * self.num_agents

    def step(self, actions: Any) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor, list[Any]]:
        """Steps the env. actions: result of `preprocess_actions`.

        Returns observations [A, ...] by key; rewards [A] float32; terminated and truncated, both [A] bool;
        and a list of A infos. The info of an agent is empty unless its episode has ended.
        """
        parts = actions if isinstance(actions, (list, tuple)) else [actions]
        rows = [np.asarray(part, np.float32).reshape(self.num_agents, -1) for part in parts]
        result = self._env.step(np.concatenate(rows, axis=1), self._rows)
        rewards, terminated, truncated = (torch.tensor(np.array(values)) for values in result[:3])
        infos = [result.end_infos.get(agent, EMPTY_INFO) for agent in range(self.num_agents)]
        return self._observations(), rewards.float(), terminated.bool(), truncated.bool(), infos

    def _observations(self) -> dict[str, Tensor]:
        return {key: torch.from_numpy(array[:, 0].copy()) for key, array in self._rows.arrays.items()}
