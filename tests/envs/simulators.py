"""Batched simulators of torch, by the contract of `Simulator`; tests/conformance plays real packages."""

from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from hypothesis import strategies as st

from tests.envs.ledger_envs import NUM_ACTIONS, Habits, Resets, Script, Vector, habits, several

LIMIT = 50


class Form(NamedTuple):
    """What a simulator may choose. groups: names of its observations; none: no dict. num_values: of a step.
    dtype: of ends. is_column: whether numbers have the shape [N, 1]. mode: when it resets an env."""

    groups: tuple[str, ...]
    num_values: int
    dtype: torch.dtype
    is_column: bool
    mode: AutoresetMode


class Scripted:
    """A simulator whose envs live by scripts and habits; it hands out tensors that may be its own buffers."""

    single_action_space = spaces.Discrete(NUM_ACTIONS)

    def __init__(self, scripts_of_envs: list[Script], habits: Habits, form: Form):
        first = scripts_of_envs[0]
        common = {"objective": first.objective, "has_stats": first.has_stats, "has_costs": first.has_costs}
        own = [script._replace(**common) for script in scripts_of_envs]
        self._vector = Vector(own, habits, Resets(form.mode, form.mode, final=""))
        self.lives, self.num_envs = self._vector.lives, self._vector.num_envs
        self.metadata = {"autoreset_mode": form.mode.value}
        self._form = form
        has = {first.objective: True, "episode_extra_stats": first.has_stats, "cost": first.has_costs}
        self._reported = {key for key in has if has[key]}

    def reset(self):
        return self._observations(self._vector.reset()[0])

    def _observations(self, seen: np.ndarray):
        tensor = torch.as_tensor(seen)
        return dict.fromkeys(self._form.groups, tensor) or tensor

    def _column(self, values: Any, dtype: torch.dtype | None = None):
        tensor = torch.as_tensor(values).to(dtype or torch.float64)
        return tensor[:, None] if self._form.is_column else tensor

    def _infos(self, infos: dict[str, Any]) -> dict[str, Any]:
        named = {key: value for key, value in infos.items() if not key.startswith("_")}  # no masks
        return {
            key: self._infos(value) if isinstance(value, dict) else self._column(value)
            for key, value in named.items()
        }

    def step(self, actions):
        assert isinstance(actions, torch.Tensor) and actions.shape == (self.num_envs,)
        observations, rewards, *ends, infos = self._vector.step(actions)
        terminated, truncated = (torch.as_tensor(end) for end in ends)
        # Entries of a reset, which `infos` masks, are not for a simulator, whose infos have no masks.
        extras = self._infos({key: value for key, value in infos.items() if key in self._reported})
        flags = [terminated, truncated]
        if self._form.num_values == 4:
            extras["time_outs"] = self._column(truncated & ~terminated, self._form.dtype)
            flags = [terminated | truncated]
        flags = [self._column(flag, self._form.dtype) for flag in flags]
        return self._observations(observations), self._column(rewards), *flags, extras


forms = st.builds(
    Form,
    st.sampled_from([(), ("policy",), ("policy", "critic")]),
    st.sampled_from([4, 5]),
    st.sampled_from([torch.bool, torch.int64, torch.float32]),
    st.booleans(),
    st.sampled_from([AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP]),
)
simulators = st.builds(
    lambda scripts, habits, form: lambda: Scripted(scripts, habits, form), several, habits, forms
)


class TorchCrowd:
    """`tests.counting.CountingEnv` as a VecEnv of rsl_rl: episode e of env a lasts 3 + (e + a) % 5 steps,
    every second one is cut by a time limit, and the reward is the step."""

    max_episode_length = LIMIT

    def __init__(self, num_envs: int = 8, device: str = "cpu"):
        self.num_envs = num_envs
        self.device = device
        self.single_action_space = spaces.Discrete(NUM_ACTIONS)
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self._episodes = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self._buffer = torch.zeros(num_envs, 4, device=device)

    def get_observations(self):
        return self._observe(torch.full((self.num_envs,), -1, device=self.device))

    def step(self, actions):
        envs = torch.arange(self.num_envs, device=self.device)
        self.episode_length_buf += 1
        rewards = self.episode_length_buf.float()
        done = self.episode_length_buf >= 3 + (self._episodes + envs) % 5
        time_outs = done & (self._episodes % 2 == 1)
        self._episodes += done
        self.episode_length_buf[done] = 0
        return self._observe(actions), rewards, done.long(), {"time_outs": time_outs}

    def _observe(self, actions):
        columns = [torch.zeros_like(actions), self._episodes, self.episode_length_buf, actions]
        self._buffer[:] = torch.stack([column.float() for column in columns], dim=1)
        return {"obs": self._buffer}
