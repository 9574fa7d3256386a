"""Saved experiments with untrained or chosen weights, for the commands that play a policy."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sample_factory.config.config import Config
from sample_factory.config.parsing import parse_config
from sample_factory.envs import env_registry
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig

if TYPE_CHECKING:
    from torch import nn

    from sample_factory.checkpoints.store import Checkpoints

# What loads torch is imported in the functions: worker processes import the test modules whose envs they
# make, and those import this file.
SMALL = ["--hidden_size=8", "--encoder_mlp_layers", "8", "--use_rnn=False"]


@pytest.fixture
def registry(monkeypatch) -> Callable[..., None]:
    """Returns `register_env`; removes what a test registers after the test."""
    monkeypatch.setattr(env_registry, "_FAMILIES", dict(env_registry._FAMILIES))
    return env_registry.register_env


@pytest.fixture
def saved_experiment(tmp_path: Path) -> Callable[..., list[str]]:
    """Returns save(env, *flags), which makes an experiment folder and returns the flags that name it."""

    def save(env_name: str, *typed: str) -> list[str]:
        return save_untrained(tmp_path, env_name, *typed)

    return save


def save_untrained(
    train_dir: Path, env_name: str, *typed: str, change: "Callable[[nn.Module], None] | None" = None
) -> list[str]:
    """Makes an experiment with a policy for each kind of agents, and returns the flags that name it.

    change: is called with each network before it is saved.
    """
    identity = [f"--env={env_name}", "--experiment=tiny", f"--train_dir={train_dir}"]
    from sample_factory.checkpoints.store import Checkpoints

    config = parse_config([*identity, *typed], resolve_family)
    config.experiment_dir.mkdir(parents=True)
    config.save()
    for policy, model in enumerate(_untrained(config)):
        if change is not None:
            change(model)
        state = {"model": model.state_dict(), "train_step": 1, "env_steps": 4}
        Checkpoints(config.experiment_dir, policy, keep=1).save(state, 1, 4)
    return identity[1:]


@pytest.fixture
def choosing(tmp_path: Path) -> "Callable[..., Checkpoints]":
    """Returns `save_choosing` for an experiment in tmp_path."""
    return functools.partial(save_choosing, tmp_path)


def save_choosing(
    train_dir: Path,
    env_name: str,
    action: int,
    experiment: str = "tiny",
    policy: int = 0,
    flags: tuple[str, ...] = (),
) -> "Checkpoints":
    """Saves a policy that always chooses the same action.

    flags: of its network, beside or in place of SMALL.
    """
    from sample_factory.checkpoints.store import Checkpoints

    identity = [f"--env={env_name}", f"--experiment={experiment}", f"--train_dir={train_dir}"]
    config = parse_config([*identity, *SMALL, *flags], resolve_family)
    config.experiment_dir.mkdir(exist_ok=True)
    config.save()
    checkpoints = Checkpoints(config.experiment_dir, policy, keep=1)
    checkpoints.save(always(config, action), 1, 4)
    return checkpoints


def identity_of(checkpoints: "Checkpoints") -> list[str]:
    """Returns the flags that name the experiment of the checkpoints."""
    folder = checkpoints.folder.parent
    return [f"--experiment={folder.name}", f"--train_dir={folder.parent}"]


def always(config: Config, action: int) -> dict:
    """Returns the state of a policy that always chooses one of the actions of a Discrete space."""
    import torch

    (model,) = _untrained(config)
    torch.nn.init.zeros_(model.action_head.linear.weight)
    torch.nn.init.zeros_(model.action_head.linear.bias)
    with torch.no_grad():
        model.action_head.linear.bias[action] = 1000.0
    return {"model": model.state_dict()}


def _untrained(config: Config) -> list:
    """Returns a model (ActorCritic) for each kind of agents."""
    import torch

    from sample_factory.models.towers import make_actor_critic

    family = resolve_family(config.run.env)
    env = make_adapted_env(family, config.namespace(), EnvConfig(0, 0, 0))
    torch.manual_seed(7)
    returns = config.learning.normalize_returns
    models = [make_actor_critic(config.model, *spaces, returns) for spaces in env.kinds.spaces]
    env.close()
    return models
