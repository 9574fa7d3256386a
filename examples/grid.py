"""A grid of six short experiments: two learning rates, three seeds each.

python -m sample_factory run --run=examples/grid.py --max_parallel=2
"""

from sample_factory.runner.run_description import Experiment, ParamGrid, RunDescription

parameters = ParamGrid([("learning_rate", [1e-4, 1e-3]), ("seed", [1, 2, 3])])
command = (
    "python -m sample_factory.train --env=gym_CartPole-v1 --use_rnn=False --num_workers=1 "
    "--num_envs_per_worker=8 --batch_size=256 --train_for_env_steps=50_000"
)
RUN_DESCRIPTION = RunDescription(
    "cartpole_grid", [Experiment("cartpole", command, parameters.generate_params())]
)
