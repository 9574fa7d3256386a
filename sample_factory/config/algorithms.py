"""Algorithms by name, for --algo: everything about them that is known without loading torch.

A built-in algorithm is one entry of BUILT_IN; no other module compares its name.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sample_factory.config.learning_flags import LearningFlags
from sample_factory.runtime.failures import ConfigError
from sample_factory.runtime.registry import Registry

# factory(flags, policy, rng) -> Algorithm, see learning/algorithms/algorithm.py.
AlgorithmFactory = Callable[[Any, Any, Any], Any]

PPO_EVOLVES = ("ppo_clip_ratio", "ppo_clip_value")


class AlgorithmInfo(NamedTuple):
    """Declaration of an algorithm: what other modules know about it without loading torch.

    factory: makes the algorithm in the learner's process; a "module:attribute" string is imported there.
    defaults: flag -> value, instead of the default of the flag and of the env family, which suit PPO.
    evolves: further flags that population-based training may change; population/pbt.py has the flags that
        suit every algorithm.
    refuses: flag -> the reason why the flag must keep its default value.
    flags: section of the learning flags, to which the algorithm may add flags.
    needs_costs: whether training batches have the cost of each step, `Batch.costs`.
    """

    factory: AlgorithmFactory | str
    defaults: Mapping[str, Any] = {}
    evolves: tuple[str, ...] = PPO_EVOLVES
    refuses: Mapping[str, str] = {}
    flags: type[LearningFlags] = LearningFlags
    needs_costs: bool = False


BUILT_IN: Mapping[str, AlgorithmInfo] = {
    "APPO": AlgorithmInfo(
        "sample_factory.learning.algorithms.ppo:PPO",
    ),
    "IMPALA": AlgorithmInfo(
        "sample_factory.learning.algorithms.impala:IMPALA",
        # TorchBeast, torchbeast/monobeast.py and polybeast_learner.py, which also have the defaults of
        # rmsprop_alpha, rmsprop_eps and gamma. They suit losses that are sums over a minibatch. Its unrolls
        # of 80 steps and minibatches of 8 depend on the number of envs; algo/README.md has them.
        defaults={
            "optimizer": "rmsprop",
            "learning_rate": 4.8e-4,
            "lr_schedule": "linear_decay",
            "max_grad_norm": 40.0,
            "exploration_loss_coeff": 6e-4,
            "value_loss_coeff": 0.5,
            "reward_clip": 1.0,
            "normalize_returns": False,
            "vtrace_lambda": 1.0,
        },
        evolves=(),
    ),
    "IMPACT": AlgorithmInfo(
        "sample_factory.learning.algorithms.impact:IMPACT",
        # RLlib (rllib/algorithms/appo/appo.py), and by its tuned example the paper for HalfCheetah; the
        # authors' example of Pong has a clip ratio of 0.3.
        defaults={"ppo_clip_ratio": 0.4, "vtrace_lambda": 1.0},
        evolves=("ppo_clip_ratio", "impact_rho"),
    ),
    "VMPO": AlgorithmInfo(
        "sample_factory.learning.algorithms.vmpo:VMPO",
        # Song et al. 2020: n-step returns (section 4.1), no entropy bonus, and the sum of all losses without
        # weights (eq. 1), in which the critic's loss has the factor 1/2 (eq. 6).
        defaults={"gae_lambda": 1.0, "exploration_loss_coeff": 0.0, "value_loss_coeff": 1.0},
        evolves=("vmpo_temperature_kl", "vmpo_policy_kl", "vmpo_mean_kl", "vmpo_covariance_kl"),
        refuses={"learners_per_policy": "it ranks the advantages of a whole minibatch"},
    ),
}
_REGISTRY = Registry("algo", BUILT_IN)
# What to write in place of an algorithm that is known elsewhere, and its names.
_ANSWERS = {
    "it is APPO with a critic that sees all agents: --algo=APPO --centralized_critic=True": "MAPPO",
    "it is --algo=APPO, where each agent of a multi-agent env learns by itself": "IPPO",
    "--algo=APPO is PPO; with --async_rl=False it never lags behind": "PPO PPO2 DDPPO",
    "--algo=IMPALA is the actor-critic without a clipped ratio": "A2C A3C",
    "the algorithm with a trust region is --algo=VMPO": "TRPO MPO V-MPO",
    "it learns from a replay buffer, and there is none here; --algo=APPO is the nearest": "DQN RAINBOW R2D2 "
    "SAC DDPG TD3 QMIX VDN MADDPG",
    "models of the env are out of scope; --algo=APPO is the nearest": "DREAMER DREAMERV3 MUZERO",
    "examples/lagrangian_ppo.py keeps costs below a limit": "PPO_LAGRANGIAN PPOLAG CPO",
    "use python -m sample_factory dummy_sampler": "DUMMY_SAMPLER",  # an algorithm of version 1
}
_KNOWN_ELSEWHERE = {name: text for text, names in _ANSWERS.items() for name in names.split()}


def register_algorithm(
    name: str,
    factory: AlgorithmFactory | str,
    defaults: Mapping[str, Any] | None = None,
    flags: type[LearningFlags] = LearningFlags,
    needs_costs: bool = False,
) -> None:
    """Makes an algorithm available as --algo=name.

    For example, with a class that changes one method of PPO:

        sample_factory.register_algorithm("MINE", MyPPO, defaults={"learning_rate": 3e-4})
        sample_factory.run("CartPole-v1", "mine", algo="MINE")

    Args:
        name: Value of the flag --algo.
        factory: A class or function factory(flags, policy, rng) that returns an `Algorithm`; its docstring,
            in learning/algorithms/algorithm.py, describes the arguments. A "module:attribute" string is
            imported in child processes.
        defaults: Flag -> value, instead of the defaults of the flags and of the env family.
        flags: A frozen dataclass that inherits from `LearningFlags` (config/learning_flags.py) and adds
            flags, `cost_limit: float = flag(25.0, "what it does")`. The factory gets an instance.
        needs_costs: Whether batches have `costs`: `info["cost"]` of each step, which an env must then have.

    Raises:
        TypeError: `flags` does not inherit from LearningFlags.
    """
    if not (isinstance(flags, type) and issubclass(flags, LearningFlags)):
        raise TypeError(f"flags={flags!r} should be a dataclass that inherits from LearningFlags")
    own = AlgorithmInfo(factory, dict(defaults or {}), flags=flags, needs_costs=needs_costs)
    _REGISTRY.register(name, own)


def registered_algorithm(name: str) -> AlgorithmFactory | str:
    """Returns the factory of a registered algorithm; a "module:attribute" string is returned unchanged.

    Raises ConfigError, with the known names, for any other name.
    """
    if name.upper() in _KNOWN_ELSEWHERE and name not in _REGISTRY:
        raise ConfigError(f"--algo={name} is unknown: {_KNOWN_ELSEWHERE[name.upper()]}")
    found: AlgorithmInfo | str = _REGISTRY.find(name)
    return found if isinstance(found, str) else found.factory


def algorithm_info(name: str) -> AlgorithmInfo:
    """Returns the declaration of an algorithm.

    A name that is not registered, and a "module:attribute", get one without defaults: an evaluation may run
    outside the script that has registered the algorithm and trained with it.
    """
    info: AlgorithmInfo = _REGISTRY.find(name) if name in _REGISTRY else AlgorithmInfo(name)
    return info
