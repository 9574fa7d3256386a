import numpy as np
import pytest
import torch

from sample_factory.config.sections import ModelFlags
from sample_factory.models.cores import make_core
from sample_factory.models.network_registry import CORES

STEPS = 9
ROWS = 5
IN = 6
HIDDEN = 7


RNN_TYPES = list(CORES)


def make_test_core(rnn_type="gru", layers=1):
    torch.manual_seed(0)
    memory = 3 if layers == 1 else STEPS + 3  # shorter and longer than the trajectory
    sizes = {"rnn_num_layers": layers, "hidden_size": HIDDEN, "gtrxl_memory": memory, "gtrxl_heads": 7}
    return make_core(ModelFlags(rnn_type=rnn_type, **sizes), IN)


def step_by_step(core, x, state, resets):
    """Ground truth: zeroes the state where it is reset, then runs one step, T times."""
    outputs = []
    for t in range(len(x)):
        state = torch.where(torch.from_numpy(resets[t]).unsqueeze(-1), 0.0, state)
        out, state = core(x[t : t + 1], state)
        outputs.append(out)
    return torch.cat(outputs), state


RESETS = {
    "none": np.zeros((STEPS, ROWS), bool),
    "all": np.ones((STEPS, ROWS), bool),
    "first": np.arange(STEPS)[:, None] == np.zeros(ROWS),
    "last": np.arange(STEPS)[:, None] == np.full(ROWS, STEPS - 1),
    "one row a step": np.eye(STEPS, ROWS, dtype=bool),
    "random": np.random.default_rng(0).random((STEPS, ROWS)) < 0.2,
}


@pytest.mark.parametrize("name", RESETS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("rnn_type", RNN_TYPES)
def test_a_whole_trajectory_equals_step_by_step(rnn_type, layers, name):
    core = make_test_core(rnn_type, layers)
    results = []
    for run in (core, lambda *args: step_by_step(core, *args)):
        torch.manual_seed(1)
        x = torch.randn(STEPS, ROWS, IN, requires_grad=True)
        state = torch.randn(ROWS, core.state_size, requires_grad=True)
        outputs, last_state = run(x, state, RESETS[name])
        core.zero_grad()
        (outputs.square().sum() + last_state.sum()).backward()
        results.append((outputs, last_state, x.grad, state.grad, *(p.grad for p in core.parameters())))
    for ours, expected in zip(*results):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_an_lstm_row_holds_h_then_c_of_each_layer():
    core = make_test_core("lstm", 2)
    out, state = core(torch.randn(1, ROWS, IN), torch.zeros(ROWS, core.state_size))
    torch.testing.assert_close(state.view(ROWS, 2, 2, HIDDEN)[:, 1, 0], out[0])


def test_without_an_rnn_features_pass_through():
    core = make_core(ModelFlags(use_rnn=False), IN)
    x = torch.randn(STEPS, ROWS, IN)
    state = torch.zeros(ROWS, 0)
    assert core.state_size == 0 and core.out_size == IN
    out, out_state = core(x, state, RESETS["random"])
    assert out is x and out_state is state


@pytest.mark.parametrize("rnn_type", RNN_TYPES)
def test_state_and_outputs_stay_float32_under_autocast(rnn_type):
    core = make_test_core(rnn_type, 2)
    x = torch.randn(STEPS, ROWS, IN)
    state = torch.randn(ROWS, core.state_size)
    expected, expected_state = core(x, state, RESETS["random"])
    with torch.autocast("cpu", torch.bfloat16):
        outputs, last_state = core(x.bfloat16(), state, RESETS["random"])
    assert outputs.dtype == last_state.dtype == torch.float32
    torch.testing.assert_close(outputs, expected, rtol=0.05, atol=0.05)
    torch.testing.assert_close(last_state, expected_state, rtol=0.05, atol=0.05)
