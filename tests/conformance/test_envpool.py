"""EnvPool's suites through our families, beside `envpool.make_gymnasium`."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import envpool
import numpy as np
import pytest
from gymnasium.spaces import Discrete

from sample_factory.families.envpool_engine import import_procgen
from tests.conformance.ledger import Plain, assert_equal
from tests.conformance.product import adapted_by_name, train_on

COPIES = 8
LEFT_OUT = ("env_id", "ram", "players")  # of infos
Seen = Callable[[Any], Mapping[str, np.ndarray]]


def as_obs(observation: np.ndarray) -> dict[str, np.ndarray]:
    return {"obs": observation}


def play_pool(task_id: str, actions: np.ndarray, see: Seen, lives: bool = False, **options: Any):
    """Plays actions, [T, A, ...], in a pool. The step after an end only resets a copy.

    lives: whether an end is that of a life, and the game may go on. In Road Runner, a game can also end
    unseen, in the frames without an action after a lost life: then there are as many lives as at its start.
    Returns the steps, the info of each, and the number of unseen ends.
    """
    frames = options.get("frame_skip", 1)
    env = envpool.make_gymnasium(task_id, seed=1, num_envs=COPIES, **options)
    plain, infos = Plain(), []
    waits = np.zeros(COPIES, bool)
    observation, info = env.reset()
    first_lives = info["lives"].copy() if lives else None
    previous: Mapping[str, np.ndarray] = {}
    continues: Any = np.zeros(COPIES, bool)
    num_unseen = 0
    plain.see(**see(observation))
    for row in actions:
        observation, rewards, terminated, truncated, info = env.step(row)
        is_unseen = np.zeros(COPIES, bool)
        if lives:
            if previous:
                is_unseen = (
                    continues & (previous["lives"] == 1) & (info["lives"] == first_lives) & (first_lives > 1)
                )
            num_unseen += is_unseen.sum()
            continues = terminated & (info["terminated"] == 0)
        else:
            continues = False
        plain.add(rewards, terminated | is_unseen, truncated & ~terminated, ~waits, continues, frames)
        plain.see(**see(observation))
        infos.append({key: value.copy() for key, value in info.items() if isinstance(value, np.ndarray)})
        previous = infos[-1]
        for agent in np.flatnonzero(terminated | truncated | is_unseen).tolist():
            numbers = {key: value[agent] for key, value in previous.items() if key not in LEFT_OUT}
            plain.infos[len(infos) - 1, agent] = {key: n for key, n in numbers.items() if np.ndim(n) == 0}
        waits = (terminated | truncated) & ~waits
    env.close()
    return plain, infos, int(num_unseen)


@pytest.mark.parametrize(
    ("env_name", "task_id", "num_steps"),
    [
        ("atari_breakout", "Breakout-v5", 700),
        ("atari_mspacman", "MsPacman-v5", 700),
        ("atari_roadrunner", "RoadRunner-v5", 600),
    ],
)
def test_atari_with_lives(env_name, task_id, num_steps, count):
    env = adapted_by_name(env_name, env_engine="envpool", vector_env_copies=COPIES, env_framestack=1)
    trained = train_on(env, num_steps, frameskip=4)
    plain, infos, num_unseen = play_pool(
        task_id,
        trained.actions[:, :, 0].astype(np.int32),
        as_obs,
        lives=True,
        stack_num=1,
        frame_skip=4,
        episodic_life=True,
        max_episode_steps=27_000,
    )
    tally = assert_equal(trained, plain)
    assert trained.terminated.sum() > tally.episodes, "lives end too"
    scores = np.zeros(COPIES)
    ends = iter(sorted(trained.episodes))
    episode = next(ends)
    for step, info in enumerate(infos):
        scores += info["reward"]
        while (episode.step, step) == (step, episode.step):
            assert episode.objective == scores[episode.agent]
            scores[episode.agent] = 0
            episode = next(ends, episode._replace(step=-1))
    assert num_unseen or env_name != "atari_roadrunner"
    count("envpool Atari", tally._replace(differences=num_unseen))


def test_atari_with_a_limit(count):
    options = {"max_episode_steps": 60, "episodic_life": True, "stack_num": 1}
    env = adapted_by_name("envpool_Breakout-v5", vector_env_copies=COPIES, env_kwargs=json.dumps(options))
    trained = train_on(env, 1_300, frameskip=4)
    actions = trained.actions[:, :, 0].astype(np.int32)
    plain, *_ = play_pool("Breakout-v5", actions, as_obs, lives=True, frame_skip=4, **options)
    count("envpool Atari", assert_equal(trained, plain))


@pytest.mark.parametrize(
    ("task_id", "num_steps"), [("D1Basic-v1", 1_200), ("DefendTheCenter-v1", 500), ("TakeCover-v1", 900)]
)
def test_doom(task_id, num_steps, count):
    env = adapted_by_name(f"envpool_{task_id}", vector_env_copies=COPIES, env_framestack=1)
    assert isinstance(env.kinds.spaces[0].action, Discrete), "one choice among combinations of buttons"
    trained = train_on(env, num_steps, frameskip=4)
    actions = trained.actions[:, :, 0].astype(np.int32)
    plain, *_ = play_pool(task_id, actions, as_obs, frame_skip=4, use_combined_action=True)
    count("envpool Doom", assert_equal(trained, plain))


@pytest.mark.parametrize("name, env_id", [("hopper", "Hopper-v5"), ("pendulum", "InvertedPendulum-v5")])
def test_mujoco(name, env_id, count):
    env = adapted_by_name(f"mujoco_{name}", env_engine="envpool", vector_env_copies=COPIES)
    trained = train_on(env, 300)
    low, high = env.kinds.spaces[0].action.low, env.kinds.spaces[0].action.high
    actions = np.clip(trained.actions.astype(np.float64), low, high)
    plain, infos, _ = play_pool(env_id, actions, lambda numbers: as_obs(numbers.astype(np.float32)))
    for episode in trained.episodes:
        for key, value in episode.stats.items():
            assert value == infos[episode.step][key][episode.agent], key
    count("envpool MuJoCo", assert_equal(trained, plain))


@pytest.mark.parametrize(
    "env_id", ["MiniGrid-Empty-5x5-v0", "MiniGrid-DoorKey-5x5-v0", "MiniGrid-LavaGapS5-v0"]
)
def test_minigrid(env_id, count):
    def see(observation):
        image, direction = (observation[key].astype(np.int32) for key in ("image", "direction"))
        return {"obs": image, "direction": direction.reshape(-1, 1)}

    env = adapted_by_name(f"minigrid_{env_id}", env_engine="envpool", vector_env_copies=COPIES)
    trained = train_on(env, 1_000)
    plain, *_ = play_pool(env_id, trained.actions[:, :, 0].astype(np.int32), see)
    count("envpool MiniGrid", assert_equal(trained, plain))


@pytest.mark.parametrize(("game", "num_steps"), [("bigfish", 700), ("dodgeball", 1_500), ("miner", 2_000)])
def test_procgen(game, num_steps, count):
    import_procgen()
    env = adapted_by_name(f"procgen_{game}", vector_env_copies=COPIES)
    trained = train_on(env, num_steps)
    actions = trained.actions[:, :, 0].astype(np.int32)
    plain, *_ = play_pool(f"{game.capitalize()}Easy-v0", actions, as_obs, num_levels=0, start_level=0)
    count("envpool Procgen", assert_equal(trained, plain))


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Catch-v0"])
def test_classic_control(env_id, count):
    env = adapted_by_name(f"envpool_{env_id}", vector_env_copies=COPIES)
    trained = train_on(env, 500)
    actions = trained.actions if env_id == "Pendulum-v1" else trained.actions[:, :, 0].astype(np.int32)
    plain, *_ = play_pool(env_id, actions, as_obs)
    count("envpool classic control", assert_equal(trained, plain))
