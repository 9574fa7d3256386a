"""PettingZoo's envs, beside the loops of its documentation."""

import importlib
import json
import os

import numpy as np
import pytest
from gymnasium.spaces import Box

from tests.conformance.ledger import Plain, assert_equal
from tests.conformance.product import adapted_by_name, train_on

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame


def play_parallel(env, actions):
    """Plays actions, [T, A], in a parallel env, which is reset when no agent is left."""
    names = env.possible_agents
    boxes = {name: env.observation_space(name) for name in names}
    plain = Plain()

    def see(observations):
        if all(isinstance(box, Box) for box in boxes.values()):
            zeros = {name: np.zeros(box.shape, box.dtype) for name, box in boxes.items()}
            rows = [observations[name] if name in env.agents else zeros[name] for name in names]
            stacked = np.stack(rows)
            plain.see(obs=stacked.astype(np.float32) if stacked.dtype == np.float64 else stacked)

    see(env.reset(seed=1)[0])
    for row in actions:
        acting = list(env.agents)
        chosen = {name: action for name, action in zip(names, row) if name in acting}
        observations, *results, _ = env.step(chosen)
        rewards, terminated, truncated = ([own.get(name, 0) for name in names] for own in results)
        is_cut = [cut and not ended for ended, cut in zip(terminated, truncated)]
        plain.add(rewards, np.array(terminated, bool), is_cut, [name in acting for name in names])
        if not env.agents:
            observations, _ = env.reset()
        see(observations)
    env.close()
    return plain


@pytest.mark.parametrize(
    ("module", "kwargs", "num_steps"),
    [
        ("classic.rps_v2", {"max_cycles": 15}, 1_000),
        ("butterfly.knights_archers_zombies_v11", {"max_cycles": 200, "spawn_delay": 2}, 1_500),
        ("butterfly.cooperative_pong_v6", {"max_cycles": 40}, 300),
        ("sisl.pursuit_v5", {"max_cycles": 40}, 400),
    ],
)
def test_parallel_envs(module, kwargs, num_steps, count):
    trained = train_on(adapted_by_name(f"pettingzoo_{module}", env_kwargs=json.dumps(kwargs)), num_steps)
    env = importlib.import_module(f"pettingzoo.{module}").parallel_env(**kwargs)
    count(
        "pettingzoo parallel", assert_equal(trained, play_parallel(env, trained.actions[:, :, 0].astype(int)))
    )
