"""ale-py's own vector env, and its games in Gymnasium, beside the package itself."""

import gymnasium as gym
import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from sample_factory.envs.adapters.adapt import adapt
from tests.conformance.ledger import Plain, assert_equal
from tests.conformance.product import adapted_by_name, train_on

COPIES = 8
KEYS = ("lives", "frame_number", "episode_frame_number")


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_vector_env(mode, count):
    def make():
        return AtariVectorEnv(
            "breakout", COPIES, stack_num=1, max_num_frames_per_episode=240, autoreset_mode=mode
        )

    trained = train_on(adapt(make()), 800)
    env, plain = make(), Plain()
    waits = np.zeros(COPIES, bool)
    observation, _ = env.reset(seed=1)
    plain.see(obs=observation)
    for row in trained.actions[:, :, 0].astype(np.int64):
        observation, rewards, terminated, truncated, info = env.step(row)
        plain.add(rewards, terminated, truncated & ~terminated, ~waits)
        plain.see(obs=observation)
        ended = terminated | truncated
        if mode == AutoresetMode.NEXT_STEP:  # else they are of the next game
            for agent in np.flatnonzero(ended).tolist():
                plain.infos[len(plain.rewards) - 1, agent] = {key: info[key][agent] for key in KEYS}
            waits = ended
    env.close()
    if mode == AutoresetMode.SAME_STEP:
        assert not any({*KEYS} & {*episode.info} for episode in trained.episodes), "they are of the next game"
    count("ale-py", assert_equal(trained, plain))


def test_games_in_gymnasium(count):
    kwargs = '{"max_num_frames_per_episode": 240, "obs_type": "grayscale"}'
    trained = train_on(adapted_by_name("gym_ALE/Breakout-v5", env_kwargs=kwargs), 2_000)
    env, plain = gym.make("ALE/Breakout-v5", max_num_frames_per_episode=240, obs_type="grayscale"), Plain()
    observation, _ = env.reset(seed=1)
    plain.see(obs=observation[None])
    for row in trained.actions[:, 0]:
        observation, reward, terminated, truncated, info = env.step(int(row[0]))
        plain.add(reward, terminated, truncated and not terminated)
        if terminated or truncated:
            plain.infos[len(plain.rewards) - 1, 0] = info
            observation, _ = env.reset()
        plain.see(obs=observation[None])
    env.close()
    count("ale-py", assert_equal(trained, plain))
