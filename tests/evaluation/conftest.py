"""A saved experiment with untrained weights, for the programs that play a policy."""

from pathlib import Path
from typing import Callable

import pytest
import torch

from sample_factory.config.config import Config, parse_config
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig
from sample_factory.learning.checkpoints import Checkpoints
from sample_factory.models.actor_critic import make_actor_critic


@pytest.fixture
def saved_experiment(tmp_path: Path) -> Callable[..., list[str]]:
    """save(env, *flags) makes a folder with cfg.json and a checkpoint; returns the flags that name it."""

    def save(env_name: str, *typed: str) -> list[str]:
        identity = [f"--env={env_name}", "--experiment=tiny", f"--train_dir={tmp_path}"]
        config = parse_config([*identity, *typed], resolve_family)
        config.experiment_dir.mkdir()
        config.save()
        _save_checkpoint(config)
        return identity[1:]

    return save


def _save_checkpoint(config: Config) -> None:
    family = resolve_family(config.run.env)
    env = make_adapted_env(family, config.namespace(), EnvConfig(0, 0, 0))
    torch.manual_seed(7)
    model = make_actor_critic(
        config.model, env.observation_space, env.action_space, config.learning.normalize_returns
    )
    env.close()
    Checkpoints(config.experiment_dir, 0, keep=1).save({"model": model.state_dict()}, 1, 4)
