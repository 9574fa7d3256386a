"""Which algorithm learns when sampling is far away? Trains with old weights, and draws reward against delay.

    python -m sample_factory run --run=examples/policy_lag.py --max_parallel=2
    python examples/policy_lag.py train_dir/policy_lag --out=lag.png

A delay of N batches: the policy acts with its weights of N batches ago (--forced_policy_lag, in SGD steps).
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sample_factory.monitoring.policy_progress import TAGS
from sample_factory.plotting.drawing import colour, dashes, house_style, marker, new_figure
from sample_factory.plotting.metrics import Curve, TrainedExperiment
from sample_factory.plotting.plot_groups import read_runs
from sample_factory.runner.run_description import Experiment, ParamGrid, RunDescription

ALGORITHMS = ("APPO", "IMPACT", "VMPO")
DELAYS = (0, 4, 16, 64, 256)  # batches
STEPS_PER_BATCH = {"IMPACT": 2}  # --impact_uses; 1 for the others
REWARD = TAGS["reward"]
LAG = "train/version_diff_avg"  # SGD steps


def grid(delays: Sequence[int], seeds: Sequence[int]) -> ParamGrid:
    """Returns all combinations of algorithm, delay and seed."""
    pairs = [(algo, delay * STEPS_PER_BATCH.get(algo, 1)) for algo in ALGORITHMS for delay in delays]
    return ParamGrid([("seed", seeds), (("algo", "forced_policy_lag"), pairs)])


# One SGD step for each batch. In one process, the lag is the forced one and at most two steps more.
CART_POLE = (
    "python -m sample_factory.train --env=gym_CartPole-v1 --serial_mode=True --num_workers=1 "
    "--worker_num_splits=1 --num_envs_per_worker=16 --batch_size=256 --ppo_epochs=1 "
    "--num_batches_per_iteration=1 --train_for_env_steps=250000"
)
DOOM = (
    "python -m sample_factory.train --cfg=configs/doom_basic.json --batch_size=256 "
    "--train_for_env_steps=300000"
)
RUN_DESCRIPTION = RunDescription(
    "policy_lag",
    [
        Experiment("cart_pole", CART_POLE, grid(DELAYS, (1, 2, 3)).generate_params()),
        Experiment("doom_basic", DOOM, grid((0, 16, 64), (1,)).generate_params()),
    ],
)


class Result(NamedTuple):
    """One run. delay: in batches. reward, lag (in SGD steps): means over the second half of the frames."""

    env: str
    algo: str
    delay: int
    seed: int
    reward: float
    lag: float


def result_of(run: TrainedExperiment) -> Result:
    """Returns what is drawn of a run."""
    algo, lag, seed = (json.loads(run.flags[name]) for name in ("algo", "forced_policy_lag", "seed"))
    delay = lag // STEPS_PER_BATCH.get(algo, 1)
    return Result(run.env, algo, delay, seed, second_half(run.curves[REWARD]), second_half(run.curves[LAG]))


def second_half(curve: Curve) -> float:
    """Returns the mean of a curve over the second half of the frames."""
    steps = np.linspace(curve.steps[-1] / 2, curve.steps[-1], 101)
    return float(np.interp(steps, curve.steps, curve.values).mean())


def draw(results: Sequence[Result], out: Path) -> None:
    """Draws a panel for each env, with a line for each algorithm: the mean of the seeds, and their range."""
    envs = sorted({result.env for result in results}, reverse=True)
    with house_style():
        figure = new_figure((4.2 * len(envs), 3.4))
        for panel, env in zip(figure.subplots(1, len(envs), squeeze=False)[0], envs):
            draw_env(panel, [result for result in results if result.env == env])
            panel.set_title(env)
        figure.axes[0].set_ylabel("reward (mean of the second half of a run)")
        lines, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(lines, labels, loc="outside lower center", ncols=len(labels))
        figure.savefig(out, dpi="figure")


def draw_env(panel, results: Sequence[Result]) -> None:
    """Draws the lines of one env."""
    delays = sorted({result.delay for result in results})
    for number, algo in enumerate(ALGORITHMS):
        rewards: dict[int, list[float]] = {}
        for result in sorted(results, key=lambda result: result.delay):
            if result.algo == algo:
                rewards.setdefault(delays.index(result.delay), []).append(result.reward)
        look = {"color": colour(number), "linestyle": dashes(number), "marker": marker(number)}
        panel.plot(list(rewards), list(map(np.mean, rewards.values())), label=algo, markersize=4, **look)
        lows, highs = (list(map(limit, rewards.values())) for limit in (min, max))
        panel.fill_between(list(rewards), lows, highs, color=colour(number), alpha=0.15, linewidth=0)
    panel.set_xticks(range(len(delays)), map(str, delays))
    panel.set_xlabel("delay of the weights that act (batches)")


def main(argv: list[str]) -> int:
    """Prints and draws the runs of some folders. Returns the exit code."""
    if not argv:
        print(f"usage: python {sys.argv[0]} FOLDER [FOLDER ...] [--out=lag.png]", file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("lag.png"))
    arguments = parser.parse_args(argv)
    runs = read_runs(arguments.folders, [REWARD, LAG], policy_index=0, skip=False, notes=[])
    results = sorted(map(result_of, runs))
    print("env, algorithm, delay, seed: reward, lag in SGD steps")
    for result in results:
        print(
            f"{result.env} {result.algo} {result.delay} {result.seed}: {result.reward:.3f} {result.lag:.1f}"
        )
    draw(results, arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
