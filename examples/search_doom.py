"""A search of flags that learn Doom in minutes, in three scenarios at once: equal seconds, not equal frames.

python -m sample_factory search --run=examples/search_doom.py --max_parallel=1
"""

from sample_factory.runner.search_description import SearchDescription


def space(trial):
    width, height = map(int, trial.suggest_categorical("resolution", ["128x72", "64x36"]).split("x"))
    return {
        "res_w": width,
        "res_h": height,
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 2e-3, log=True),
        "batch_size": trial.suggest_categorical("batch_size", [256, 512, 1024]),
        "ppo_epochs": trial.suggest_int("ppo_epochs", 1, 3),
        "ppo_clip_ratio": trial.suggest_categorical("ppo_clip_ratio", [0.1, 0.2]),
    }


present = {
    "resolution": "128x72",
    "learning_rate": 5e-4,
    "batch_size": 512,
    "ppo_epochs": 1,
    "ppo_clip_ratio": 0.1,
}
SEARCH = SearchDescription(
    "doom_minutes",
    "python -m sample_factory.train --num_envs_per_worker=16 --experiment_summaries_interval=5",
    space,
    envs={
        "doom_defend_the_center": (0, 10),
        "doom_health_gathering_supreme": (2, 10),
        "doom_battle": (0, 10),
    },
    seconds=100,
    seeds=(1,),
    num_trials=30,
    first=[
        present,
        {**present, "batch_size": 1024},
        {**present, "batch_size": 256},
        {**present, "ppo_epochs": 2},
        {**present, "batch_size": 256, "resolution": "64x36"},
        {**present, "ppo_clip_ratio": 0.2, "learning_rate": 1e-3},
        {**present, "batch_size": 256, "ppo_clip_ratio": 0.2, "ppo_epochs": 2, "resolution": "64x36"},
    ],
)
