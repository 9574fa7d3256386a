"""Simulators beside their own packages, with short episodes and many copies."""

import functools

import numpy as np
import pytest

from examples.functional_envs import Jumanji, Navix
from sample_factory.envs.adapters.adapt import adapt
from tests.conformance.ledger import AT_LEAST, Plain, assert_equal
from tests.conformance.product import train_on

NUM_COPIES = 40
NUM_STEPS = 100
SEED = 1
TERMINATED, TRUNCATED, BOTH = {(True, False)}, {(False, True)}, {(True, True)}  # how episodes end


def compared(trained, observations, step, ends, both_are_cut=False, waits_for_reset=False):
    """Plays the actions that the product has taken in the plain package, and compares. Returns the tally.

    observations: after the reset, [A, ...] by the product's keys. step: called with the actions of a step,
    [A, K]; returns observations, rewards, terminated, truncated, and statistics of the copies that end, each
    a number of all or of each copy. ends: all the ways in which episodes end here. both_are_cut: how an end
    counts that is terminated and truncated. waits_for_reset: a step after an end only resets the copy.
    """
    plain, statistics, own_ends = Plain(), {}, set()
    plain.see(**observations)
    waits = np.zeros(NUM_COPIES, bool)
    for number, row in enumerate(trained.actions):
        observations, rewards, terminated, truncated, stats = step(row)
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        ended = terminated | truncated
        own_ends |= set(zip(terminated[ended].tolist(), truncated[ended].tolist()))
        stats = {name: np.broadcast_to(value, NUM_COPIES) for name, value in stats.items()}
        for agent in np.flatnonzero(ended).tolist():
            statistics[number, agent] = {name: float(values[agent]) for name, values in stats.items()}
        if both_are_cut:
            terminated &= ~truncated
        else:
            truncated &= ~terminated
        plain.add(rewards, terminated, truncated, ~waits)
        plain.see(**observations)
        waits = ended & waits_for_reset
    assert own_ends == ends
    tally = assert_equal(trained, plain)
    assert tally.episodes >= AT_LEAST
    assert plain.seen and np.stack(plain.rewards).any()
    for episode in trained.episodes:
        assert dict(episode.stats) == pytest.approx(statistics[episode.step, episode.agent])
    return tally


@functools.cache  # compiled once
def pendulums():
    from brax import envs
    from brax.envs.wrappers.gym import VectorGymWrapper

    return VectorGymWrapper(
        envs.create("inverted_pendulum", episode_length=8, batch_size=NUM_COPIES, backend="spring")
    )


@pytest.mark.parametrize("is_torch", [False, True])
def test_brax(is_torch, count):
    from brax.envs.wrappers.torch import TorchWrapper

    own = pendulums()
    env = adapt(TorchWrapper(own) if is_torch else own)
    assert env.kinds.spaces[0].action.low == -3 and env.kinds.spaces[0].action.high == 3
    trained = train_on(env, NUM_STEPS)

    def step(row):
        observations, rewards, done, infos = own.step(row)
        is_cut = np.asarray(infos["truncation"]) != 0
        is_down = (np.asarray(done) != 0) & ~is_cut
        return {"obs": observations}, rewards, is_down, is_cut, infos["episode_metrics"]

    own.seed(SEED)
    count("brax", compared(trained, {"obs": own.reset()}, step, TERMINATED | TRUNCATED))


def carts():
    """Returns mjlab's env of carts; an episode ends after 8 steps, and earlier if the pole leans."""
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.managers.termination_manager import TerminationTermCfg
    from mjlab.tasks.registry import load_env_cfg

    def leans(env):
        return env.scene["cartpole"].data.joint_pos[:, 1].abs() > 0.05

    cfg = load_env_cfg("Mjlab-Cartpole-Balance")
    cfg.scene.num_envs = NUM_COPIES
    cfg.episode_length_s = 8 * cfg.sim.mujoco.timestep * cfg.decimation
    cfg.terminations["leans"] = TerminationTermCfg(func=leans)
    return ManagerBasedRlEnv(cfg, device="cpu")


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_mjlab(is_wrapped, count):
    import torch
    from mjlab.rl import RslRlVecEnvWrapper

    env = adapt(RslRlVecEnvWrapper(carts()) if is_wrapped else carts())
    assert not env.kinds.spaces[0].action.is_bounded()
    trained = train_on(env, NUM_STEPS)
    own = carts()

    def step(row):
        observations, rewards, terminated, truncated, infos = own.step(torch.as_tensor(row))
        return observations, rewards, terminated, truncated, infos["log"]

    observations, _ = own.reset(seed=SEED)
    ends = TERMINATED | TRUNCATED | BOTH
    tally = compared(trained, observations, step, ends, both_are_cut=True)  # as rsl_rl counts it
    own.close()
    count("mjlab", tally)


def test_gymnax_by_its_own_vector_env(count):
    import gymnax
    from gymnax.wrappers import GymnaxToVectorGymWrapper

    cart, params = gymnax.make("CartPole-v1")
    own = GymnaxToVectorGymWrapper(cart, NUM_COPIES, params.replace(max_steps_in_episode=14))
    trained = train_on(adapt(own), NUM_STEPS)

    def step(row):
        observations, *values, _ = own.step(row[:, 0].astype(int))
        return {"obs": observations}, *values, {}

    observations, _ = own.reset(seed=SEED)
    tally = compared(trained, {"obs": observations}, step, TERMINATED | TRUNCATED | BOTH)
    count("gymnax", tally)


def keys_of_copies():
    import jax

    return jax.random.split(jax.random.split(jax.random.key(SEED))[1], NUM_COPIES)


def test_jumanji(count):
    import jax
    import jumanji
    from jumanji.wrappers import AutoResetWrapper, VmapWrapper

    options = {"num_rows": 6, "num_cols": 6, "time_limit": 10}
    env = adapt(Jumanji("Snake-v1", NUM_COPIES, **options))
    dtypes = {key: box.dtype for key, box in env.kinds.spaces[0].observation.items()}
    trained = train_on(env, NUM_STEPS)
    own = VmapWrapper(AutoResetWrapper(jumanji.make("Snake-v1", **options)))
    own_step = jax.jit(own.step)
    state, timestep = jax.jit(own.reset)(keys_of_copies())

    def seen():
        named = timestep.observation._asdict()
        return {key: np.asarray(value, dtypes[key]) for key, value in named.items()}

    def step(row):
        nonlocal state, timestep
        actions = row[:, 0].astype(int)
        assert timestep.observation.action_mask[np.arange(NUM_COPIES), actions].all()
        state, timestep = own_step(state, actions)
        is_cut = timestep.last() & (timestep.discount > 0)
        return seen(), timestep.reward, timestep.last() & ~is_cut, is_cut, {}

    count("jumanji", compared(trained, seen(), step, TERMINATED))


def test_navix(count):
    import jax
    import navix
    from navix.environments.environment import StepType

    options = {"max_steps": 8}
    rng = np.random.default_rng(0)
    # Of steps forward and turns to the right, some lead to the goal.
    trained = train_on(
        adapt(Navix("Navix-Empty-5x5-v0", NUM_COPIES, **options)),
        NUM_STEPS,
        act=lambda rows: rng.integers(1, 3, size=(NUM_COPIES, 1)).astype(np.float32),
    )
    own = navix.make("Navix-Empty-5x5-v0", **options)
    own_step = jax.jit(jax.vmap(own.step))
    timestep = jax.jit(jax.vmap(own.reset))(keys_of_copies())

    def step(row):
        nonlocal timestep
        timestep = own_step(timestep, row[:, 0].astype(int))
        ends = (timestep.step_type == kind for kind in (StepType.TERMINATION, StepType.TRUNCATION))
        return {"obs": timestep.observation}, timestep.reward, *ends, {}

    first = {"obs": timestep.observation}
    count("navix", compared(trained, first, step, TERMINATED | TRUNCATED, waits_for_reset=True))
