"""A trained policy, ready to act outside the training system."""

from typing import Mapping

import numpy as np
import torch

from sample_factory.config.config import Config, ConfigError
from sample_factory.learning.checkpoints import CheckpointError, Checkpoints
from sample_factory.models.actor_critic import ActorCritic
from sample_factory.models.policy_spec import PolicySpec


class TrainedPolicy:
    """Acts in float32 with weights that do not change.

    deterministic: the most likely choices and the means instead of samples.
    sample_continuous: False: the means of the continuous components only.
    """

    def __init__(self, model: ActorCritic, deterministic: bool, sample_continuous: bool):
        self._model, self._device = model.eval(), model.critic_head.weight.device
        self._deterministic, self._sample_continuous = deterministic, sample_continuous

    def first_state(self, num_agents: int) -> torch.Tensor:
        """The recurrent state at the start of an episode, [num_agents, H]."""
        return torch.zeros(num_agents, self._model.state_size, device=self._device)

    def act(
        self, observations: Mapping[str, np.ndarray], state: torch.Tensor
    ) -> tuple[np.ndarray, torch.Tensor]:
        """Observations [A, ...] and state [A, H] to actions [A, K] float32 and the next state."""
        tensors = {key: torch.from_numpy(array).to(self._device) for key, array in observations.items()}
        output = self._model.act(tensors, state, self._deterministic)
        actions = output.actions
        boxes = list(self._model.layout.box_actions)
        if boxes and not self._sample_continuous:
            actions[:, boxes] = self._model.distribution(output.logits).mode()[:, boxes]
        return actions.cpu().numpy(), output.state


def load_policy(config: Config, observation_space, action_space) -> TrainedPolicy:
    """The checkpoint of --policy_index, --load_checkpoint_kind, in the model that the flags describe.

    Raises ConfigError when there is no such checkpoint, CheckpointError when it cannot be used.
    """
    evaluation, kind = config.evaluation, config.monitoring.load_checkpoint_kind
    keep = config.monitoring.keep_checkpoints
    checkpoints = Checkpoints(config.experiment_dir, evaluation.policy_index, keep)
    state = checkpoints.load(kind)
    if state is None:
        raise ConfigError(
            f"there is no checkpoint ({kind}) in {checkpoints.folder}; check --policy_index="
            f"{evaluation.policy_index}, --load_checkpoint_kind={kind}, and whether training has saved one"
        )
    model = _build(config, observation_space, action_space)
    try:
        model.load_state_dict(state["model"])
    except (KeyError, RuntimeError) as error:
        raise CheckpointError(
            f"the checkpoint in {checkpoints.folder} does not fit the model that cfg.json and the flags "
            f"describe; were flags of the model or the env typed that differ from the training's? {error}"
        ) from None
    return TrainedPolicy(model, evaluation.eval_deterministic, evaluation.continuous_actions_sample)


def _build(config: Config, observation_space, action_space) -> ActorCritic:
    """In float32; on the CPU, which is faster for one env, unless a GPU is asked for here and now."""
    device = "gpu" if config.typed.get("device") == "gpu" else "cpu"
    spec = PolicySpec(
        config.model, observation_space, action_space, config.learning.normalize_returns, device, "fp32"
    )
    try:
        return spec.build(config.evaluation.policy_index).model
    except RuntimeError as error:
        raise ConfigError(str(error)) from None
