"""Trains with each built-in algorithm on five tasks; curves: configs/README.md, "Algorithms".

python -m sample_factory run --run=examples/algorithms.py --max_parallel=2
python -m sample_factory plot_curves train_dir/algorithms --group_by=algo --out=algorithms.png
"""

from collections.abc import Sequence
from typing import Any

from sample_factory.runner.run_description import Experiment, ParamList, RunDescription

# TorchBeast's flags, which are IMPALA's defaults, suit rewards of about 1 and millions of steps.
IMPALA = {"algo": "IMPALA", "normalize_returns": True, "exploration_loss_coeff": 0.01}
ALGORITHMS = ({"algo": "APPO"}, IMPALA, {"algo": "IMPACT"}, {"algo": "VMPO"})
# Song et al. 2020, for continuous actions.
VMPO_CONTINUOUS = {"algo": "VMPO", "vmpo_target_period": 100, "vmpo_temperature_kl": 0.01}
CONTINUOUS = (*ALGORITHMS[:-1], VMPO_CONTINUOUS)


def experiment(
    name: str, flags: str, algorithms: Sequence[dict[str, Any]] = ALGORITHMS, seeds: Sequence[int] = (1, 2, 3)
) -> Experiment:
    """Returns the runs of a task: each algorithm with each seed."""
    runs = ParamList([{**algorithm, "seed": seed} for algorithm in algorithms for seed in seeds])
    return Experiment(name, f"python -m sample_factory.train {flags}", runs.generate_params(randomize=False))


RUN_DESCRIPTION = RunDescription(
    "algorithms",
    [
        experiment("cart_pole", "--cfg=configs/gym_cartpole.json"),
        experiment(
            "doom_basic",  # the figures in configs/README.md are older than the default of 0.95
            "--cfg=configs/doom_basic.json --vtrace_lambda=1 --train_for_env_steps=300000",
        ),
        experiment(
            "doom_battle",  # batches and network are those of the figures in configs/README.md
            "--cfg=configs/doom_battle.json --batch_size=2048 --encoder_subtype=convnet_simple "
            "--hidden_size=512 --learning_rate=0.0005 --train_for_env_steps=5000000",
            seeds=(1,),
        ),
        experiment("halfcheetah", "--cfg=configs/mujoco_halfcheetah.json", CONTINUOUS),
        experiment("kongfumaster", "--env=atari_kongfumaster --train_for_env_steps=400000"),
    ],
)
