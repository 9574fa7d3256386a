"""Tests of inference as on a GPU. Without a GPU, everything runs on the CPU, and CUDA graphs are imitated."""

import copy
import logging

import gymnasium as gym
import numpy as np
import pytest
import torch

from sample_factory.config.sections import ModelFlags
from sample_factory.exchange.run_plan import DRAWN, ActionChoice
from sample_factory.models.policy_spec import BuiltPolicy, PolicySpec
from sample_factory.runtime.gpu_work import GraphCapture
from sample_factory.sampling.inference.devices import CpuInference, GpuInference, RowShapes, make_inference
from tests.gpu.devices import FLAG_VALUES, NEEDS_GPU

S = gym.spaces
SPACE = S.Dict(obs=S.Box(0, 255, (3, 36, 48), np.uint8), speed=S.Box(-9, 9, (3,), np.float32))
ACTIONS = S.Tuple([S.Discrete(3), S.Box(-1, 1, (2,)), S.Discrete(2)])
NUM_ACTIONS = 4
FLAGS = ModelFlags(hidden_size=16, encoder_mlp_layers=(12,))
SHAPES = RowShapes({key: (box.shape, box.dtype) for key, box in SPACE.items()}, 16)


class Imitation:
    """Imitates a graph: does the same work again, in the same memory."""

    def __init__(self):
        self.captures = self.replays = 0

    def __call__(self, run):
        self.captures += 1
        result = run()

        def replay():
            self.replays += 1
            for old, new in zip(result, run()):
                old.copy_(new)
            return result

        return replay


class Counted(Imitation):
    """Counts captures and replays of real graphs."""

    def __init__(self, device):
        super().__init__()
        self.real = GraphCapture(device)

    def __call__(self, run):
        self.captures += 1
        replay = self.real(run)

        def counted():
            self.replays += 1
            return replay()

        return counted


def build(device):
    torch.manual_seed(0)
    policy = PolicySpec(FLAGS, SPACE, ACTIONS, True, device, "fp32").build()
    policy.model.requires_grad_(False)
    return policy


def on_cpu(policy):
    return BuiltPolicy(copy.deepcopy(policy.model).cpu(), torch.device("cpu"), False)


def capture_on(policy):
    return Imitation() if policy.device.type == "cpu" else Counted(policy.device)


def fill(inputs, seed):
    rng = np.random.default_rng(seed)
    inputs.obs["obs"][...] = rng.integers(0, 256, inputs.obs["obs"].shape)
    inputs.obs["speed"][...] = rng.normal(size=inputs.obs["speed"].shape)
    inputs.rnn_state[...] = rng.normal(size=inputs.rnn_state.shape)


@torch.inference_mode()
def ask(inference, model, n, seed=0):
    inputs = inference.inputs(n)
    fill(inputs, seed)
    return inference.answer(model, inputs)


def assert_equal_except_actions(answers, expected, rtol=1e-3, atol=1e-4):
    """Compares values, logits and states. Actions are random, and log-probabilities depend on them."""
    ours, theirs = answers.packed[:, NUM_ACTIONS + 1 :], expected.packed[:, NUM_ACTIONS + 1 :]
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)
    np.testing.assert_allclose(answers.rnn_state, expected.rnn_state, rtol=rtol, atol=atol)


@pytest.mark.parametrize("device", FLAG_VALUES)
def test_padded_batches_give_the_answers_that_batches_of_the_right_size_give(device):
    policy = build(device)
    inference = GpuInference(policy, SHAPES, capture_on(policy))
    plain = on_cpu(policy)
    for n in (33, 1, 8, 9, 2, 17, 33, 5):
        answers = ask(inference, policy.model, n, seed=n)
        assert len(answers.packed) == len(answers.rnn_state) == n
        assert_equal_except_actions(answers, ask(CpuInference(plain, SHAPES), plain.model, n, seed=n))


@pytest.mark.parametrize("device", FLAG_VALUES)
def test_there_is_one_graph_for_each_power_of_two(device):
    policy = build(device)
    capture = capture_on(policy)
    inference = GpuInference(policy, SHAPES, capture)
    for n in (1, 8, 3, 9, 16, 10, 7, 64, 33):
        ask(inference, policy.model, n)
    assert (capture.captures, capture.replays) == (3, 9)


@pytest.mark.parametrize("device", FLAG_VALUES)
def test_actions_differ_from_call_to_call(device):
    policy = build(device)
    inference = GpuInference(policy, SHAPES, capture_on(policy))
    drawn = [ask(inference, policy.model, 8).packed[:, :NUM_ACTIONS].copy() for _ in range(3)]
    assert not np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn[1], drawn[2])


@pytest.mark.parametrize("device", FLAG_VALUES)
def test_weights_and_statistics_that_are_loaded_after_a_capture_are_used(device):
    policy = build(device)
    inference = GpuInference(policy, SHAPES, capture_on(policy))
    before = ask(inference, policy.model, 8).packed.copy()
    torch.manual_seed(1)
    newer = PolicySpec(FLAGS, SPACE, ACTIONS, True, "cpu", "fp32").build()
    newer.model.observation_normalizers.update(
        {"obs": torch.full((1, 3, 36, 48), 9), "speed": torch.ones(1, 3)}
    )
    with torch.inference_mode():
        policy.model.load_state_dict(newer.model.state_dict())
    answers = ask(inference, policy.model, 8)
    assert not np.allclose(answers.packed[:, -1], before[:, -1])
    assert_equal_except_actions(answers, ask(CpuInference(newer, SHAPES), newer.model, 8))


@pytest.mark.parametrize("device", FLAG_VALUES)
def test_past_selves_act_with_their_own_weights_and_without_a_graph(device):
    policy = build(device)
    past = build(device).model  # the same weights
    with torch.no_grad():
        past.critic_head.bias += 7.0
    capture = capture_on(policy)
    inference = GpuInference(policy, SHAPES, capture)
    value = NUM_ACTIONS + 1
    live = ask(inference, policy.model, 8).packed[:, value].copy()
    np.testing.assert_allclose(ask(inference, past, 8).packed[:, value], live + 7.0, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(ask(inference, policy.model, 8).packed[:, value], live, rtol=1e-3, atol=1e-3)
    assert capture.replays == 2


@pytest.mark.parametrize("device", FLAG_VALUES)
def test_a_network_that_cannot_be_captured_acts_without_graphs_after_one_warning(device, caplog):
    policy = build(device)

    def refuse(run):
        raise RuntimeError("operation not permitted when stream is capturing")

    inference = GpuInference(policy, SHAPES, refuse)
    plain = on_cpu(policy)
    with caplog.at_level(logging.WARNING, "sample_factory"):
        for n in (3, 12, 3):
            answers = ask(inference, policy.model, n)
            assert_equal_except_actions(answers, ask(CpuInference(plain, SHAPES), plain.model, n))
    (message,) = [record.getMessage() for record in caplog.records]
    assert "no CUDA graphs" in message and "not permitted" in message


def all_but_the_first_row(outputs):
    outputs.packed[1:, NUM_ACTIONS + 1] += 0.1


def a_logit(outputs):
    outputs.packed[-1, -1] += 0.1


def the_state(outputs):
    outputs.rnn_state[2, 3] = np.nan


def the_log_probability(outputs):
    outputs.packed[0, NUM_ACTIONS] -= 0.2


def the_action(outputs):
    outputs.packed[:, 0] = 1e9


class Wrong(Imitation):
    """Graphs whose replays are wrong by what `spoil` does to the outputs."""

    def __init__(self, spoil, rows=8):
        super().__init__()
        self.spoil = spoil
        self.rows = rows

    def __call__(self, run):
        replay = super().__call__(run)

        def spoiled():
            result = replay()
            if len(result.packed) == self.rows:
                self.spoil(result)
            return result

        return spoiled


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (all_but_the_first_row, "values differ by up to 0.1"),
        (a_logit, "logits differ by up to 0.1"),
        (the_state, "rnn_state differ by up to nan"),
        (the_log_probability, "log-probabilities are not those of its actions"),
        (the_action, "actions are outside the action space"),
    ],
)
def test_a_graph_whose_first_replay_is_wrong_switches_all_graphs_off_with_a_warning(spoil, what, caplog):
    policy = build("cpu")
    capture = Wrong(spoil)
    inference = GpuInference(policy, SHAPES, capture)
    with caplog.at_level(logging.WARNING, "sample_factory"):
        for n in (16, 5, 5, 16, 32):
            answers = ask(inference, policy.model, n, seed=n)
            expected = ask(CpuInference(policy, SHAPES), policy.model, n, seed=n)
            assert_equal_except_actions(answers, expected)
            assert (answers.packed[:, 0] < 3).all()
    (message,) = [record.getMessage() for record in caplog.records]
    assert "CUDA graphs are switched off" in message and "for 8 rows" in message and what in message
    assert (capture.captures, capture.replays) == (2, 2)
    assert "graphs" not in inference.describe()


def test_a_graph_that_repeats_its_capture_instead_of_reading_new_inputs_is_wrong(caplog):
    def repeat(run):
        result = run()
        return lambda: result

    policy = build("cpu")
    inference = GpuInference(policy, SHAPES, repeat)
    with caplog.at_level(logging.WARNING, "sample_factory"):
        answers = ask(inference, policy.model, 8)
    assert_equal_except_actions(answers, ask(CpuInference(policy, SHAPES), policy.model, 8))
    assert "CUDA graphs are switched off" in caplog.text


@pytest.mark.parametrize("device", FLAG_VALUES)
def test_only_the_first_replay_of_a_graph_is_compared(device):
    policy = build(device)
    calls = []
    act = policy.model.act

    def counted(*args):
        calls.append(1)
        return act(*args)

    policy.model.act = counted
    capture = capture_on(policy)
    inference = GpuInference(policy, SHAPES, capture)
    ask(inference, policy.model, 8)
    after_the_first = len(calls)
    for _ in range(3):
        ask(inference, policy.model, 8)
    imitated_work = 3 if policy.device.type == "cpu" else 0
    assert len(calls) == after_the_first + imitated_work
    assert capture.replays == 4


def test_rounding_and_a_network_that_answers_nan_do_not_make_a_graph_wrong(caplog):
    def round_off(outputs):
        outputs.packed[:, NUM_ACTIONS:].mul_(1 + 1e-3)
        outputs.rnn_state.mul_(1 + 1e-3)

    policy = build("cpu")
    inference = GpuInference(policy, SHAPES, Wrong(round_off))
    ask(inference, policy.model, 8)
    with torch.no_grad():
        policy.model.critic_head.bias.fill_(np.nan)
    ask(GpuInference(policy, SHAPES, Imitation()), policy.model, 8)
    assert not caplog.records


@pytest.mark.parametrize("device", FLAG_VALUES)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("core", "choice"),
    [
        ("gru", DRAWN),
        ("lstm", DRAWN),
        ("mingru", DRAWN),
        ("gtrxl", DRAWN),
        ("gru", ActionChoice(samples_continuous=False)),
    ],
)
def test_graphs_answer_as_the_same_network_does_without_them(device, precision, core, choice, caplog):
    torch.manual_seed(0)
    flags = ModelFlags(hidden_size=16, encoder_mlp_layers=(12,), rnn_type=core)
    policy = PolicySpec(flags, SPACE, ACTIONS, True, device, precision).build()
    policy.model.requires_grad_(False)
    if policy.autocast:
        policy.model.prepare_to_act(torch.bfloat16)
    shapes = SHAPES._replace(rnn_state_size=policy.model.state_size)
    capture = capture_on(policy)
    with_graphs = GpuInference(policy, shapes, capture, choice)
    without = GpuInference(policy, shapes, None, choice)
    # For a capture, libraries may choose other kernels, which round differently.
    tolerances = {"rtol": 0.02, "atol": 0.02} if policy.autocast else {}
    for seed, n in enumerate((8, 20, 8, 20, 8)):
        answers = ask(with_graphs, policy.model, n, seed)
        assert_equal_except_actions(answers, ask(without, policy.model, n, seed), **tolerances)
    assert (capture.captures, capture.replays) == (2, 5) and not caplog.records


@NEEDS_GPU
def test_a_real_graph_that_misses_what_python_code_changes_is_found(caplog):
    policy = build("gpu")
    act = policy.model.act
    calls = []

    def drifts(*args):
        calls.append(1)
        output = act(*args)
        return output._replace(values=output.values + float(len(calls)))

    policy.model.act = drifts
    inference = make_inference(policy, SHAPES, cuda_graphs=True)
    with caplog.at_level(logging.WARNING, "sample_factory"):
        ask(inference, policy.model, 8)
    (message,) = [record.getMessage() for record in caplog.records]
    assert "CUDA graphs are switched off" in message and "values differ by up to" in message
    assert "graphs" not in inference.describe()


@NEEDS_GPU
def test_a_network_that_waits_for_the_gpu_acts_without_graphs(caplog):
    policy = build("gpu")
    act = policy.model.act

    def waits(obs, state, *choice):
        float(state.sum())
        return act(obs, state, *choice)

    policy.model.act = waits
    inference = make_inference(policy, SHAPES, cuda_graphs=True)
    plain = on_cpu(build("gpu"))
    with caplog.at_level(logging.WARNING, "sample_factory"):
        for n in (3, 12):
            expected = ask(CpuInference(plain, SHAPES), plain.model, n)
            assert_equal_except_actions(ask(inference, policy.model, n), expected)
    (message,) = [record.getMessage() for record in caplog.records]
    assert "synchroniz" in message
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_a_cpu_needs_no_padding():
    policy = build("cpu")
    inference = make_inference(policy, SHAPES, cuda_graphs=True)
    assert isinstance(inference, CpuInference) and len(inference.inputs(5).rnn_state) == 5
