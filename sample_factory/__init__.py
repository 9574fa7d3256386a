"""Sample Factory: fast asynchronous reinforcement learning on one machine.

Importing this package imports neither torch nor gymnasium; `register_env` resolves its parts lazily.
"""

__version__ = "3.0.0"

from sample_factory.envs.env_registry import register_env
from sample_factory.learning.algorithm_registry import register_algorithm
from sample_factory.models.encoder_registry import register_encoder

__all__ = ["__version__", "register_algorithm", "register_encoder", "register_env"]
