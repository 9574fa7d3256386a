"""How many minutes of training until Doom is played with a score? One row of the first table of DOOM.md.

    python examples/minutes_to_score.py --env=doom_battle --score=20 --seed=1 --csv=configs/doom_minutes.csv

Trains with default flags, and stops when the mean objective of the last 100 episodes, which the log shows, is
the score. The minutes count from the command to that moment. Then 100 episodes are evaluated. Further flags
are those of train, e.g. --learning_rate=0.0002; --train_for_seconds gives up after an hour. An older commit
is measured by its own checkout with this script: python -P minutes_to_score.py, with PYTHONPATH=CHECKOUT.
"""

import argparse
import ast
import csv
import datetime
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sample_factory
from sample_factory.config.versions import versions
from sample_factory.runtime import cpu

EPISODES = 100  # of the mean during training, and of the evaluation
LIMITS = {"train_for_seconds": 3600, "train_for_env_steps": 10**10}  # unless other flags are given
COLUMNS = ("env", "score", "flags", "seed", "minutes", "frames", "evaluated", "commit", "date", "machine")


class UntilScore(sample_factory.Observer):
    """Stops a run when the mean objective of its last episodes reaches a score.

    minutes, frames: when that was; None if the run ends before.
    """

    def __init__(self, score: float):
        self._score = score
        self._began = time.monotonic()
        self.minutes: float | None = None
        self.frames: int | None = None

    def on_episode(self, run, episode):
        mean = run.policies[0].episodes.mean("true_objective", at_least=EPISODES)
        if self.minutes is None and mean is not None and mean >= self._score:
            self.minutes = (time.monotonic() - self._began) / 60
            self.frames = run.policies[0].env_frames
            run.stop(f"the mean objective of the last {EPISODES} episodes is {mean:.1f}")


def measure(env: str, score: float, seed: int, folder: str, flags: dict[str, Any]) -> dict[str, Any]:
    """Trains until the score and evaluates. Returns a row of the table, by COLUMNS."""
    until = UntilScore(score)
    experiment = f"{env}_to_{score:g}_seed{seed}"
    started = {"train_dir": folder, "seed": seed, "restart_behavior": "overwrite", "observers": [until]}
    sample_factory.run(env, experiment, **{**started, **LIMITS, **flags})
    result = sample_factory.evaluate(experiment, folder, num_episodes=EPISODES, seed=1)
    return {
        "env": env,
        "score": score,
        "flags": " ".join(f"--{name}={value}" for name, value in flags.items()),
        "seed": seed,
        "minutes": "" if until.minutes is None else f"{until.minutes:.1f}",
        "frames": until.frames or "",
        "evaluated": f"{result.true_objective.mean:.3g}",
        "commit": versions().get("commit", ""),
        "date": datetime.date.today().isoformat(),
        "machine": f"{cpu.num_usable_cores()} cores, {cpu_name()}",
    }


def cpu_name() -> str:
    """Returns the name of the processor, or of its architecture where Linux does not tell."""
    # The benchmark finds it out too, but in a module that older commits do not have.
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 if the score was not reached."""
    usage = f"python {sys.argv[0]} --env=ENV --score=SCORE [--FLAG=VALUE ...]"
    parser = argparse.ArgumentParser(usage=usage, description=__doc__.partition("\n")[0])
    parser.add_argument("--env", required=True)
    parser.add_argument("--score", type=float, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--train_dir", default="train_dir/minutes_to_score")
    parser.add_argument("--csv", type=Path, help="file to which the row is added")
    args, others = parser.parse_known_args(argv)
    flags = dict(other.removeprefix("--").split("=", 1) for other in others)
    row = measure(args.env, args.score, args.seed, args.train_dir, {k: value_of(v) for k, v in flags.items()})
    print(", ".join(f"{name} {value}" for name, value in row.items()))
    if args.csv is not None:
        is_new = not args.csv.exists()
        with args.csv.open("a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if is_new:
                writer.writeheader()
            writer.writerow(row)
    return 0 if row["minutes"] else 1


def value_of(text: str) -> Any:
    """Returns the value of a flag: a number, a bool or a list as Python writes it, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


if __name__ == "__main__":
    sys.exit(main())
