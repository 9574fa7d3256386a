"""Functions and classes of version 2 for scripts that play a checkpoint in a loop. See also `load_policy`."""

import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.checkpoints.file_format import check_fits
from sample_factory.checkpoints.store import read_checkpoint
from sample_factory.config.config import FlagNamespace
from sample_factory.config.flags import ConfigError, Layer
from sample_factory.config.trust import ENV_KWARGS, foreign_file, refuse_code
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EMPTY_INFO, EnvConfig, MultiAgentEnv, ObservationRows
from sample_factory.evaluation.policy import build_model
from sample_factory.models.action_distributions import (
    ActionDistribution,
    CategoricalActions,
    GaussianActions,
    mask_logits,
)
from sample_factory.models.actor_critic import ActorCritic
from sample_factory.models.policy_spec import state_size
from sample_factory.spaces.actions import ACTION_MASK, action_layout, action_leaves
from sample_factory.version_2.classes import ContinuousActionDistribution
from sample_factory.version_2.registration import AgentsOfVersion2
from sample_factory.version_2.running import config_of_values, experiment_dir, values_of_cfg


class PlayedActorCritic(nn.Module):
    """Wraps a network of this version, `model`, with the methods of version 2's ActorCritic for playing."""

    def __init__(self, model: ActorCritic):
        super().__init__()
        self.model = model

    def __init_subclass__(cls) -> None:
        text = "derive from sample_factory.models.actor_critic.ActorCritic, and call "
        text += "sample_factory.register_actor_critic(name, factory)"
        raise ImportError(f"version 2's ActorCritic cannot be derived from in this version: {text}")

    def model_to_device(self, device: torch.device | str) -> None:
        self.to(device)

    def normalize_obs(self, obs: Mapping[str, Any]) -> dict[str, Tensor]:
        """Converts observations of an env to the input of `forward`: normalised tensors [B, ...] by key, and
        the action mask, if there is one, unchanged.

        obs: key -> tensor, array or list [B, ...].
        """
        shapes = self.model.observation_shapes
        given = {key: x for key, x in obs.items() if key in shapes}
        tensors = {key: x if isinstance(x, Tensor) else torch.tensor(np.array(x)) for key, x in given.items()}
        rows = {key: x.to(self.model.device).reshape(-1, *shapes[key]) for key, x in tensors.items()}
        return {**rows, **self.model.inputs(rows)}  # which have no mask

    def forward(
        self,
        normalized_obs_dict: Mapping[str, Tensor],
        rnn_states: Tensor | None,
        values_only: bool = False,
        action_mask: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Runs the network and samples actions.

        Returns actions [B] (one discrete choice) or [B, K], action_logits [B, L], log_prob_actions [B],
        values [B] on the scale of normalised returns, and new_rnn_states [B, H]; with values_only, the last
        two. rnn_states: [B, H], zeros at the start of an episode; not read by a network without a memory.
        """
        own = dict(normalized_obs_dict)
        mask = own.pop(ACTION_MASK, None) if action_mask is None else action_mask
        size = self.model.state_size
        num_rows = len(next(iter(own.values())))
        states = torch.zeros(num_rows, 0) if rnn_states is None else rnn_states[:, :size].float()
        output = self.model(own, states, None)
        result = {"values": output.values[0].float(), "new_rnn_states": output.rnn_state.float()}
        if values_only:
            return result
        logits = output.logits[0].float()
        if mask is not None:
            logits = mask_logits(self.model.layout, logits, mask)
        distribution = self.model.distribution(logits)
        if isinstance(distribution, GaussianActions):
            params = torch.cat((distribution.means, distribution.log_stds), dim=-1)
            distribution = ContinuousActionDistribution(params)
        self._distribution = distribution
        actions = distribution.sample()
        result["log_prob_actions"] = self._distribution.log_prob(actions)
        return {**result, "action_logits": logits, "actions": _squeezed(self._distribution, actions)}

    def action_distribution(self) -> ActionDistribution:
        """Returns the action distribution of the last call of `forward`."""
        return self._distribution

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.model.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Loads weights. Raises CheckpointError if they are of another network or of version 1 or 2."""
        state_dict = self.model.own_weights(state_dict)
        try:
            check_fits(state_dict, self.model)
        except ValueError as error:
            hint = "experiments of versions 1 and 2 need python -m sample_factory convert"
            raise CheckpointError(f"the checkpoint does not fit: {error}; {hint}") from None
        return self.model.load_state_dict(state_dict, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("forward_") or name in ("encoder", "core", "decoder"):
            raise AttributeError(f"{name} is not in this version: write .model, see models/actor_critic.py")
        return super().__getattr__(name)


prepare_and_normalize_obs = PlayedActorCritic.normalize_obs  # (network, observations)


def create_actor_critic(
    cfg: Any, obs_space: gym.Space[Any], action_space: gym.Space[Any]
) -> PlayedActorCritic:
    """Builds the network that the flags in `cfg` describe, with initial weights, on the CPU. Raises
    ConfigError for a bad flag."""
    return PlayedActorCritic(build_model(config_of_values(cfg), 0, obs_space, action_space))


def get_rnn_size(cfg: Any) -> int:
    """Returns the width of a recurrent state of the built-in network for these flags; 0 without a memory."""
    flags = config_of_values(cfg).model
    return state_size(flags, has_critic=not flags.critic_only_keys)


def argmax_actions(distribution: ActionDistribution) -> Tensor:
    """Returns the most likely actions, for continuous ones the means: [B] for one discrete choice, otherwise
    [B, K]."""
    return _squeezed(distribution, distribution.mode())


def _squeezed(distribution: ActionDistribution, actions: Tensor) -> Tensor:
    is_one_choice = isinstance(distribution, CategoricalActions) and len(distribution.sizes) == 1
    return actions.squeeze(-1).long() if is_one_choice else actions


class Learner:
    """Offers the static methods of version 2's Learner that find and read checkpoints. It does not train."""

    def __init__(self, *args: Any, **kwargs: Any):
        text = "call sample_factory.register_algorithm, see sample_factory/algo/README.md"
        raise ImportError(f"Learner can be neither made nor derived from in this version: {text}")

    @staticmethod
    def checkpoint_dir(cfg: Any, policy_id: int | Sequence[int]) -> str:
        """Returns the folder of a policy's checkpoints. policy_id: index, or a list that begins with it."""
        index = policy_id if isinstance(policy_id, int) else policy_id[0]
        return f"{experiment_dir(cfg, mkdir=False)}/checkpoint_p{index}"

    @staticmethod
    def get_checkpoints(checkpoints_dir: str, pattern: str = "checkpoint_*") -> list[str]:
        """Returns the paths of the files in a folder that match the pattern, the newest last."""
        return sorted(map(str, Path(checkpoints_dir).glob(pattern)))

    @staticmethod
    def load_checkpoint(checkpoints: Sequence[str], device: Any = None) -> dict[str, Any] | None:
        """Returns the contents of the last file, with tensors on the CPU; None if there are no files.

        device: ignored. Raises CheckpointError for a damaged file, or one with more than tensors and numbers.
        """
        return read_checkpoint(Path(checkpoints[-1])) if checkpoints else None


EnvInfo = types.SimpleNamespace  # version 2's description of an env, of which `action_space` is used


def extract_env_info(env: Any, cfg: Any) -> EnvInfo:
    """Describes an env that `make_env_func_batched` made. Returns an object with obs_space, action_space,
    num_agents and frameskip."""
    spaces = {"obs_space": env.observation_space, "action_space": env.action_space}
    return EnvInfo(**spaces, num_agents=env.num_agents, frameskip=cfg.env_frameskip)


def preprocess_actions(env_info: EnvInfo, actions: Tensor, to_numpy: bool = True) -> Any:
    """Converts actions [B, K] to the form that envs of version 2 expect.

    Returns an array [B] (one discrete choice) or [B, K]; for a Tuple or Dict space with a Box, a list with an
    array for each component. With `to_numpy=False` or env_info.gpu_actions, tensors in place of arrays.
    """
    to_numpy = to_numpy and not vars(env_info).get("gpu_actions", False)

    def convert(part: Tensor, space: gym.Space[Any]) -> Any:
        own = part if isinstance(space, gym.spaces.Box) else part.int()
        own = own.squeeze(1) if isinstance(space, gym.spaces.Discrete) else own
        return own.cpu().numpy() if to_numpy else own

    space = env_info.action_space
    leaves = [leaf for _, leaf in action_leaves(space)]
    if space in leaves or not action_layout(space).box_actions:
        return convert(actions, space)
    sizes = [action_layout(leaf).num_action_values for leaf in leaves]
    return [convert(*pair) for pair in zip(actions.split(sizes, 1), leaves)]


def create_env(
    full_env_name: str, cfg: Any = None, env_config: Any = None, render_mode: str | None = None
) -> Any:
    """Makes an env by its name, as its author wrote it, without the adapters of this version.

    env_config: dict with worker_index, vector_index and env_id, for the env; None: all are 0.
    Raises UnknownEnvError for a name that is not registered, and ConfigError if `env` or `env_kwargs` in
    `cfg` name code to import, unless `cfg` is a FlagNamespace or signed.
    """
    values = {} if cfg is None or isinstance(cfg, FlagNamespace) else values_of_cfg(cfg)
    used = {name: values[name] for name in ("env", ENV_KWARGS) if name in values}
    typed = () if full_env_name == values.get("env") else ("env",)
    refuse_code(Layer("", used, foreign_file(Path("the cfg"), values)), typed, known={})
    env = resolve_family(full_env_name).make(cfg, _place_of(env_config), render_mode)
    return env.env if isinstance(env, AgentsOfVersion2) else env


def _place_of(env_config: Mapping[str, int] | None) -> EnvConfig:
    return EnvConfig(*((env_config or {}).get(name, 0) for name in EnvConfig(0, 0, 0)))


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


def make_env_func_batched(cfg: Any, env_config: Any = None, render_mode: str | None = None) -> BatchedVecEnv:
    """Makes the env that the flags in `cfg` describe, as a BatchedVecEnv.
    env_config: dict with worker_index, vector_index and env_id, for the env; None: all are 0."""
    config = config_of_values(cfg)
    values = cfg if isinstance(cfg, FlagNamespace) else config.namespace()
    family = resolve_family(config.env_name)
    return BatchedVecEnv(make_adapted_env(family, values, _place_of(env_config), render_mode))
