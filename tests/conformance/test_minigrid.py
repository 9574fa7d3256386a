"""MiniGrid in Python, beside `gymnasium.make`."""

import gymnasium as gym
import minigrid  # noqa: F401  # registers its ids
import numpy as np
import pytest

from tests.conformance.ledger import Plain, assert_equal
from tests.conformance.product import adapted_by_name, train_on


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize(
    "env_id", ["MiniGrid-Empty-5x5-v0", "MiniGrid-LavaGapS5-v0", "MiniGrid-Fetch-5x5-N2-v0"]
)
def test_minigrid(env_id, copies, count):
    flags = {"env_engine": "gymnasium", "vector_env_copies": copies, "minigrid_mission": "drop"}
    trained = train_on(adapted_by_name(f"minigrid_{env_id}", **flags), 3_000 // copies)
    envs = [gym.make(env_id) for _ in range(copies)]
    plain = Plain()
    observations = [env.reset(seed=1 + copy)[0] for copy, env in enumerate(envs)]

    def see():
        direction = np.array([[observation["direction"]] for observation in observations], np.int32)
        images = np.stack([observation["image"] for observation in observations])
        plain.see(obs=images.astype(np.int32), direction=direction)

    see()
    for row in trained.actions[:, :, 0].astype(int):
        results = []
        for copy, (env, action) in enumerate(zip(envs, row)):
            observations[copy], reward, terminated, truncated, _ = env.step(action)
            results.append((reward, terminated, truncated and not terminated))
            if terminated or truncated:
                observations[copy], _ = env.reset()
        plain.add(*zip(*results))
        see()
    count("minigrid", assert_equal(trained, plain))
