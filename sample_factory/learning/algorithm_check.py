"""Tries out a user's algorithm before training starts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.config.algorithms import AlgorithmFactory
from sample_factory.config.flags import ConfigError
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.learning.algorithms.algorithm import POLICY, Algorithm, Losses, SGDStep, evaluate
from sample_factory.learning.algorithms.targets import Targets
from sample_factory.learning.batch import Batch
from sample_factory.models.network_checks import made_up_observations
from sample_factory.models.policy_spec import BuiltPolicy, PolicySpec
from sample_factory.runtime.failures import Explained
from sample_factory.runtime.registry import resolve

MEMBERS = tuple(name for name in vars(Algorithm) if not name.startswith("_"))
INTERFACE = "sample_factory/learning/algorithms/algorithm.py"
COLUMNS = 2  # trajectories of the made-up batch

Result = TypeVar("Result")


class AlgorithmError(Explained):
    """Raised before training starts if a user's algorithm raises or breaks the contract of `Algorithm`."""


def probe_algorithm(
    name: str,
    factory: AlgorithmFactory | str,
    spec: PolicySpec,
    flags: LearningFlags,
    needs_costs: bool = False,
) -> None:
    """In a child, because it loads torch: checks an algorithm by calling its methods with a made-up batch.

    name: value of --algo. factory: class or function that makes the algorithm, or its name "module:attr".
    spec: network to check it with. needs_costs: whether the batch contains costs.

    Raises ConfigError if there is no such factory. Raises AlgorithmError, with advice, if the algorithm
    raises, lacks a method, or breaks the contract of `Algorithm`.
    """
    try:
        resolved = resolve(factory)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"--algo={name}: {error}") from None
    if not callable(resolved):
        raise ConfigError(f"--algo={name} is a {type(resolved).__name__}; it should be a class")
    policy = spec._replace(device="cpu").build()
    algorithm: Algorithm = _call(name, "its factory", resolved, flags, policy, np.random.default_rng(0))
    _check_members(name, algorithm)
    batch = _made_up_batch(policy, spec, flags.rollout)
    if needs_costs:
        batch = batch._replace(costs=torch.rand(batch.rewards.shape))
    _check_results(name, algorithm, policy, batch)


def _check_members(name: str, algorithm: Algorithm) -> None:
    missing = [member for member in MEMBERS if member not in dir(algorithm)]
    if missing:
        raise AlgorithmError(
            f"algorithm {name}: {type(algorithm).__name__} has no {', '.join(missing)}; it should have the "
            f"methods of Algorithm in {INTERFACE}: {', '.join(MEMBERS)}"
        )
    modules = _call(name, "modules", lambda: algorithm.modules)
    is_right = isinstance(modules, Mapping) and all(isinstance(own, nn.Module) for own in modules.values())
    _expect(name, "modules", is_right, modules, "a dict of torch modules by name, empty if there are none")


def _check_results(name: str, algorithm: Algorithm, policy: BuiltPolicy, batch: Batch) -> None:
    earlier = _call(name, "earlier_batches", algorithm.earlier_batches, batch)
    is_right = isinstance(earlier, Sequence) and all(isinstance(one, Batch) for one in earlier)
    _expect(name, "earlier_batches", is_right, earlier, "a list of batches, empty if there are none")
    evaluation = evaluate(policy, batch)
    targets = _call(name, "targets", algorithm.targets, batch, evaluation)
    shape = batch.rewards.shape
    is_right = isinstance(targets, Targets) and targets.advantages.shape == targets.returns.shape == shape
    _expect(name, "targets", is_right, targets, "Targets with advantages and returns of shape [T, B]")
    losses = _call(name, "losses", algorithm.losses, batch, evaluation, targets)
    _expect(name, "losses", isinstance(losses, Losses), losses, "Losses, with its terms by name")
    wanted = f'Losses with a dict of scalar tensors by name, "{POLICY}" among them'
    are_scalars = all(isinstance(term, Tensor) and term.dim() == 0 for term in losses.terms.values())
    is_right = POLICY in losses.terms and are_scalars
    _expect(name, "losses", is_right, losses.terms, wanted)
    if not losses.total.requires_grad:
        raise AlgorithmError(f"algorithm {name}: losses have no gradient; they should depend on `evaluation`")
    _call(name, "after_step", algorithm.after_step, 1)
    step = SGDStep(batch, evaluation, losses, grad_norm=0.0)
    with torch.no_grad():
        summaries = _call(name, "summaries", algorithm.summaries, step)
    _expect(name, "summaries", isinstance(summaries, Mapping), summaries, "a dict of numbers by tag")


def _call(name: str, method: str, function: Callable[..., Result], *inputs: Any) -> Result:
    try:
        return function(*inputs)
    except Exception as error:
        raise AlgorithmError(f"algorithm {name}: {method} raised {type(error).__name__}: {error}") from error


def _expect(name: str, method: str, is_right: bool, result: Any, wanted: str) -> None:
    if not is_right:
        keys = f" of {', '.join(map(str, result))}" if isinstance(result, Mapping) and result else ""
        raise AlgorithmError(
            f"algorithm {name}: {method} returned a {type(result).__name__}{keys}; it should be {wanted} "
            f"(see Algorithm in {INTERFACE})"
        )


def _made_up_batch(policy: BuiltPolicy, spec: PolicySpec, num_steps: int) -> Batch:
    """Returns a batch to try an algorithm on: [num_steps, COLUMNS], with random observations and rewards, and
    with the actions that the policy draws for these observations."""
    model = policy.model
    obs = made_up_observations(spec.observation_space, num_steps + 1, COLUMNS, policy.device)
    first = torch.zeros(COLUMNS, model.state_size)
    with torch.no_grad():
        unrolled = model.unroll(obs, first)
        logits = unrolled.logits[:-1]
        distribution = model.distribution(logits)
        actions = distribution.sample()
        log_probs = distribution.log_prob(actions)
    shape = (num_steps, COLUMNS)
    return Batch(
        obs=obs,
        actions=actions,
        log_probs=log_probs,
        values=unrolled.values[:-1],
        logits=logits,
        versions=torch.zeros(shape, dtype=torch.int32),
        generations=torch.zeros(shape, dtype=torch.int32),
        rewards=torch.randn(shape),
        terminated=torch.zeros(shape, dtype=torch.bool),
        truncated=torch.zeros(shape, dtype=torch.bool),
        own=torch.ones(shape, dtype=torch.bool),
        active_at_end=torch.ones(1, COLUMNS, dtype=torch.bool),
        chunk_rnn_states=first.unsqueeze(0),
        resets=np.zeros((num_steps + 1, COLUMNS), bool),
    )
