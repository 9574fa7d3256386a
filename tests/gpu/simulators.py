"""Measures a batched simulator of torch, a cart with a pole, beside training in it.

    python -m tests.gpu.simulators --json=simulators.json

--copies is their number (4,096; without a GPU 64), --seconds the length of the training (45). All other flags
are flags of training. Prints JSON: the frames/s of stepping alone and of training, the milliseconds of a step
and of its parts, and how many values in training batches differ from the simulator's own.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import sample_factory
from sample_factory import train
from sample_factory.benchmarking.machine import describe_hardware
from sample_factory.benchmarking.stages import frame_rate
from sample_factory.config.parsing import parse_config
from sample_factory.config.versions import versions
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.adapters.tensors import Crossing
from sample_factory.envs.env_registry import register_env, resolve_family
from sample_factory.envs.family_flags import device_of_env
from sample_factory.envs.protocol import ObservationRows
from sample_factory.launch.exit_codes import run_command
from sample_factory.learning.algorithms.ppo import PPO
from sample_factory.learning.batch import Batch
from sample_factory.monitoring.figures import read_figures
from sample_factory.runtime.failures import CommandFailed

NAME = "torch_cart"
COPIES = {"cuda": 4096, "cpu": 64}
ALONE_SECONDS = 3.0  # of each measurement of a part
WARMUP_STEPS = 20
WARMUP_SECONDS = 10.0  # of the training
CHECKED_STEPS = 240  # of each copy
PICTURES = (1024, 128, 128, 3)


class Cart:
    """Carts with poles as in Gymnasium's CartPole (Barto, Sutton and Anderson 1983), with any force up to
    10 N, in the form of rsl_rl's VecEnv. The reward is the cosine of the pole's angle.

    It hands out the buffer of its observations, and does not wait for the device.
    """

    num_actions = 1
    max_episode_length = 500

    def __init__(self, num_envs: int = COPIES["cuda"], device: str = "cpu"):
        self.num_envs = num_envs
        self.device = torch.device(device)
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self._state = self._new_states()  # position, speed, angle, angular speed

    def _new_states(self) -> Tensor:
        return torch.rand(self.num_envs, 4, device=self.device) * 0.1 - 0.05

    def get_observations(self) -> dict[str, Tensor]:
        return {"policy": self._state}

    def step(self, actions: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor, dict[str, Tensor]]:
        _, speed, angle, turning = self._state.unbind(dim=1)
        sine, cosine = angle.sin(), angle.cos()
        push = (10 * actions[:, 0].clamp(-1, 1) + 0.05 * turning.square() * sine) / 1.1
        turn = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine.square() / 1.1))
        change = torch.stack([speed, push - 0.05 * turn * cosine / 1.1, turning, turn], dim=1)
        self._state.add_(change, alpha=0.02)
        rewards = self._state[:, 2].cos()
        self.episode_length_buf += 1
        has_failed = (self._state[:, 0].abs() > 2.4) | (self._state[:, 2].abs() > 0.2095)
        time_outs = (self.episode_length_buf >= self.max_episode_length) & ~has_failed
        done = has_failed | time_outs
        self._state.copy_(torch.where(done[:, None], self._new_states(), self._state))
        self.episode_length_buf *= ~done
        return self.get_observations(), rewards, done.long(), {"time_outs": time_outs}


class Entry(NamedTuple):
    """A step of all copies, in their memory. observations: [N, 4], before the step; others: [N]."""

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor


class MarkedCart(Cart):
    """A Cart that keeps a ledger, and observes where in it a copy is: `mark` is (entry, copy)."""

    max_episode_length = 30
    newest: "MarkedCart | None" = None  # of this process

    def __init__(self, num_envs: int = COPIES["cuda"], device: str = "cpu"):
        super().__init__(num_envs, device)
        self.ledger: list[Entry] = []
        MarkedCart.newest = self

    def get_observations(self) -> dict[str, Tensor]:
        copies = torch.arange(self.num_envs, device=self.device)
        mark = torch.stack([torch.full_like(copies, len(self.ledger)), copies], dim=1).float()
        return {**super().get_observations(), "mark": mark}

    def step(self, actions: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor, dict[str, Tensor]]:
        before = self._state.clone()
        _, rewards, done, extras = super().step(actions)
        cut = extras["time_outs"]
        self.ledger.append(Entry(before, actions[:, 0].clone(), rewards.clone(), done.bool() & ~cut, cut))
        return self.get_observations(), rewards, done, extras


class Compares(PPO):
    """Compares training batches with the ledger of the newest MarkedCart."""

    counts: dict[str, int]

    def earlier_batches(self, batch: Batch) -> Sequence[Batch]:
        if MarkedCart.newest is not None:  # otherwise the algorithm is tried out before the run
            for name, count in differences(batch, MarkedCart.newest.ledger).items():
                Compares.counts[name] = Compares.counts.get(name, 0) + count
        return super().earlier_batches(batch)


def differences(batch: Batch, ledger: Sequence[Entry]) -> dict[str, int]:
    """Returns how many steps a batch has, how many ends of episodes of each kind, and in how many steps each
    value differs from the ledger."""
    kept = Entry(*(torch.stack(values).to(batch.rewards.device) for values in zip(*ledger)))
    marks = batch.obs["mark"].long()
    at = marks[:-1].unbind(dim=-1)
    expected = Entry(*(values[at] for values in kept))
    has_jumped = (marks[1:] != marks[:-1] + torch.tensor([1, 0], device=marks.device)).any(dim=-1)
    wrong = {
        "observations": (batch.obs["policy"][:-1] != expected.observations).any(dim=-1),
        "actions": batch.actions[..., 0] != expected.actions,
        "rewards": batch.rewards != expected.rewards,
        "terminated": batch.terminated != expected.terminated,
        "truncated": batch.truncated != expected.truncated,
        "next steps": has_jumped,
        "masks": ~batch.own,
    }
    seen = {
        "steps": batch.own.numel(),
        "episodes that failed": int(expected.terminated.sum()),
        "episodes that were cut": int(expected.truncated.sum()),
    }
    return {**seen, **{f"wrong {name}": int(values.sum()) for name, values in wrong.items()}}


def compare(copies: int, folder: Path, **flags: Any) -> dict[str, int]:
    """Trains in one process; returns the sums of `differences` over all batches."""
    Compares.counts, MarkedCart.newest = {}, None
    own = {"vector_env_copies": copies, "train_for_env_steps": CHECKED_STEPS * copies, "train_dir": folder}
    sample_factory.run(MarkedCart, "compared", algo=Compares, serial_mode=True, seed=1, **own, **flags)
    return Compares.counts


def seconds_per_call(call: Callable[[], Any], device: str) -> float:
    """Returns the mean seconds of a call, over ALONE_SECONDS; the work on the device included."""
    for _ in range(WARMUP_STEPS):
        call()
    finish(device)
    began, number = time.monotonic(), 0
    while time.monotonic() < began + ALONE_SECONDS:
        call()
        number += 1
    finish(device)
    return (time.monotonic() - began) / number


def finish(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def milliseconds(copies: int, device: str) -> dict[str, float]:
    """Returns the milliseconds of a step of a Cart with random actions, and of the parts of the adapter."""
    cart = Cart(copies, device)

    def step() -> Any:
        return cart.step(torch.rand(copies, 1, device=device) * 2 - 1)

    def step_and_wait() -> None:
        step()
        finish(device)

    env = adapt(Cart(copies, device))
    rows = ObservationRows.allocate(env.kinds)
    env.reset(0, rows)
    actions = np.random.default_rng(0).uniform(-1, 1, (copies, 1)).astype(np.float32)
    crossing, of_pictures = Crossing(), Crossing()
    *returned, _ = step()
    finish(device)
    crossing.to_host(tuple(returned))
    pictures = torch.zeros(PICTURES, dtype=torch.uint8, device=device)
    parts: dict[str, Callable[[], Any]] = {
        "step": step,
        "step, waited for": step_and_wait,
        "step through the adapter": lambda: env.step(actions, rows),
        "values to the host": lambda: crossing.to_host(tuple(returned)),
        "actions to the device": lambda: crossing.to_env(actions),
        "pictures to the host": lambda: of_pictures.to_host(pictures),
    }
    return {name: 1000 * seconds_per_call(call, device) for name, call in parts.items()}


def trained(copies: int, seconds: float, typed: Sequence[str], folder: Path) -> dict[str, Any]:
    """Trains with the default flags for batched simulators. Raises CommandFailed."""
    file = folder / "figures.jsonl"
    own = [f"--vector_env_copies={copies}", f"--train_for_seconds={seconds}", f"--figures_file={file}"]
    own += [f"--train_dir={folder}", "--experiment=trained", "--status_interval=1", *typed]
    if train.main(own, env=Cart) != 0:
        raise CommandFailed("the training has failed")
    figures = read_figures(file)
    began, end = figures[0].time + min(WARMUP_SECONDS, seconds / 3), figures[-1].time
    return {
        "frames/s": frame_rate(figures, 0, (began, end)),
        "components": [line.components for line in figures if line.components][-1:],
    }


def measure(argv: Sequence[str]) -> None:
    """Prints what was measured, and writes it to the --json file. Raises ConfigError and CommandFailed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--copies", type=int)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--json", type=Path)
    own, typed = parser.parse_known_args(argv)
    register_env(NAME, Cart)
    cfg = parse_config([f"--env={NAME}", *typed], resolve_family).namespace()
    device = device_of_env(cfg, 0)
    copies = own.copies or COPIES[device.partition(":")[0]]
    with tempfile.TemporaryDirectory(prefix="sample_factory_simulators_") as folder:
        training = trained(copies, own.seconds, typed, Path(folder))
        compared = compare(copies, Path(folder), device=cfg.device, env_device=cfg.env_device)
    parts = milliseconds(copies, device)
    found = {
        "hardware": describe_hardware(),
        "versions": dict(versions()),
        "device": device,
        "copies": copies,
        "alone, frames/s": copies / parts["step"] * 1000,
        "training": training,
        "step of the training, ms": 1000 * copies / training["frames/s"] if training["frames/s"] else None,
        "ms": parts,
        "compared": compared,
    }
    text = json.dumps(found, indent=4)
    print(text)
    if own.json is not None:
        own.json.write_text(f"{text}\n")
    wrong = {name: count for name, count in compared.items() if name.startswith("wrong") and count}
    if wrong:
        raise CommandFailed(f"training batches differ from the simulator: {wrong}")


if __name__ == "__main__":
    sys.exit(run_command(measure))
