"""What other packages do where the API of Gymnasium leaves a choice, or contrary to it: one row for each.

What an env does is never found out by trying: it declares it, or its package has a row here. A row is added
with what was seen, in which version, and where; SUITES.md shows the table.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from sample_factory.envs.abilities import wrapper_classes

AGES = "episode_length_buf"  # attribute of rsl_rl's VecEnv: steps of the current episode of each env, [N]
# How an end counts that a step reports as terminated and truncated at once.
AUTO = "auto"  # as the table says
TERMINATED = "terminated"
TRUNCATED = "truncated"
UNLESS_DEAD = "truncated unless the player is dead"  # a ViZDoom game in the attribute `game` knows


class Convention(NamedTuple):
    """Describes what a package does where Gymnasium leaves a choice: a row of the table of conventions. The
    defaults hold for an env without a row.

    package: the distribution, and the version in which this was seen.
    classes: dotted beginnings of full class names; an instance of a subclass belongs to the row, too.
    autoreset: the mode of a vector env or simulator that does not declare it.
    both_ends: how an end counts that a step reports as terminated and truncated at once.
    repeats_first_states: whether a copy begins all of its episodes in the same state.
    stands_still: whether a step that resets one copy leaves the states of all other copies unchanged.
    is_functional: whether `step` is a function that takes a state; then the user has to make a batched
        simulator of it.
    batches_action_space: whether a simulator's `action_space` is the space of all its envs together, [N,
        ...].
    has_index_columns: whether a simulator takes indices of actions as a column, [N, 1].
    cannot_close: whether `close` of a simulator always fails.
    remarks: what else differs, for readers.
    source: file and function of the package that show this behaviour.
    """

    package: str = ""
    classes: tuple[str, ...] = ()
    autoreset: AutoresetMode | None = None
    both_ends: str = TERMINATED
    repeats_first_states: bool = False
    stands_still: bool = False
    is_functional: bool = False
    batches_action_space: bool = False
    has_index_columns: bool = False
    cannot_close: bool = False
    remarks: str = ""
    source: str = ""


UNKNOWN = Convention()
RSL_RL = Convention(
    "rsl-rl-lib 5.4.2, VecEnv",
    ("rsl_rl.env",),
    AutoresetMode.SAME_STEP,
    both_ends=TRUNCATED,
    remarks="so is an object with `get_observations` and `episode_length_buf`",
    source="runners/on_policy_runner.py, learn; algorithms/ppo.py, process_env_step",
)
CONVENTIONS = (
    Convention(
        "vizdoom 1.3.2",
        ("vizdoom.gymnasium_wrapper",),
        both_ends=TRUNCATED,
        source="base_gymnasium_env.py, step",
    ),
    Convention(
        "envpool 1.2.5",
        ("envpool",),
        remarks="Atari: a game may end unseen after a lost life; Doom: any number but 0 presses a button, "
        "the last step is never paid",
        source="by play: Road Runner with episodic_life; D3Battle-v1",
    ),
    Convention(
        "hasard 0.2.0",
        ("hasard.envs",),
        both_ends=TRUNCATED,
        source="envs/scenario.py of the repository in June 2026, step; the wheel lacks the file",
    ),
    Convention(
        "levdoom 1.0.3",
        ("levdoom.envs",),
        both_ends=UNLESS_DEAD,
        remarks="the ids pay 0; a reset ignores its seed; the last step is paid like the one before it",
        source="envs/base.py, reset and step; utils/wrappers.py, GameVariableRewardWrapper",
    ),
    Convention(
        "env-vizdoom-turbo 1.3.0.post31",
        ("env_vizdoom_turbo",),
        both_ends=TRUNCATED,
        source="env.py, step",
    ),
    Convention(
        "ale-py 0.12.1, AtariVectorEnv",
        ("ale_py.vector_env",),
        remarks="its mode is written to the metadata of all VectorEnvs; in SAME_STEP, infos beside an end "
        "are of the next game",
        source="vector_env.py, __init__ and recv",
    ),
    Convention(
        "gymnasium 1.4.0, FunctionalJaxVectorEnv (phys2d/)",
        ("gymnasium.envs.functional_jax_env.FunctionalJaxVectorEnv",),
        AutoresetMode.NEXT_STEP,
        stands_still=True,
        source="envs/functional_jax_env.py, step",
    ),
    Convention(
        "pettingzoo 1.27.0, turn_based_aec_to_parallel",
        ("pettingzoo.utils.conversions.turn_based_aec_to_parallel_wrapper",),
        remarks="only the agent of `agent_selection` acts; infos do not name it after a reset",
        source="utils/conversions.py, step",
    ),
    Convention(
        "brax 0.14.2, VectorGymWrapper and TorchWrapper",
        ("brax.envs.wrappers.gym", "brax.envs.wrappers.torch"),
        AutoresetMode.SAME_STEP,
        repeats_first_states=True,
        batches_action_space=True,
        cannot_close=True,
        source="envs/wrappers/gym.py; envs/wrappers/training.py, AutoResetWrapper",
    ),
    Convention(
        "playground 0.2.0, RSLRLBraxWrapper",
        ("mujoco_playground._src.wrapper_torch",),
        AutoresetMode.SAME_STEP,
        repeats_first_states=True,
        remarks="not with full_reset=True",
        source="_src/wrapper.py, BraxAutoResetWrapper",
    ),
    Convention(
        "mjlab 1.6.0",
        ("mjlab.envs", "mjlab.rl"),
        AutoresetMode.SAME_STEP,
        both_ends=TRUNCATED,
        remarks="a step overwrites the rewards of the one before",
        source="step of envs/manager_based_rl_env.py and rl/vecenv_wrapper.py; managers/reward_manager.py",
    ),
    RSL_RL,
    Convention(
        "isaaclab 2.0.0",
        ("isaaclab.envs", "omni.isaac.lab.envs"),
        AutoresetMode.SAME_STEP,
        both_ends=TRUNCATED,
        has_index_columns=True,
        source="envs/manager_based_rl_env.py, step; its wrapper for rsl_rl; direct/cartpole_showcase",
    ),
    Convention(
        "gymnax 1.0.1, GymnaxToVectorGymWrapper",
        ("gymnax.wrappers.gym",),
        AutoresetMode.SAME_STEP,
        source="environments/environment.py, step",
    ),
    Convention(
        "brax 0.14.2, craftax 1.6.1, gymnax 1.0.1, jumanji 1.1.2, navix 0.7.4, pgx 2.6.0, playground 0.2.0",
        (
            *("brax.envs.base", "craftax", "gymnax.environments", "gymnax.wrappers.purerl", "jumanji.env"),
            *("navix.environments", "pgx.core", "mujoco_playground._src"),
        ),
        is_functional=True,
        source="their `step`, which takes a state",
    ),
    Convention(
        "mani-skill 3.0.1, ManiSkillVectorEnv",
        ("mani_skill.vector",),
        AutoresetMode.SAME_STEP,
        remarks="its `unwrapped` is no VectorEnv, and resets nothing by itself",
        source="vector/wrappers/gymnasium.py",
    ),
)


def convention_of(env: Any) -> Convention:
    """Returns what the package of an env does where Gymnasium leaves a choice, such as when a vector env
    resets its copies: the row of CONVENTIONS that fits the class, or UNKNOWN.

    env: an env or a class of envs. If the class of a wrapper or of a vector env has no row, the class of the
        env inside, or of the copies, decides.
    """
    layers = [*_layers(env)]
    for name in (name for layer in layers for name in _names(layer)):
        for row in CONVENTIONS:
            if any(f"{name}.".startswith(f"{beginning}.") for beginning in row.classes):
                return row
    return RSL_RL if any(map(is_vec_env, layers)) else UNKNOWN


def name_of(env: Any) -> str:
    """Returns the class name of an env without its wrappers; for a SyncVectorEnv, the class name of its
    copies."""
    *_, inner = _layers(env)
    return type(inner).__name__


def is_vec_env(env: Any) -> bool:
    """Returns whether an object is a VecEnv of rsl_rl, by its attributes: inheritance is not required."""
    return hasattr(env, "get_observations") and getattr(env, AGES, None) is not None


def _layers(env: Any) -> Iterator[Any]:
    """Yields an env, then the envs inside its wrappers, from the outside to the inside; of a SyncVectorEnv,
    its first copy."""
    yield env
    if isinstance(env, wrapper_classes()):
        yield from _layers(vars(env)["env"])
    elif isinstance(env, gym.vector.SyncVectorEnv):
        yield from _layers(env.envs[0])
    elif (inner := getattr(env, "unwrapped", env)) is not env and not isinstance(env, type):
        yield from _layers(inner)  # in a wrapper of a package


def _names(env: Any) -> Iterator[str]:
    """Yields "module.QualName" of the class of an env, or of a class itself, and of all its base classes; for
    a VectorEnv with a spec also the entry point of the spec."""
    for own in env.__mro__ if isinstance(env, type) else type(env).__mro__:
        yield f"{own.__module__}.{own.__qualname__}"
    if isinstance(env, gym.vector.VectorEnv) and env.spec is not None:  # its copies may be in other processes
        yield str(env.spec.entry_point).replace(":", ".")
