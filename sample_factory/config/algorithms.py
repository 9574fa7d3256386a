"""Algorithms by name, for --algo: everything about them that is known without loading torch.

A built-in algorithm is one entry of BUILT_IN; no other module compares its name.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sample_factory.runtime.registry import Registry

# factory(flags, policy, rng) -> Algorithm, see learning/algorithms/algorithm.py.
AlgorithmFactory = Callable[[Any, Any, Any], Any]

PPO_EVOLVES = ("ppo_clip_ratio", "ppo_clip_value")


class AlgorithmInfo(NamedTuple):
    """What an algorithm declares about itself.

    factory: makes it, in the learner's process; a "module:attribute" string is imported there.
    defaults: flag -> value, instead of the default of the flag and of the env family, which suit PPO.
    evolves: further flags that population-based training may change; population/pbt.py has the flags that
        suit every algorithm.
    refuses: flag -> the reason why it must keep its default value.
    """

    factory: AlgorithmFactory | str
    defaults: Mapping[str, Any] = {}
    evolves: tuple[str, ...] = PPO_EVOLVES
    refuses: Mapping[str, str] = {}


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


def register_algorithm(
    name: str, factory: AlgorithmFactory | str, defaults: Mapping[str, Any] | None = None
) -> None:
    """Makes an algorithm known as --algo=name.

    `factory(flags, policy, rng)`, for example a class, returns an `Algorithm`; the arguments are described
    there, in learning/algorithms/algorithm.py. For example, with a class that changes one method of PPO:

        sample_factory.register_algorithm("MINE", MyPPO, defaults={"learning_rate": 3e-4})
        sample_factory.run("CartPole-v1", "mine", algo="MINE")

    A "module:attribute" string is imported in child processes.
    defaults: flag -> value, instead of the defaults of the flags and of the env family.
    """
    _REGISTRY.register(name, AlgorithmInfo(factory, dict(defaults or {})))


def registered_algorithm(name: str) -> AlgorithmFactory | str:
    """Returns the factory of a registered name; a "module:attribute" is returned as it is.

    Raises ValueError, with the known names, for any other name.
    """
    if name == "DUMMY_SAMPLER":  # for version 1, this command was an algorithm
        raise ValueError(f"--algo={name}: use python -m sample_factory.dummy_sampler instead")
    found: AlgorithmInfo | str = _REGISTRY.find(name)
    return found if isinstance(found, str) else found.factory


def algorithm_info(name: str) -> AlgorithmInfo:
    """Returns what is known of an algorithm.

    An evaluation need not know the name: it may be registered in the script that has trained. Such an
    algorithm, and a "module:attribute", has no defaults.
    """
    info: AlgorithmInfo = _REGISTRY.find(name) if name in _REGISTRY else AlgorithmInfo(name)
    return info
