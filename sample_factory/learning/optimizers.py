"""Adam, LAMB or RMSprop, and how the learning rate changes."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from sample_factory.config.learning_flags import LearningFlags

# The adaptive schedules change the rate by LR_FACTOR if the KL is beyond these multiples of the threshold.
KL_TOO_LARGE = 2.0
KL_TOO_SMALL = 0.5
LR_FACTOR = 1.5


def make_optimizer(flags: LearningFlags, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Makes the optimizer that --optimizer names, with its settings from the flags."""
    betas = (flags.adam_beta1, flags.adam_beta2)
    if flags.optimizer == "lamb":
        return Lamb(parameters, flags.learning_rate, betas, flags.adam_eps)
    if flags.optimizer == "rmsprop":
        return RMSprop(parameters, flags.learning_rate, flags.rmsprop_alpha, flags.rmsprop_eps)
    return Adam(parameters, flags.learning_rate, betas, flags.adam_eps, fused=True)


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Loads moments from a saved state that `check_optimizer` has accepted. Betas, epsilon and other settings
    keep the values of the current flags."""
    flags = [{key: group[key] for key in group if key != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict(dict(state))
    for group, own in zip(optimizer.param_groups, flags):
        group.update(own)


def check_optimizer(optimizer: torch.optim.Optimizer, state: Any) -> None:
    """Checks that a saved state fits an optimizer, before it is loaded. Raises ValueError if moments have the
    wrong shape, are not finite, or are negative (`exp_avg`, the mean of gradients, may be negative).

    Fused kernels do not check shapes: with wrong ones they would read memory beyond the arrays.
    """
    try:
        fits = _moments_fit(optimizer, state)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):  # of another form
        fits = False
    if not fits:
        raise ValueError("the state of its optimizer does not fit the weights, is negative, or is not finite")


def _moments_fit(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> bool:
    names = MOMENTS[type(optimizer)]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    saved = [index for group in state["param_groups"] for index in group["params"]]
    by_index = dict(zip(saved, parameters))
    sizes = [[len(group["params"]) for group in of["param_groups"]] for of in (vars(optimizer), state)]
    fits = sizes[0] == sizes[1]
    for index, moments in state["state"].items():
        shape = by_index[index].shape
        for name in names:
            moment = moments[name]
            fits &= moment.shape == (() if name == "step" else shape) and bool(moment.isfinite().all())
            fits &= name == "exp_avg" or bool((moment >= 0).all())
    return fits


class Adam(torch.optim.Adam):
    """PyTorch's Adam with the fused kernel, without the overhead of torch's methods.

    The decorators of torch's methods, which only compiled functions need, load torch._dynamo, which takes
    over a second. torch's `step` takes 0.2 ms besides the kernel, as long as a small network's forward pass.
    """

    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    state_dict = inspect.unwrap(torch.optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Adam.load_state_dict)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            states = [self.state[parameter] or self._first_state(parameter) for parameter in parameters]
            steps = [state["step"] for state in states]
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                parameters,
                [parameter.grad for parameter in parameters],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                eps=group["eps"],
                weight_decay=0.0,
                amsgrad=False,
                maximize=False,
            )

    def _first_state(self, parameter: torch.nn.Parameter) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        state["step"] = torch.zeros((), device=parameter.device)
        state["exp_avg"] = torch.zeros_like(parameter)
        state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state


class Lamb(torch.optim.Optimizer):
    """LAMB without weight decay (You et al. 2020, https://arxiv.org/abs/1904.00962, algorithm 2).

    It is Adam, but the step of each matrix is scaled to the norm of the matrix. Steps of biases and other
    vectors are not scaled: biases start at 0, and steps scaled to a norm of 0 would keep them there.
    """

    def __init__(
        self, parameters: Iterable[torch.nn.Parameter], lr: float, betas: tuple[float, float], eps: float
    ):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: torch.nn.Parameter, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        grad = parameter.grad
        assert grad is not None
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        beta1, beta2 = group["betas"]
        state["step"] += 1
        state["exp_avg"].lerp_(grad, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        mean = state["exp_avg"] / (1 - beta1 ** state["step"])
        deviation = (state["exp_avg_sq"] / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
        update = mean / deviation
        if parameter.ndim > 1:
            weight_norm = parameter.norm()
            update_norm = update.norm()
            update *= torch.where((weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, 1.0)
        parameter.sub_(update * group["lr"])


class RMSprop(torch.optim.Optimizer):
    """RMSprop without momentum (Tieleman and Hinton 2012): p -= lr g / (sqrt(v) + eps), as in torch.optim.

    v is the running mean of the squared gradient g^2. Like `Adam`, this class does not load torch._dynamo.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)
    zero_grad = Adam.zero_grad

    def __init__(self, parameters: Iterable[torch.nn.Parameter], lr: float, alpha: float, eps: float):
        super().__init__(parameters, {"lr": lr, "alpha": alpha, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            for parameter in parameters:
                if not self.state[parameter]:
                    self.state[parameter]["square_avg"] = torch.zeros_like(parameter)
            gradients = [parameter.grad for parameter in parameters]
            squares = [self.state[parameter]["square_avg"] for parameter in parameters]
            torch._foreach_mul_(squares, group["alpha"])
            torch._foreach_addcmul_(squares, gradients, gradients, 1 - group["alpha"])
            denominators = torch._foreach_sqrt(squares)
            torch._foreach_add_(denominators, group["eps"])
            torch._foreach_addcdiv_(parameters, gradients, denominators, -group["lr"])


# What a checkpoint has of each weight.
MOMENTS: Mapping[type[torch.optim.Optimizer], tuple[str, ...]] = {
    Adam: ("step", "exp_avg", "exp_avg_sq"),
    Lamb: ("step", "exp_avg", "exp_avg_sq"),
    RMSprop: ("square_avg",),
}


class LearningRate:
    """Computes the learning rate by --lr_schedule: constant, adapted to the KL divergence, or decaying."""

    def __init__(self, flags: LearningFlags, train_for_env_frames: int):
        self.value = flags.learning_rate
        self._flags = flags
        self._end = train_for_env_frames

    def after_minibatch(self, kl: float) -> None:
        """Adapts the rate if the schedule is kl_adaptive_minibatch. kl: mean KL(behaviour || new) of a
        minibatch, in nats."""
        if self._flags.lr_schedule == "kl_adaptive_minibatch":
            self._adapt(kl)

    def after_epoch(self, mean_kl: float) -> None:
        """Adapts the rate if the schedule is kl_adaptive_epoch. mean_kl: mean over the epoch's minibatches,
        in nats."""
        if self._flags.lr_schedule == "kl_adaptive_epoch":
            self._adapt(mean_kl)

    def at_frame(self, env_frames: int) -> None:
        """Sets the rate if the schedule is linear_decay. The rate is a function of env frames alone, so that
        a resumed run continues with the same rate."""
        if self._flags.lr_schedule == "linear_decay":
            self.value = self._flags.learning_rate * max(0.0, 1.0 - env_frames / self._end)

    @property
    def needs_kl(self) -> bool:
        """Whether the schedule depends on the KL divergence."""
        return self._flags.lr_schedule.startswith("kl_adaptive")

    def _adapt(self, kl: float) -> None:
        threshold = self._flags.lr_schedule_kl_threshold
        if kl > KL_TOO_LARGE * threshold:
            self.value = max(self.value / LR_FACTOR, self._flags.lr_adaptive_min)
        elif kl < KL_TOO_SMALL * threshold:
            self.value = min(self.value * LR_FACTOR, self._flags.lr_adaptive_max)
