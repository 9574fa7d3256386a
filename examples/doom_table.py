"""Doom on a small budget: how good is the agent after half a million, one and four million frames?

    python -m sample_factory.runner.run --run=examples/doom_table.py --max_parallel=1
    python examples/doom_table.py train_dir/doom_table --csv=doom.csv --picture=doom.png

The first command trains three seeds of each scenario, and resumes what was stopped. The second one makes a
table of what is trained so far. One cell:

    python -m sample_factory.train --env=doom_battle --seed=1 --train_for_env_steps=1_000_000
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sample_factory import evaluate
from sample_factory.monitoring.policy_progress import TAGS
from sample_factory.plotting.plot_groups import plot_groups
from sample_factory.plotting.read_summaries import Curve, find_experiments, read_policies
from sample_factory.runner.run_description import Experiment, ParamGrid, RunDescription

BUDGETS = (500_000, 1_000_000, 4_000_000)  # env frames
SCENARIOS = (
    "doom_basic",
    "doom_defend_the_center",
    "doom_defend_the_line",
    "doom_deadly_corridor",
    "doom_health_gathering",
    "doom_health_gathering_supreme",
    "doom_my_way_home",
    "doom_battle",
    "doom_battle2",
    "doom_deathmatch_bots",
)
COLUMNS = ("env", "seed", "frames", "minutes", "reward", "objective", "sampled", "deterministic")
EPISODES = 50

# The last one varies fastest, so that every scenario has a seed before any has two.
parameters = ParamGrid([("seed", [1, 2, 3]), ("env", SCENARIOS)])
command = f"python -m sample_factory.train --train_for_env_steps={BUDGETS[-1]}"
RUN_DESCRIPTION = RunDescription("doom_table", [Experiment("doom", command, parameters.generate_params())])


def at(curve: Curve, frames: int) -> tuple[float, float]:
    """Returns seconds and value of the last point of a curve until `frames`."""
    index = max(0, int(np.searchsorted(curve.steps, frames, side="right")) - 1)
    return float(curve.seconds[index]), float(curve.values[index])


def rows_of(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields a row for each budget that a run has reached. The last one has the results of evaluations."""
    flags, (curves,) = read_policies(folder)
    reward = curves.get(TAGS["reward"])
    if reward is None:  # --stats_avg episodes have not ended yet
        return
    objective = curves.get(TAGS["true_objective"], reward)
    reached = [frames for frames in BUDGETS if frames <= 1.01 * reward.steps[-1]]
    for frames in reached:
        seconds, value = at(reward, frames)
        row = {"env": flags["env"], "seed": flags["seed"], "frames": frames, "minutes": f"{seconds / 60:.1f}"}
        row |= {"reward": f"{value:.4g}", "objective": f"{at(objective, frames)[1]:.4g}"}
        if frames == BUDGETS[-1]:
            for name in ("sampled", "deterministic"):
                is_deterministic = name == "deterministic"
                result = evaluate(folder, num_episodes=EPISODES, deterministic=is_deterministic, seed=1)
                row[name] = f"{result.true_objective.mean:.4g}"
        yield row


def main(argv: Sequence[str]) -> int:
    """Writes the table of a folder. Returns the exit code."""
    if not argv:
        print(f"usage: python {sys.argv[0]} FOLDER [--csv=doom.csv] [--picture=doom.png]", file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the grid, or any other folder with experiments")
    parser.add_argument("--csv", type=Path, default=Path("doom.csv"), help="table to write")
    parser.add_argument("--picture", type=Path, help="curves to draw, a panel for each scenario")
    arguments = parser.parse_args(argv)
    folders = find_experiments(arguments.folder)
    with open(arguments.csv, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for folder in folders:
            for row in rows_of(folder):
                writer.writerow(row)
                print(*row.values(), flush=True)
    if arguments.picture is not None:
        print("\n".join(plot_groups({"default flags": folders}, arguments.picture, skip_unreadable=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
