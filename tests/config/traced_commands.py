"""Runs commands with tiny numbers in one process and its children, and notes which flags each one reads:

python traced_commands.py FOLDER NAME ...

FOLDER gets the experiments, and a file NAME.reads for each name of RUNS.
"""

import importlib
import os
import sys
from pathlib import Path
from typing import NamedTuple

TINY = (
    "--num_workers=1 --num_envs_per_worker=2 --rollout=8 --batch_size=16 --train_for_env_steps=400 --seed=1 "
)
TINY += "--save_best_after=0 --device=cpu "
CARTPOLE = "--env=gym_CartPole-v1 "
VECTORS = (("vector",), ("discrete",), ("one",))
PICTURES = (("image",), ("discrete",), ("one",))


class Run(NamedTuple):
    """A command with its flags. facts: observations, actions and agents of its env.

    experiment: that it writes or plays; {folder} in the flags is the folder of all of them.
    """

    command: str
    flags: str
    facts: tuple[tuple[str, ...], ...] = VECTORS
    experiment: str = "serial"


MEMORY = "--use_rnn=True --hidden_size=8 --encoder_mlp_layers 8 --num_batches_per_iteration=2 "
# Of which the suite runs those in FAST; the others were run when flags were declared, and should be again.
RUNS = {
    "serial": Run("train", f"{CARTPOLE}{TINY}{MEMORY}--serial_mode=True"),
    "enjoy": Run("enjoy", "--no_render --save_video --max_num_episodes=1 --seed=1"),
    "export": Run("export", "--export_check_steps=3 --seed=1"),
    "eval_serial": Run("eval", "--eval_episodes=2 --serial_mode=True --seed=1"),
    "eval": Run("eval", "--eval_episodes=2 --num_workers=1 --inline_samplers=0"),
    "record": Run("record", "--episodes=2 --out={folder}/games"),
    "imitate": Run(
        "imitate",
        f"{CARTPOLE}{MEMORY}--games={{folder}}/games --imitate_epochs=1 --rollout=8 --batch_size=16",
        experiment="clone",
    ),
    "dummy_sampler": Run(
        "dummy_sampler", f"{CARTPOLE}--timeout_seconds=1 --num_workers=1", experiment="none"
    ),
    "processes": Run(
        "train", f"{CARTPOLE}{TINY}{MEMORY}--inline_samplers=0 --async_rl=True", VECTORS, "processes"
    ),
    "inline": Run(
        "train",
        f"{CARTPOLE}{TINY}--inline_samplers=1 --eval_every_env_steps=200 --eval_episodes=1",
        VECTORS,
        "inline",
    ),
    **{
        name: Run("train", f"{CARTPOLE}{TINY}--serial_mode=True {flags}", VECTORS, name)
        for name, flags in {
            "impala": "--algo=IMPALA",
            "impact": "--algo=IMPACT --lr_schedule=kl_adaptive_epoch",
            "vmpo": "--algo=VMPO --lr_schedule=linear_decay",
            "gae": "--with_vtrace=False --optimizer=lamb --use_cpc=True --use_rnn=True --hidden_size=8",
            "gtrxl": "--use_rnn=True --rnn_type=gtrxl --hidden_size=8 --episodic_memory=True",
        }.items()
    },
    "pbt": Run(
        "train",
        f"{CARTPOLE}{TINY}--num_policies=2 --with_pbt=True --pbt_period_env_steps=100 --pbt_start_mutation=0",
        VECTORS,
        "pbt",
    ),
    "continuous": Run(
        "train",
        f"--env=gym_Pendulum-v1 {TINY}--serial_mode=True --adaptive_stddev=False",
        (("vector",), ("continuous",), ("one",)),
        "continuous",
    ),
    "doom": Run("train", f"--env=doom_basic {TINY}--serial_mode=True --hidden_size=8", PICTURES, "doom"),
    "doom_matches": Run(
        "dummy_sampler", "--env=doom_duel_bots --timeout_seconds=1 --num_workers=1", PICTURES, "x"
    ),
}
FAST = ("serial", "enjoy", "eval_serial")


def arguments_of(name: str, folder: Path) -> list[str]:
    """Returns the arguments of a command."""
    run = RUNS[name]
    words = run.flags.replace("{folder}", str(folder)).split()
    return [*words, f"--train_dir={folder}", f"--experiment={run.experiment}"]


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    for name in names:
        os.environ["FLAG_READS"] = str(folder / f"{name}.reads")
        module = importlib.import_module(f"sample_factory.{RUNS[name].command}")
        code = module.main(arguments_of(name, folder))
        print(f"{name}: exit code {code}", flush=True)


if __name__ == "__main__":
    main()
