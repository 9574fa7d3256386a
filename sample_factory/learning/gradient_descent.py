"""SGD steps that keep the weights finite."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sample_factory.checkpoints.file_format import check_fits
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.learner_group import LearnerGroup
from sample_factory.learning.optimizers import check_optimizer, load_optimizer, make_optimizer
from sample_factory.models.custom_parts import fill_gaps
from sample_factory.runtime.failures import Explained

MODEL = "model"
MAX_SKIPPED_STEPS_IN_A_ROW = 20
MAX_EMPTY_STEPS_IN_A_ROW = 200  # a few are normal: all samples of a policy can be too old


class NumericalError(Explained, RuntimeError):
    """Raised after many SGD steps in a row whose gradient is not finite, or that have no valid sample."""


class GradientDescent:
    """Makes SGD steps, with one optimizer for each module that has trainable parameters.

    A step whose gradient is not finite is skipped and counted. A step without a valid sample is skipped too,
    so that momentum does not move the weights. Many skipped steps in a row raise NumericalError.

    newest_is_finite: whether the newest gradient of the current weights was finite; None before the first
        gradient, and False after a NumericalError.
    """

    def __init__(
        self, flags: LearningFlags, modules: Mapping[str, nn.Module], group: LearnerGroup | None = None
    ):
        """Creates an optimizer for each module that has trainable parameters. modules: name in checkpoints ->
        module; the gradient of each module is clipped separately. group: all learners of the policy, over
        which gradients are summed; None for a single learner."""
        self._flags = flags
        self._group = group or LearnerGroup()
        self._modules = dict(modules)
        for module in modules.values():
            fill_gaps(module)
        self._optimizers = {
            name: make_optimizer(flags, module.parameters())
            for name, module in modules.items()
            if any(parameter.requires_grad for parameter in module.parameters())
        }
        self.newest_is_finite: bool | None = None
        self.skipped_steps = 0
        self._skipped_in_a_row = 0
        self._empty_in_a_row = 0

    def set_flags(self, flags: LearningFlags) -> None:
        """Replaces the flags, of which only max_grad_norm has an effect on later steps: the optimizers keep
        their settings, and `step` gets the learning rate."""
        self._flags = flags

    def expect_empty_steps(self, count: int) -> None:
        """Allows `count` more steps in a row without a valid sample before NumericalError is raised. Called
        when the weights have been replaced, since samples of the former weights are not valid."""
        self._empty_in_a_row = -count

    def step(self, loss: Tensor, learning_rate: float, num_samples: int | Tensor) -> float:
        """Backpropagates the loss and makes one step of every optimizer. Makes no step if the gradient is not
        finite, or if there is no valid sample.

        num_samples: number of valid samples in the minibatch, over all learners of the policy. Returns the
        norm of the gradient of all modules before clipping. Raises NumericalError after many skipped steps in
        a row.
        """
        for optimizer in self._optimizers.values():
            optimizer.zero_grad(set_to_none=True)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
        torch.autograd.backward(loss)
        for optimizer in self._optimizers.values():
            self._group.sum_gradients(parameters_of(optimizer))
        limit = self._flags.max_grad_norm or float("inf")
        norm = math.hypot(*(clip_gradient(optimizer, limit) for optimizer in self._optimizers.values()))
        if not num_samples:  # read after the norm, until which a GPU is not waited for
            self._count_empty()
            return norm
        self.newest_is_finite = math.isfinite(norm)
        if not self.newest_is_finite:
            self._skip(loss.item(), norm)
            return norm
        for optimizer in self._optimizers.values():
            optimizer.step()
        self._skipped_in_a_row = 0
        self._empty_in_a_row = 0
        return norm

    def _skip(self, loss: float, norm: float) -> None:
        self.skipped_steps += 1
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row >= MAX_SKIPPED_STEPS_IN_A_ROW:
            raise NumericalError(
                f"loss {loss} and gradient norm {norm} were not finite for {self._skipped_in_a_row} steps in "
                "a row; look for NaN or inf in rewards and observations, or lower --learning_rate"
            )

    def _count_empty(self) -> None:
        self._empty_in_a_row += 1
        if self._empty_in_a_row >= MAX_EMPTY_STEPS_IN_A_ROW:
            self.newest_is_finite = False
            raise NumericalError(
                f"there was nothing to learn from in {self._empty_in_a_row} steps in a row: every sample had "
                "NaN or inf in its observation, reward or action (health/broken_numbers counts them), was "
                "older than --max_policy_lag, or its agent was inactive"
            )

    def state_dict(self) -> dict[str, Any]:
        """Returns the states of all modules and optimizers by name: tensors and plain numbers only."""
        state = {"skipped_steps": self.skipped_steps, "optimizer_name": self._flags.optimizer}
        for name, module in self._modules.items():
            state[name] = module.state_dict()
            if name in self._optimizers:
                state[_optimizer_key(name)] = self._optimizers[name].state_dict()
        return state

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Checks a state before it is written or loaded. Raises ValueError if the model's entry is missing,
        if weights or optimizer moments do not fit or are not finite, or if another optimizer wrote the state.
        """
        for name in self._names_in(state):
            check_fits(state.get(name), self._modules[name])
        saved_name = state.get("optimizer_name", "adam")
        if saved_name != self._flags.optimizer:
            raise ValueError(f"the checkpoint is of --optimizer={saved_name}, not {self._flags.optimizer}")
        for name in self._optimizers.keys() & set(self._names_in(state)):
            check_optimizer(self._optimizers[name], state.get(_optimizer_key(name)))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads the weights and optimizer states of all modules. A module that the state does not contain,
        because another algorithm was trained, keeps its weights. Raises ValueError, before anything is
        changed, if `check_state` refuses the state."""
        self.check_state(state)
        for name in self._names_in(state):
            self._modules[name].load_state_dict(state[name])
            if name in self._optimizers:
                load_optimizer(self._optimizers[name], state[_optimizer_key(name)])
        self.skipped_steps = state.get("skipped_steps", 0)
        self.newest_is_finite = None

    def _names_in(self, state: Mapping[str, Any]) -> list[str]:
        return [name for name in self._modules if name in state or name == MODEL]


def clip_gradient(optimizer: torch.optim.Optimizer, limit: float) -> float:
    """Scales the gradient of all parameters so that its norm is at most `limit`; returns the original norm.

    Uses the arithmetic of torch.nn.utils.clip_grad_norm_, which takes three times as long for many small
    tensors.
    """
    gradients = [parameter.grad for parameter in parameters_of(optimizer) if parameter.grad is not None]
    if not gradients:
        return 0.0
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    value = float(norm)
    if value + 1e-6 > limit:
        torch._foreach_mul_(gradients, limit / (norm + 1e-6))
    return value


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Returns all parameters that an optimizer changes."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _optimizer_key(name: str) -> str:
    return "optimizer" if name == MODEL else f"{name}_optimizer"
