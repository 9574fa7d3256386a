"""Learning on a GPU against learning on the CPU, and bfloat16 against float32."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from sample_factory.algo.advantages import gae, vtrace
from sample_factory.checkpoints.file_format import read_state
from sample_factory.config.sections import ModelFlags
from sample_factory.models.cores import make_core
from tests.algo.trajectories import random_steps
from tests.gpu.devices import BEST, DEVICES, FLAG_VALUES
from tests.learning.learners import build_learner
from tests.learning.test_learner import B, H, T, make_batch
from tests.learning.test_learner_group import numbers, on_device

CORES = ["none", "gru", "lstm", "mingru", "gtrxl"]
IMAGES = gym.spaces.Dict(obs=gym.spaces.Box(0, 255, (3, 36, 48), np.uint8))
VECTORS = gym.spaces.Dict(obs=gym.spaces.Box(-5, 5, (4,), np.float32))


def make_learner(device, core="none", precision="fp32", space=VECTORS, **flags):
    learning = {"rollout": T, "batch_size": T * B, **flags}
    rnn = {"use_rnn": core != "none"} | ({} if core == "none" else {"rnn_type": core})
    model = {"hidden_size": H, "encoder_mlp_layers": (H,), **rnn}
    actions = gym.spaces.Discrete(3)
    return build_learner(space, actions, learning, model, device, precision, max_policy_lag=10)


def batch_for(learner, seed=0, space=VECTORS):
    batch = make_batch(seed=seed, state_size=learner.model.state_size)
    batch = batch._replace(versions=torch.full_like(batch.versions, learner.version))
    if space is IMAGES:
        pixels = np.random.default_rng(seed).integers(0, 256, (T + 1, B, 3, 36, 48), np.uint8)
        batch = batch._replace(obs={"obs": torch.from_numpy(pixels)})
    return on_device(batch, learner.device)


def assert_states_close(left, right, tolerance):
    ours, theirs = list(numbers(left.state_dict())), list(numbers(right.state_dict()))
    assert len(ours) == len(theirs) > 20
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", range(3))
def test_targets_on_a_device_are_those_in_float64_on_the_cpu(device, seed):
    steps = random_steps(np.random.default_rng(seed))
    log_ratios = 0.7 * torch.randn(steps.values.shape, generator=torch.Generator().manual_seed(seed))
    moved = [tensor.to(device) for tensor in steps]
    exact = [tensor.double() for tensor in steps]
    for ours, expected in (
        (vtrace(log_ratios.to(device), *moved, lam=0.9), vtrace(log_ratios.double(), *exact, lam=0.9)),
        (gae(*moved, lam=0.9), gae(*exact, lam=0.9)),
    ):
        for one, other in zip(ours, expected):
            assert one.device.type == device
            torch.testing.assert_close(one.cpu().double(), other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", FLAG_VALUES)
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("with_vtrace", [True, False])
def test_a_learner_on_a_device_learns_as_on_the_cpu(device, core, with_vtrace):
    flags = {"with_vtrace": with_vtrace, "optimizer": "rmsprop", "ppo_epochs": 2}
    learners = [make_learner(place, core, **flags) for place in (device, "cpu")]
    learners[0].load_state_dict(learners[1].state_dict())
    for seed in range(3):
        for learner in learners:
            learner.train(batch_for(learner, seed))
    assert_states_close(*learners, tolerance=1e-3)


@pytest.mark.parametrize("device", FLAG_VALUES)
@pytest.mark.parametrize("core", CORES)
def test_bf16_autocast_learns_nearly_what_fp32_learns(device, core):
    found = {}
    for precision in ("bf16", "fp32"):
        learner = make_learner(device, core, precision, IMAGES, ppo_epochs=1)
        assert learner.policy.autocast == (precision == "bf16")
        found[precision] = learner.train(batch_for(learner, space=IMAGES), want_summaries=True)
    for name in ("loss", "value_loss", "entropy", "grad_norm"):
        assert found["bf16"][name] == pytest.approx(found["fp32"][name], rel=0.05, abs=0.01), name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("core", [core for core in CORES if core != "none"])
def test_gradients_below_the_range_of_float16_pass_through_a_recurrent_core(device, core):
    """A mean over thousands of samples has gradients of 1e-7 and less for each."""
    torch.manual_seed(0)
    made = make_core(ModelFlags(rnn_type=core, hidden_size=16), 8).to(device)
    gradients = []
    for autocast, scale in ((False, 1.0), (True, 1e-9)):
        x = torch.linspace(-1, 1, T * B * 8, device=device).view(T, B, 8).requires_grad_()
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            outputs, _ = made(x, torch.zeros(B, made.state_size, device=device))
        (outputs.float().square().sum() * scale).backward()
        gradients.append(x.grad.cpu() / scale)
    exact, ours = gradients
    assert (ours - exact).norm() < 0.05 * exact.norm()


@pytest.mark.parametrize(("saved_on", "loaded_on"), [(BEST, "cpu"), ("cpu", BEST)])
def test_training_continues_on_another_device_from_a_checkpoint(tmp_path, saved_on, loaded_on):
    first, second = make_learner(saved_on, "gru"), make_learner(loaded_on, "gru")
    first.train(batch_for(first))
    torch.save(first.state_dict(), tmp_path / "state.pth")
    second.load_state_dict(read_state(tmp_path / "state.pth"))
    assert second.version == first.version == 1
    for learner in (first, second):
        learner.train(batch_for(learner, seed=1))
    assert_states_close(first, second, tolerance=1e-3)
