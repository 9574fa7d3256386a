"""Defaults of flags that depend on --algo. Imports nothing of the algorithms."""

from collections.abc import Mapping
from typing import Any

# Those of TorchBeast, torchbeast/monobeast.py and polybeast_learner.py; so are the defaults of rmsprop_alpha,
# rmsprop_eps and gamma. They suit losses that are sums over a minibatch. Its unrolls of 80 steps and
# minibatches of 8 are in algo/README.md only: they depend on the number of envs.
IMPALA_DEFAULTS = {
    "optimizer": "rmsprop",
    "learning_rate": 4.8e-4,
    "lr_schedule": "linear_decay",
    "max_grad_norm": 40.0,
    "exploration_loss_coeff": 6e-4,
    "value_loss_coeff": 0.5,
    "reward_clip": 1.0,
    "normalize_returns": False,
    "vtrace_lambda": 1.0,
}

# RLlib's (rllib/algorithms/appo/appo.py), and by its tuned example the paper's for HalfCheetah; the authors'
# example of Pong has 0.3.
IMPACT_DEFAULTS = {"ppo_clip_ratio": 0.4, "vtrace_lambda": 1.0}

# Song et al. 2020 (V-MPO): n-step returns (section 4.1), no entropy bonus, and the sum of all losses without
# weights (eq. 1), where that of the critic has the factor 1/2 (eq. 6).
VMPO_DEFAULTS = {"gae_lambda": 1.0, "exploration_loss_coeff": 0.0, "value_loss_coeff": 1.0}

# Flag -> default, by the name of the algorithm: instead of the default of the flag and of the env family,
# which suit PPO.
_DEFAULTS: dict[str, Mapping[str, Any]] = {
    "APPO": {},
    "IMPALA": IMPALA_DEFAULTS,
    "IMPACT": IMPACT_DEFAULTS,
    "VMPO": VMPO_DEFAULTS,
}
BUILT_IN = tuple(_DEFAULTS)


def set_defaults(algo: str, defaults: Mapping[str, Any]) -> None:
    """Sets the defaults of an algorithm: flag -> value."""
    _DEFAULTS[algo] = dict(defaults)


def defaults_of(algo: str) -> Mapping[str, Any]:
    """Returns flag -> value; empty for an algorithm without defaults of its own."""
    return _DEFAULTS.get(algo, {})
