"""Doom on a small budget: how good is the agent after half a million, one and four million frames?

    python -m sample_factory run --run=examples/doom_table.py --max_parallel=1
    python examples/doom_table.py train_dir/doom_table --csv=configs/doom.csv --picture=doom.png

The first command trains three seeds of each scenario, and resumes what was stopped. The second one adds what
is trained so far to the table, and draws all of it. Runs that the table has already, e.g. from another
machine, stay as they are. One cell:

    python -m sample_factory.train --env=doom_battle --seed=1 --train_for_env_steps=1_000_000

Runs of other flags, or of version 2 of Sample Factory, are added under a name of their own:

    python examples/doom_table.py OTHER_FOLDER --csv=configs/doom.csv --trainer="version 2.1.1"
"""

import argparse
import csv
import math
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from sample_factory import evaluate
from sample_factory.benchmarking.benchmark import describe_hardware
from sample_factory.config.flags import ConfigError
from sample_factory.monitoring.policy_progress import TAGS
from sample_factory.plotting.drawing import MAX_COLUMNS, Line, Panel, draw_panels
from sample_factory.plotting.metrics import Curve, find_experiments, read_policies
from sample_factory.runner.run_description import Experiment, ParamGrid, RunDescription

STEP, LAST = 250_000, 4_000_000  # env frames: between the rows of a run; length of a run of the grid
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
SHOWN = (500_000, 1_000_000, LAST)  # frames with a column in the table that is printed
OURS = "default flags"
IDENTITY = ("env", "trainer", "seed", "frames")
COLUMNS = (*IDENTITY, "minutes", "reward", "objective", "sampled", "deterministic", "machine")
EPISODES = 50  # of each evaluation
Row = dict[str, str]

# The last one varies fastest, so that every scenario has a seed before any has two.
parameters = ParamGrid([("seed", [1, 2, 3]), ("env", SCENARIOS)])
command = f"python -m sample_factory.train --train_for_env_steps={LAST}"
RUN_DESCRIPTION = RunDescription("doom_table", [Experiment("doom", command, parameters.generate_params())])


def at(curve: Curve, frames: int) -> tuple[float, float]:
    """Returns seconds and value of the last point of a curve until `frames`."""
    index = max(0, int(np.searchsorted(curve.steps, frames, side="right")) - 1)
    return float(curve.seconds[index]), float(curve.values[index])


def add_rows(folder: Path, trainer: str, table: dict[tuple[str, ...], Row]) -> None:
    """Adds a row at each multiple of STEP. Evaluates complete runs of OURS of LAST frames or more."""
    try:
        flags, (curves, *_) = read_policies(folder)
    except ConfigError as error:  # it has just begun
        print(error, file=sys.stderr)
        return
    reward = curves.get(TAGS["reward"])
    if reward is None or flags["seed"] is None:  # --stats_avg episodes have not ended yet; not of the grid
        return
    objective = curves.get(TAGS["true_objective"], reward)
    first = math.ceil(reward.steps[0] / STEP) * STEP  # there is no reward before --stats_avg episodes
    for frames in range(first, int(reward.steps[-1]) + 1, STEP):
        seconds, value = at(reward, frames)
        row = dict(zip(IDENTITY, map(str, (flags["env"], trainer, flags["seed"], frames))))
        known = table.get(tuple(row.values()))
        if known is not None:
            if known["reward"] != f"{value:.4g}":
                reason = "of another run, or from before it was resumed"
                print(f"{folder}: the table has rows of this seed {reason}; delete them", file=sys.stderr)
                return
            continue
        row |= {"minutes": f"{seconds / 60:.1f}", "reward": f"{value:.4g}"}
        row |= {"objective": f"{at(objective, frames)[1]:.4g}", "machine": machine()}
        if trainer == OURS and LAST <= frames == flags["train_for_env_steps"]:
            for name in ("sampled", "deterministic"):
                is_deterministic = name == "deterministic"
                result = evaluate(folder, num_episodes=EPISODES, deterministic=is_deterministic, seed=1)
                row[name] = f"{result.true_objective.mean:.4g}"
        table[tuple(row[name] for name in IDENTITY)] = row
        print(*row.values(), flush=True)


def machine() -> str:
    """Returns number and name of the CPU cores, and the GPUs. Call it where the runs were made."""
    hardware = describe_hardware()
    return ", ".join([f"{hardware['cores']} cores, {hardware['cpu']}", *hardware["gpus"]])


def read(table: Path) -> dict[tuple[str, ...], Row]:
    """Returns the rows of a CSV file by IDENTITY; none if there is no such file."""
    if not table.exists():
        return {}
    with open(table, newline="") as file:
        return {tuple(row[name] for name in IDENTITY): row for row in csv.DictReader(file)}


def write(rows: Iterable[Row], table: Path) -> None:
    """Replaces the CSV file at once, so that an error leaves the old one."""
    temporary = table.with_suffix(".new")
    with open(temporary, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(sorted(rows, key=order))
    os.replace(temporary, table)


def order(row: Row) -> tuple[str, bool, str, int, int]:
    """Returns the key by which rows are sorted: OURS first in each scenario."""
    trainer = row["trainer"]
    return row["env"], trainer != OURS, trainer, int(row["seed"]), int(row["frames"])


def markdown(rows: Collection[Row]) -> Iterator[str]:
    """Yields the lines of a table: mean objective, range if there are several seeds, and minutes; then means
    of the evaluations, with sampled and with the most probable actions."""
    frames = " | ".join(f"{frames / 1e6:g}M frames" for frames in SHOWN)
    yield f"| scenario | trained by | {frames} | then, in {EPISODES} episodes |"
    yield "|---|---|" + "---|" * len(SHOWN) + "---|"
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["env"], row["trainer"]), []).append(row)
    for (env, trainer), own in groups.items():
        cells = [cell([row for row in own if int(row["frames"]) == frames]) for frames in SHOWN]
        evaluated = [row for row in own if int(row["frames"]) == LAST and row.get("sampled")]
        if any(cells):
            yield f"| `{env}` | {trainer} | {' | '.join(cells)} | {evaluations(evaluated)} |"


def cell(rows: Sequence[Row]) -> str:
    """Returns the text of a cell; empty if no run got as far."""
    if not rows:
        return ""
    values = [float(row["objective"]) for row in rows]
    spread = f" ({min(values):.3g} to {max(values):.3g})" if len(rows) > 1 else ""
    return f"{np.mean(values):.3g}{spread}, {least_minutes(rows):.1f} min"


def evaluations(rows: Sequence[Row]) -> str:
    """Returns the means over the seeds that were evaluated; empty if there are none."""
    if not rows:
        return ""
    sampled, probable = (np.mean([float(row[name]) for row in rows]) for name in ("sampled", "deterministic"))
    return f"{sampled:.3g}, {probable:.3g}"


def least_minutes(rows: Iterable[Row]) -> float:
    """Returns the minutes of the fastest seed: other programs may have run beside some of them."""
    return min(float(row["minutes"]) for row in rows)


def panels(rows: Collection[Row]) -> Iterator[Panel]:
    """Yields a panel for each scenario: the objective's mean over the seeds of a trainer, and its range."""
    for env in dict.fromkeys(row["env"] for row in rows):
        own = [row for row in rows if row["env"] == env]
        trainers = dict.fromkeys(row["trainer"] for row in own)
        lines = [lines_of(trainer, [row for row in own if row["trainer"] == trainer]) for trainer in trainers]
        yield Panel(env, "minutes", "objective", [line for of_trainer in lines for line in of_trainer])


def lines_of(trainer: str, rows: Sequence[Row]) -> Iterator[Line]:
    """Yields a trainer's curve in one scenario up to the frames that all seeds have reached, since one that
    ends earlier would bend the mean; then the rest of the longest seed."""
    of_seed: dict[str, list[Row]] = {}
    for row in rows:
        of_seed.setdefault(row["seed"], []).append(row)
    ends = {seed: max(int(row["frames"]) for row in own) for seed, own in of_seed.items()}
    common, longest = min(ends.values()), max(ends, key=lambda seed: ends[seed])
    yield mean_line(trainer, [row for row in rows if int(row["frames"]) <= common])
    if ends[longest] > common:
        rest = [row for row in of_seed[longest] if int(row["frames"]) >= common]
        yield mean_line(f"{trainer}, one seed", rest)


def mean_line(label: str, rows: Sequence[Row]) -> Line:
    """Returns the mean over the seeds, with a point for each number of frames that all of them have."""
    seeds = {row["seed"] for row in rows}
    by_frames: dict[int, list[Row]] = {}
    for row in rows:
        by_frames.setdefault(int(row["frames"]), []).append(row)
    points = [point for _, point in sorted(by_frames.items()) if len(point) == len(seeds)]
    minutes = np.array(list(map(least_minutes, points)))
    values = [[float(row["objective"]) for row in point] for point in points]
    mean, low, high = (np.array(list(map(of, values))) for of in (np.mean, min, max))
    return Line(label, label, minutes, mean, (low, high))


def main(argv: Sequence[str]) -> int:
    """Adds the runs of a folder to the table, and prints it. Returns the exit code."""
    if not argv:
        print(f"usage: python {sys.argv[0]} FOLDER [--csv=doom.csv] [--picture=doom.png]", file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the grid, or any other folder with experiments")
    parser.add_argument("--csv", type=Path, default=Path("doom.csv"), help="table to extend; its rows stay")
    parser.add_argument("--trainer", default=OURS, help="name of the runs in the table")
    parser.add_argument("--picture", type=Path, help="curves to draw, a panel for each scenario")
    arguments = parser.parse_args(argv)
    table = read(arguments.csv)
    for folder in find_experiments(arguments.folder):
        add_rows(folder, arguments.trainer, table)
        write(table.values(), arguments.csv)
    rows = sorted(table.values(), key=order)
    print(*markdown(rows), sep="\n")
    if arguments.picture is not None and rows:
        draw_panels(list(panels(rows)), MAX_COLUMNS).savefig(arguments.picture, dpi="figure")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
