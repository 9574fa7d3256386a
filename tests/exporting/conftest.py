"""Saved experiments with untrained policies, to export."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sample_factory.checkpoints.store import Checkpoints
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig
from sample_factory.models.normalizers import RunningNormalizer
from sample_factory.models.policy_spec import make_policy_spec


@pytest.fixture(scope="session")
def save() -> Callable[..., list[str]]:
    """Returns save(folder, env, *flags), which makes an experiment and returns the flags that name it."""

    def save(folder: Path, env_name: str, *typed: str) -> list[str]:
        identity = [f"--env={env_name}", "--experiment=tiny", f"--train_dir={folder}"]
        config = parse_config([*identity, *typed], resolve_family)
        config.experiment_dir.mkdir(parents=True)
        config.save()
        env = make_adapted_env(resolve_family(env_name), config.namespace(), EnvConfig(0, 0, 0))
        env.close()
        torch.manual_seed(7)
        for policy, spaces in enumerate(env.kinds.spaces):
            spec = make_policy_spec(config, *spaces)._replace(device="cpu", precision="fp32")
            model = spec.build().model
            disturb(model)
            state = {"model": model.state_dict(), "train_step": 5, "env_steps": 40}
            Checkpoints(config.experiment_dir, policy, keep=1).save(state, 5, 40)
        return identity[1:]

    return save


@torch.no_grad()
def disturb(model: torch.nn.Module) -> None:
    """Changes weights that are small or zero at the start, and statistics that are trivial."""
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    for module in model.modules():
        if isinstance(module, RunningNormalizer):
            module.mean.add_(torch.rand_like(module.mean))
            module.variance.mul_(1 + torch.rand_like(module.variance))
