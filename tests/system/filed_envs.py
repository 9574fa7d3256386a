"""Envs that write their ledgers to files, where another process can read them."""

import json
import random
import time

import numpy as np

from tests.envs.ledger_envs import FLAGS, NUMBERS, Habits, Lists, OldGym, Script, Single


def draw(rng):
    """Returns a script and habits of which each value is drawn."""
    script = Script(
        tuple(rng.randint(1, 9) for _ in range(3)),
        tuple(rng.choice(["terminated", "truncated", "both"]) for _ in range(3)),
        tuple(rng.randint(-3, 3) for _ in range(4)),
        rng.choice([None, "true_objective", "true_reward"]),
        has_stats=True,  # among them the number of the episode
    )
    spoils = frozenset(call for call in ("reset", "step") if rng.random() < 0.7)
    number, flag = rng.choice(sorted(NUMBERS)), rng.choice(sorted(FLAGS))
    return script, Habits(number, flag, rng.random() < 0.8, spoils, rng.random() < 0.5)


class Filed:
    """Makes envs that write each episode of each agent to a file: "single", "pair" or "duel"."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, full_env_name, cfg, env_config, render_mode=None):
        rng = random.Random(env_config.env_id)
        place = self.folder / f"{env_config.env_id}_{time.monotonic_ns()}.jsonl"
        script, habits = draw(rng)
        other = script._replace(rewards=script.rewards[::-1])
        if full_env_name.endswith("pair"):
            env = Lists([script, other._replace(lengths=script.lengths[::-1])], habits)
        elif full_env_name.endswith("duel"):
            env = Lists([script, other], habits)
        else:
            env = rng.choice([Single, OldGym])(script, habits)
        env.render = lambda: np.zeros((16, 16, 3), np.uint8)
        env.close = lambda: None
        step, num_filed = env.step, [0] * len(env.lives)

        def filed_step(action):
            returned = step(action)
            with place.open("a") as file:
                for agent, life in enumerate(env.lives):
                    for episode in life.episodes[num_filed[agent] :]:
                        print(json.dumps({"agent": agent, **episode._asdict()}), file=file)
                    num_filed[agent] = len(life.episodes)
            return returned

        env.step = filed_step
        return env
