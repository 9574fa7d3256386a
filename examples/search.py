"""A search of flags that learn both CartPole and Acrobot within 25,000 frames: 30 trials, two seeds.

python -m sample_factory search --run=examples/search.py --max_parallel=2
"""

from sample_factory.runner.search_description import SearchDescription


def space(trial):
    return {
        "learning_rate": trial.suggest_float("learning_rate", 2e-4, 1e-2, log=True),
        "ppo_epochs": trial.suggest_int("ppo_epochs", 2, 16),
        "rollout": trial.suggest_categorical("rollout", [16, 32, 64]),
        "batch_size": trial.suggest_categorical("batch_size", [64, 128, 256, 512]),
        "num_batches_per_iteration": trial.suggest_categorical("num_batches_per_iteration", [1, 2, 4, 8]),
    }


present = {
    "learning_rate": 1e-3,
    "ppo_epochs": 10,
    "rollout": 64,
    "batch_size": 256,
    "num_batches_per_iteration": 8,
}
SEARCH = SearchDescription(
    "cartpole_and_acrobot",
    "python -m sample_factory.train --serial_mode=True --num_workers=1 --worker_num_splits=1 "
    "--num_envs_per_worker=8 --hidden_size=64 --experiment_summaries_interval=1",
    space,
    envs={"gym_CartPole-v1": (20, 500), "gym_Acrobot-v1": (-500, -80)},
    frames=25_000,
    seeds=(1, 2),
    num_trials=30,
    first=[present],
)
