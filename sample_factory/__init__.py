"""Sample Factory: fast asynchronous reinforcement learning on one machine.

Importing this package imports neither torch nor gymnasium: functions are loaded when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from sample_factory.config import VERSION
from sample_factory.runtime.old_names import PathWithOldNames

if TYPE_CHECKING:
    from sample_factory.config.algorithms import register_algorithm
    from sample_factory.config.flags import ConfigError
    from sample_factory.envs.env_registry import register_env
    from sample_factory.evaluation.check import check_env
    from sample_factory.evaluation.evaluate import evaluate
    from sample_factory.evaluation.load_policy import load_policy
    from sample_factory.exporting import export_onnx
    from sample_factory.mainloop.level_choice import LevelChoice, register_level_choice
    from sample_factory.mainloop.observer import Observer, register_observer
    from sample_factory.mainloop.run_result import RunResult, TrainingFailed
    from sample_factory.models.network_registry import (
        register_actor_critic,
        register_core,
        register_decoder,
        register_encoder,
    )
    from sample_factory.plotting.metrics import read_metrics
    from sample_factory.sampling.matchmaking.matchmaking import register_matchmaking
    from sample_factory.training.run import run

__all__ = [
    "ConfigError",
    "LevelChoice",
    "Observer",
    "RunResult",
    "TrainingFailed",
    "__version__",
    "check_env",
    "evaluate",
    "export_onnx",
    "load_policy",
    "read_metrics",
    "register_actor_critic",
    "register_algorithm",
    "register_core",
    "register_decoder",
    "register_encoder",
    "register_env",
    "register_level_choice",
    "register_matchmaking",
    "register_observer",
    "run",
]
_MODULES = {
    "ConfigError": "sample_factory.config.flags",
    "LevelChoice": "sample_factory.mainloop.level_choice",
    "Observer": "sample_factory.mainloop.observer",
    "RunResult": "sample_factory.mainloop.run_result",
    "TrainingFailed": "sample_factory.mainloop.run_result",
    "check_env": "sample_factory.evaluation.check",
    "evaluate": "sample_factory.evaluation.evaluate",
    "export_onnx": "sample_factory.exporting",
    "load_policy": "sample_factory.evaluation.load_policy",
    "read_metrics": "sample_factory.plotting.metrics",
    "register_actor_critic": "sample_factory.models.network_registry",
    "register_algorithm": "sample_factory.config.algorithms",
    "register_core": "sample_factory.models.network_registry",
    "register_decoder": "sample_factory.models.network_registry",
    "register_encoder": "sample_factory.models.network_registry",
    "register_env": "sample_factory.envs.env_registry",
    "register_level_choice": "sample_factory.mainloop.level_choice",
    "register_matchmaking": "sample_factory.sampling.matchmaking.matchmaking",
    "register_observer": "sample_factory.mainloop.observer",
    "run": "sample_factory.training.run",
    "train": "sample_factory.train",
}

__version__ = VERSION

__path__ = PathWithOldNames(__path__)


def __getattr__(name: str) -> Any:
    """Imports a public function or class when it is first used. Raises AttributeError for other names."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_MODULES[name])
    value = module if name == "train" else getattr(module, name)  # that module can be called
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
