"""A GTrXL attends to its window and to nothing else, and computes what the papers define."""

import math

import numpy as np
import pytest
import torch

from sample_factory.config.sections import ModelFlags
from sample_factory.models.gtrxl import GTrXL, _Gate, _steps_since, _WindowAttention, shifted

STEPS = 9
ROWS = 3
IN = 6
SIZE = 8
HEADS = 2


def make_gtrxl(memory, layers=1):
    torch.manual_seed(0)
    flags = {"hidden_size": SIZE, "rnn_num_layers": layers, "gtrxl_memory": memory, "gtrxl_heads": HEADS}
    return GTrXL(ModelFlags(rnn_type="gtrxl", **flags), IN).double()


def inputs():
    torch.manual_seed(1)
    return torch.randn(STEPS, ROWS, IN, dtype=torch.float64)


def start(core):
    return torch.zeros(ROWS, core.state_size, dtype=torch.float64)


def run(core, x, state, resets=None):
    """Runs the core without its conversion to float32."""
    since = None if resets is None else _steps_since(resets)
    return core._run(x, state, since)


def attention_by_definition(attention, context, step, first):
    """Keys and values of each step that is read, and the scores of Transformer-XL, one number at a time.

    context: [S, D] of one row. Reads the steps `first` to `step`.
    """
    read = []
    width = SIZE // HEADS
    queries = attention.query(context[step]).view(HEADS, width)
    for head, query in enumerate(queries):
        scores = []
        for j in range(first, step + 1):
            distance = step - j
            halves = [distance * 10_000 ** (-2 * i / SIZE) for i in range(SIZE // 2)]
            code = torch.tensor([*map(math.sin, halves), *map(math.cos, halves)], dtype=torch.float64)
            key = attention.key[head] @ context[j]
            of_position = attention.position[head] @ code
            # The biases are added to the query after the division by sqrt(width).
            query_ = query / math.sqrt(width)
            score = (query_ + attention.content_bias[head]) @ key
            scores.append(score + (query_ + attention.position_bias[head]) @ of_position)
        weights = torch.softmax(torch.stack(scores), 0)
        values = torch.stack([attention.value[head] @ context[j] for j in range(first, step + 1)])
        read.append(weights @ values)
    return attention.out(torch.cat(read))


@pytest.mark.parametrize("memory", [1, 4, 20])
def test_attention_is_that_of_transformer_xl_over_the_window(memory):
    torch.manual_seed(0)
    attention = _WindowAttention(SIZE, HEADS, memory).double()
    for bias in (attention.content_bias, attention.position_bias):
        torch.nn.init.normal_(bias)
    context = torch.randn(ROWS, memory + STEPS, SIZE, dtype=torch.float64)
    ages = torch.from_numpy(np.random.default_rng(0).integers(0, memory + 1, (ROWS, STEPS)).astype(float))
    with torch.no_grad():
        computed = attention(context[:, memory:], context, ages)
        for row in range(ROWS):
            for t in range(STEPS):
                step = memory + t
                expected = attention_by_definition(attention, context[row], step, step - int(ages[row, t]))
                torch.testing.assert_close(computed[row, t], expected, rtol=1e-6, atol=1e-6)


def test_a_gate_is_equation_9_and_mostly_keeps_its_input_at_the_start():
    torch.manual_seed(0)
    gate = _Gate(SIZE)
    x, y = torch.randn(2, 5, SIZE)
    w_r, w_z, w_g = gate.from_output.weight.chunk(3)
    u_r, u_z = gate.from_input.weight.chunk(2)
    r = torch.sigmoid(y @ w_r.T + x @ u_r.T)
    z = torch.sigmoid(y @ w_z.T + x @ u_z.T - gate.bias)
    h = torch.tanh(y @ w_g.T + (r * x) @ gate.from_chosen.weight.T)
    torch.testing.assert_close(gate(x, y), (1 - z) * x + z * h)
    assert z.mean() < 0.2


@pytest.mark.parametrize(("steps", "width"), [(1, 1), (1, 4), (5, 1), (5, 3), (3, 7)])
def test_a_window_is_moved_to_the_columns_of_its_steps(steps, width):
    windows = torch.randn(2, 3, steps, width)
    moved = shifted(windows)
    expected = torch.full((2, 3, steps, width + steps - 1), -math.inf)
    for t in range(steps):
        expected[:, :, t, t : t + width] = windows[:, :, t]
    assert torch.equal(moved, expected)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_step_sees_the_window_and_nothing_before_it(layers):
    memory = 3
    core = make_gtrxl(memory, layers)
    x = inputs()
    before, _ = run(core, x, start(core))
    for changed in range(STEPS):
        other = x.clone()
        other[changed] += 1
        after, _ = run(core, other, start(core))
        differs = [bool((after[t] != before[t]).any()) for t in range(STEPS)]
        # Each layer sees `memory` steps further back through the layer below it.
        assert differs == [changed <= t <= changed + layers * memory for t in range(STEPS)]


def test_a_reset_clears_the_memory_of_its_row_and_of_no_other():
    core = make_gtrxl(memory=4, layers=2)
    resets = np.zeros((STEPS, ROWS), bool)
    resets[7, 1] = True
    _, without = run(core, inputs(), start(core))
    _, state = run(core, inputs(), start(core), resets)
    assert torch.equal(state[[0, 2]], without[[0, 2]])
    assert state[:, 0].tolist() == [4, 2, 4]
    memories = state[1, 1:].view(2, 4, SIZE)
    assert (memories[:, :2] == 0).all() and (memories[:, 2:] != 0).any(-1).all()


def test_a_row_with_a_count_of_zero_does_not_read_its_memory():
    core = make_gtrxl(memory=4)
    state = torch.randn(ROWS, core.state_size, dtype=torch.float64)
    state[:, 0] = 0
    torch.testing.assert_close(run(core, inputs(), state)[0], run(core, inputs(), start(core))[0])
