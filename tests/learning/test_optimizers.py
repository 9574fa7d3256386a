import subprocess
import sys

import numpy as np
import pytest
import torch

from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.gradient_descent import GradientDescent, clip_gradient
from sample_factory.learning.optimizers import LearningRate, load_optimizer, make_optimizer

THRESHOLD = 0.01


def adaptive(schedule, **flags):
    chosen = {"learning_rate": 0.9e-3, "lr_schedule_kl_threshold": THRESHOLD, **flags}
    return LearningRate(LearningFlags(lr_schedule=schedule, **chosen), 10**9)


@pytest.mark.parametrize(
    "kl, factor",
    [(2.1 * THRESHOLD, 1 / 1.5), (1.9 * THRESHOLD, 1), (0.6 * THRESHOLD, 1), (0.4 * THRESHOLD, 1.5)],
)
def test_the_rate_falls_when_the_policy_moves_far_and_grows_when_it_hardly_moves(kl, factor):
    rates = [adaptive("kl_adaptive_minibatch"), adaptive("kl_adaptive_epoch")]
    rates[0].after_minibatch(kl)
    rates[1].after_epoch(kl)
    assert [rate.value for rate in rates] == pytest.approx([0.9e-3 * factor] * 2)


def test_each_schedule_changes_at_its_own_time_only():
    by_minibatch, by_epoch = adaptive("kl_adaptive_minibatch"), adaptive("kl_adaptive_epoch")
    by_minibatch.after_epoch(1.0)
    by_epoch.after_minibatch(1.0)
    assert by_minibatch.value == by_epoch.value == 0.9e-3


def test_the_adaptive_rate_stays_within_its_bounds():
    rate = adaptive("kl_adaptive_epoch", lr_adaptive_min=1e-4, lr_adaptive_max=1e-2)
    for kl, bound in ((1.0, 1e-4), (0.0, 1e-2)):
        for _ in range(20):
            rate.after_epoch(kl)
        assert rate.value == pytest.approx(bound)


def test_a_constant_rate_does_not_move():
    rate = adaptive("constant")
    rate.after_epoch(1.0)
    rate.after_minibatch(1.0)
    rate.at_frame(10**8)
    assert rate.value == 0.9e-3 and not rate.needs_kl


def test_linear_decay_ends_at_0_and_never_below():
    rate = LearningRate(LearningFlags(lr_schedule="linear_decay", learning_rate=1.0), 100)
    rates = []
    for frame in (0, 25, 100, 130):
        rate.at_frame(frame)
        rates.append(rate.value)
    assert rates == [1.0, 0.75, 0.0, 0.0]


def adam_direction(gradients, beta1, beta2, eps):
    """Returns the direction of the last step: Kingma & Ba 2015, algorithm 1, in float64."""
    m = v = 0.0
    for gradient in gradients:
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
    steps = len(gradients)
    return (m / (1 - beta1**steps)) / (np.sqrt(v / (1 - beta2**steps)) + eps)


@pytest.mark.parametrize("name", ["adam", "lamb"])
def test_optimizers_are_their_definitions(name):
    """LAMB is Adam's step, scaled for each matrix to the norm of its weights (You et al. 2020)."""
    rng = np.random.default_rng(0)
    flags = LearningFlags(optimizer=name, learning_rate=0.01, adam_eps=1e-3, adam_beta1=0.8, adam_beta2=0.9)
    starts = [rng.standard_normal((3, 2)), np.zeros((2, 2)), np.zeros(4), np.ones(3)]
    parameters = [torch.nn.Parameter(torch.tensor(start, dtype=torch.float32)) for start in starts]
    optimizer = make_optimizer(flags, parameters)
    expected, seen = [start.copy() for start in starts], [[] for _ in starts]
    for _ in range(5):
        for i, parameter in enumerate(parameters):
            gradient = rng.standard_normal(starts[i].shape)
            parameter.grad = torch.tensor(gradient, dtype=torch.float32)
            seen[i].append(gradient)
            step = adam_direction(seen[i], 0.8, 0.9, 1e-3)
            norms = np.linalg.norm(expected[i]), np.linalg.norm(step)
            scaled = name == "lamb" and parameter.ndim > 1 and min(norms) > 0
            trust = norms[0] / norms[1] if scaled else 1.0
            expected[i] -= 0.01 * trust * step
        optimizer.step()
    for parameter, values in zip(parameters, expected):
        np.testing.assert_allclose(parameter.detach().numpy(), values, rtol=1e-4, atol=1e-6)


def test_an_adam_step_does_not_load_the_compiler_which_would_cost_a_second_at_the_start():
    code = """
import sys, torch
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.optimizers import load_optimizer, make_optimizer
weights = torch.nn.Parameter(torch.zeros(2))
optimizer = make_optimizer(LearningFlags(learning_rate=0.5), [weights])
optimizer.zero_grad(set_to_none=True)
weights.grad = torch.ones(2)
optimizer.step()
load_optimizer(optimizer, optimizer.state_dict())
assert torch.allclose(weights, torch.full((2,), -0.5)), weights
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rmsprop_is_torch_s_and_continues_after_a_resume_with_its_own_constants():
    start = [torch.randn(shape, generator=torch.manual_seed(0)) for shape in ((8, 5), (8,))]
    ours, theirs = ([torch.nn.Parameter(tensor.clone()) for tensor in start] for _ in range(2))
    flags = LearningFlags(optimizer="rmsprop", learning_rate=0.01)
    optimizer = make_optimizer(flags, ours)
    reference = torch.optim.RMSprop(theirs, lr=0.01, alpha=0.99, eps=0.01)
    for step in range(4):
        for mine, other in zip(ours, theirs):
            mine.grad = torch.randn(mine.shape, generator=torch.manual_seed(step))
            other.grad = mine.grad.clone()
        optimizer.step()
        reference.step()
        if step == 1:
            saved = optimizer.state_dict()
            saved["param_groups"][0]["eps"] = 7.0
            optimizer = make_optimizer(flags, ours)
            load_optimizer(optimizer, saved)
    for mine, other in zip(ours, theirs):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-7)


LAYOUTS = {
    "slice of columns": lambda: torch.randn(4, 6)[:, :3],
    "slice of channels": lambda: torch.randn(8, 4, 3, 3)[:, :3],
    "every second": lambda: torch.randn(10)[::2],
    "transposed": lambda: torch.randn(4, 6).t(),
    "slice of transposed": lambda: torch.randn(4, 6).t()[:3],
    "channels_last": lambda: torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
    "number": lambda: torch.randn(3)[1],
}


@pytest.mark.parametrize("name", ["adam", "lamb", "rmsprop"])
def test_weights_are_trained_alike_whatever_their_layout_in_memory_is(name):
    """Also those of a slice of other weights, whose neighbours in memory stay as they are."""
    torch.manual_seed(0)
    given = [make() for make in LAYOUTS.values()]
    memory = [tensor.untyped_storage().tolist() for tensor in given[:3]]
    ours = torch.nn.ParameterList(map(torch.nn.Parameter, given))
    theirs = torch.nn.ParameterList(tensor.clone().contiguous() for tensor in given)
    flags = LearningFlags(optimizer=name, learning_rate=0.01)
    for weights in (ours, theirs):
        torch.manual_seed(1)
        descent = GradientDescent(flags, {"model": weights})
        for _ in range(3):
            descent.step(sum((weight * torch.randn(weight.shape)).sum() for weight in weights), 0.01, 1)
        descent.load_state_dict(descent.state_dict())
    for layout, mine, other in zip(LAYOUTS, ours, theirs):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-7, msg=layout)
    assert [tensor.untyped_storage().tolist() for tensor in given[:3]] == memory


@pytest.mark.parametrize("limit", [0.5, 1e9, float("inf")])
def test_the_adam_step_and_clipping_are_torch_s_to_the_last_bit(limit):
    start = [torch.randn(shape, generator=torch.manual_seed(0)) for shape in ((64, 17), (64,), (4, 3, 2, 2))]
    start.append(torch.ones(3))  # without a gradient
    ours, theirs = ([torch.nn.Parameter(tensor.clone()) for tensor in start] for _ in range(2))
    flags = LearningFlags(learning_rate=0.01)
    optimizer = make_optimizer(flags, ours)
    betas = (flags.adam_beta1, flags.adam_beta2)
    reference = torch.optim.Adam(theirs, 0.01, betas, flags.adam_eps, fused=True)
    for step in range(3):
        for mine, other in zip(ours[:-1], theirs):
            mine.grad = torch.randn(mine.shape, generator=torch.manual_seed(step))
            other.grad = mine.grad.clone()
        norm = clip_gradient(optimizer, limit)
        assert norm == float(torch.nn.utils.clip_grad_norm_(theirs, limit))
        optimizer.step()
        reference.step()
        optimizer.zero_grad()
        assert all(parameter.grad is None for parameter in ours)
    assert all(torch.equal(mine, other) for mine, other in zip(ours, theirs))
    states = optimizer.state_dict()["state"], reference.state_dict()["state"]
    assert states[0].keys() == states[1].keys()
    for index, state in states[1].items():
        assert all(torch.equal(states[0][index][name], tensor) for name, tensor in state.items())
